"""Silent and lost processes, and the sentences that name them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from tandem.layout import JOURNALS, stack_name
from tandem.units import rank_list

Cause = Literal["hanging", "stopped", "unreachable"]
"""Its main thread does not go on; the whole process does not run; nothing comes from its host any more."""


@dataclass(frozen=True)
class Silence:
    """Processes of one host that are not heard, or that others wait for in vain."""

    ranks: tuple[int, ...]
    host: str
    cause: Cause
    seconds: float
    """Since the last heartbeat, or since the main thread entered its phase."""
    phase: str
    """The last one that is known, of the first of them."""
    step: int

    @property
    def who(self) -> str:
        return f"{rank_list(self.ranks)} on {self.host}"

    def words(self) -> str:
        """The sentence for a process that was found silent."""
        age = f"{self.seconds:.0f} s"
        if self.cause == "hanging":
            stack = f"{JOURNALS}/{stack_name(self.ranks[0])}"
            return f"{self.who}: in {self.phase} for {age} while others wait for it; its stack is in {stack} there"
        last = f"no heartbeat for {age}, last in {self.phase} after step {self.step:,}"
        if self.cause == "stopped":
            return f"{self.who}: {last}; its host answers: the process is stopped, or gets neither memory nor processor"
        return f"{self.who}: {last}; its host does not answer: it is down, or the network to it is cut"

    def lost_peers(self) -> LostPeers:
        """The sentence for a process that was waited for in vain."""
        age = f"{self.seconds:.0f} s"
        match self.cause:
            case "hanging":
                words = f"{self.who} does not go on: in {self.phase} for {age}"
            case "stopped":
                words = f"{self.who} does not answer since {age}: the process does not run, although its host answers"
            case "unreachable":
                words = f"{self.who} does not answer since {age}: the host or the network to it is gone"
        return LostPeers(self.ranks, words)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, told: dict[str, Any]) -> Silence:
        return cls(**{**told, "ranks": tuple(told["ranks"])})


@dataclass(frozen=True)
class LostPeers:
    """Processes without which the others cannot go on."""

    ranks: tuple[int, ...]
    words: str
    """What is known of it, as the beginning of a sentence."""

    @classmethod
    def ended(cls, rank: int, host: str, reason: str) -> LostPeers:
        return cls((rank,), f"rank {rank} on {host} has ended ({reason or 'it was killed, or it has crashed'})")
