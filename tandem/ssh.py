"""How other hosts are reached by ssh: the options of every connection, and the names that it may be given."""

from __future__ import annotations

# Nobody is there to type a password; a host that is gone, or the way to it, is noticed within half a minute.
SSH_OPTIONS = (
    *("-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"),
)
# A regular expression for `host` or `user@host`, in ASCII: what begins with a hyphen would be an option of ssh's.
HOST_PATTERN = r"(?:\w[\w.-]*@)?\w[\w.-]*"
