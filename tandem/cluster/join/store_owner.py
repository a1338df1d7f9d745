"""Which run the key-value store belongs to at which processes meet, and who is refused there.

Processes of two runs may reach one store, because their launchers chose the same port. The process that serves the
store writes down there which start of processes it belongs to, and whoever belongs to another one is refused. The keys
of a start lie under a prefix of its own, so that nobody else is taken for its member before having looked.
"""

from __future__ import annotations

from torch.distributed import PrefixStore, Store

# Keys outside of all prefixes: the start that the store belongs to, and the last process of another one that came by.
OWNER, REFUSED = "owner", "refused"
UNNAMED = "started by hand"


class OwnedStore:
    """A store with the name of the start of processes that it belongs to, and the keys of the one that uses it."""

    def __init__(self, store: Store, job: str, is_owner: bool) -> None:
        self._store, self.job = store, job
        self.own_keys: Store = PrefixStore(f"run {job}", store)
        """The keys of this start of processes, under its prefix."""
        if is_owner:
            store.compare_set(OWNER, "", self._name)

    @property
    def _name(self) -> str:
        return self.job or UNNAMED

    def refusal(self, rank: int, host: str, where: str) -> str:
        """Why a process cannot stay, because the store is another run's; empty if it can, or it is nobody's yet."""
        if not self._store.check([OWNER]) or (owner := self._store.get(OWNER).decode()) == self._name:
            return ""
        self._store.set(REFUSED, f"rank {rank} on {host} of another run ({self._name})")
        return (
            f"rank {rank} on {host} belongs to another run ({self._name}) than the one that meets at {where} "
            f"({owner}); end that one, or give this one another port (--port of tandem launch, otherwise MASTER_PORT)"
        )

    def refused(self) -> str:
        """The last process of another run that was refused here; empty if none was."""
        return self._store.get(REFUSED).decode() if self._store.check([REFUSED]) else ""
