"""Errors of libraries that know a password or key, told without it."""

from __future__ import annotations

import os
import re

from tandem.errors import TandemError
from tandem.monitor.network_interfaces import host_name
from tandem.storage import error_in_words

HIDDEN = "***"
# The account in an address: https://name:password@host. It ends at the last @, because a password may have one, too.
_ACCOUNT = re.compile(r"(?<=://)[^/\s]+(?=@)")
# Variables whose values are nobody's business, by their names; a shorter value is a word that may stand anywhere.
_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)S?$", re.IGNORECASE)
_SHORTEST_SECRET = 6
# A server may answer with a whole page.
_LONGEST = 400


def without_secrets(text: str) -> str:
    """A text without accounts in addresses, and without what secret variables of the environment hold."""
    text = _ACCOUNT.sub(HIDDEN, text)
    secrets = [value for name, value in os.environ.items() if _SECRET_NAME.search(name)]
    # The longest first: one may be the beginning of another.
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, HIDDEN)
    return text


def error_without_secrets(error: BaseException) -> str:
    """An error in a line, as far as everybody may read it."""
    if isinstance(error, TandemError):
        text = str(error)
    elif isinstance(error, OSError):
        # The system's own numbers for what went wrong help nobody.
        text = f"{host_name()}: {error_in_words(error)}"
    else:
        text = f"{type(error).__name__}: {error}"
    line = without_secrets(" ".join(text.split()))
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ..."
