"""The door of the store at which processes meet: whose it is, and who is refused.

Processes of two runs may reach one store, because their launchers chose the same port. The process that serves the
store writes down there which start of processes it belongs to, and whoever belongs to another one is refused. The keys
of a start lie under a prefix of its own, so that strangers cannot be taken for its members before they have looked.
"""

from __future__ import annotations

from torch.distributed import PrefixStore, Store

# Keys outside of all prefixes: the start that is at home here, and the last process of another one that came by.
DOOR, STRANGER = "door", "stranger"
UNNAMED = "started by hand"


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
