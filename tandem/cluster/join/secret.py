"""A secret that all processes of a run must share.

$TANDEM_TOKEN is a secret of the user's. Every process makes a nonce; all nonces together are signed with the secret,
which is never sent, and every process checks the signatures of all others.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Sequence

TOKEN_VARIABLE = "TANDEM_TOKEN"


def secret_token() -> bytes | None:
    """The secret that all processes of a run must share, if the user has set one."""
    return os.environ.get(TOKEN_VARIABLE, "").encode() or None


def new_nonce() -> str:
    return secrets.token_hex(16)


def signature(token: bytes, nonces: Sequence[str], rank: int) -> str:
    """Proof that a rank knows the secret, of use in this meeting only."""
    return hmac.new(token, f"{rank} of {' '.join(nonces)}".encode(), "sha256").hexdigest()


def same_signature(one: str, other: str) -> bool:
    """Compare in a time that does not tell how much of them is the same."""
    return hmac.compare_digest(one.encode(), other.encode())
