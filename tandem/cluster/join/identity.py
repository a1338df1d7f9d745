"""Who belongs to a run: the launcher's name for it, kept at the door of the store, and a secret that all must share.

Processes of two runs may reach one store, because their launchers chose the same port. The process that serves the
store writes down there which start of processes it belongs to, and whoever belongs to another one is refused. The keys
of a start lie under a prefix of its own, so that strangers cannot be taken for its members before they have looked.

$TANDEM_TOKEN is a secret of the user's. Every process makes a nonce; all nonces together are signed with the secret,
which is never sent, and every process checks the signatures of all others.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Sequence

from torch.distributed import PrefixStore, Store

TOKEN_VARIABLE = "TANDEM_TOKEN"
# Keys outside of all prefixes: the start that is at home here, and the last process of another one that came by.
DOOR, STRANGER = "door", "stranger"
UNNAMED = "started by hand"


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


class Door:
    """The part of a store in which one start of processes meets, and what shows whose store it is."""

    def __init__(self, store: Store, job: str, keeps: bool) -> None:
        self._store, self.job = store, job
        self.room: Store = PrefixStore(f"run {job}", store)
        """The keys of this start of processes."""
        if keeps:
            store.compare_set(DOOR, "", self._name)

    @property
    def _name(self) -> str:
        return self.job or UNNAMED

    def refusal(self, rank: int, host: str, where: str) -> str:
        """Why a process cannot stay, because another run is at home here; empty if it can, or nobody is yet."""
        if not self._store.check([DOOR]) or (owner := self._store.get(DOOR).decode()) == self._name:
            return ""
        self._store.set(STRANGER, f"rank {rank} on {host} of another run ({self._name})")
        return (
            f"rank {rank} on {host} belongs to another run ({self._name}) than the one that meets at {where} "
            f"({owner}); end that one, or give this one another port (--port of tandem launch, otherwise MASTER_PORT)"
        )

    def stranger(self) -> str:
        """The last process of another run that was refused here; empty if none was."""
        return self._store.get(STRANGER).decode() if self._store.check([STRANGER]) else ""
