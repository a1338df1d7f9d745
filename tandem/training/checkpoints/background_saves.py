"""Checkpoints written in the background: copied between two steps, written by a thread while training goes on.

Every process copies and writes its part: the first the checkpoint, each host's first the state of its exchange. When
all are done they settle, together, whether the checkpoint counts. Only then are older ones removed, so that at every
instant there is a step from which all hosts can resume.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tandem.cluster.exchange.exchange import Exchange
from tandem.cluster.join.launchers import kills_after_a_second
from tandem.cluster.world import World
from tandem.errors import TandemError
from tandem.monitor.journal import Recorder
from tandem.monitor.records import Noticed, Saved
from tandem.storage import error_in_words
from tandem.training.checkpoints.checkpoint import Checkpoint, UnwritableCheckpointError
from tandem.training.checkpoints.checkpoint_store import CheckpointStore, Write
from tandem.training.checkpoints.exchange_state import ExchangeState
from tandem.training.checkpoints.merits import Merits
from tandem.training.checkpoints.mirror import Mirror
from tandem.training.checkpoints.resume import taken_again
from tandem.training.train_state import TrainState

# Longest wait for a copy in a second place: at the end of a session, and of a process that others have left alone.
LAST_COPY_SECONDS, EMERGENCY_COPY_SECONDS = 600.0, 5.0


@dataclass
class _UnderWay:
    """Something that a thread writes, or has written."""

    what: str
    step: int
    result: Future[Any]
    told: bool = False

    def fault(self) -> str:
        """Why it could not be written; empty if it was. Waits until it is known."""
        error = self.result.exception()
        if error is None:
            return ""
        if not isinstance(error, TandemError | OSError):
            raise error
        return str(error) if isinstance(error, TandemError) else error_in_words(error)


class BackgroundSaves:
    """The checkpoints of one process, one at a time, and the agreement of all processes on each."""

    def __init__(
        self,
        world: World,
        store: CheckpointStore,
        exchange_state: ExchangeState,
        mirror: Mirror,
        recorder: Recorder,
        resumed: int,
    ) -> None:
        self._mirror = mirror
        self._world, self._store, self._exchange_state, self._recorder = world, store, exchange_state, recorder
        # One thread: what is handed to it later is written later.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._kept: int | None = resumed or None
        """Step of the newest checkpoint that all hosts can resume."""
        self._unsettled: list[_UnderWay] = []
        """Parts of the newest checkpoint, and the best one, since all processes last settled."""
        if resumed:
            # The session before may have ended before its last copy.
            mirror.copy()
        self._failed_in_a_row = 0
        self._lost_best: dict[int, str] = {}
        """Why the newest of the best checkpoints could not be written, by rank."""
        self._incomplete: int | None = None
        """Step of a checkpoint that is whole in the first process, while another host has not saved its part."""

    @property
    def writing(self) -> bool:
        """Whether this process's thread is at work."""
        return any(not part.result.done() for part in self._unsettled)

    @property
    def unsettled(self) -> bool:
        """Whether something was begun that all processes have yet to settle; all of them have the same answer."""
        return bool(self._unsettled)

    def save(self, state: TrainState, exchange: Exchange, *, last: bool = False, stop_by: float | None = None) -> None:
        """Copy the state and begin to write it, on all processes; the last one of a session is waited for.

        So is its copy in the mirror, for a while: for half the time that is left, if the process has to stop by a
        certain instant of time.monotonic(). One that a disk does not take goes straight to the mirror, and is still an
        error: a run that is started again needs a disk.
        """
        self.settle(goes_on=True)
        step = state.progress.step
        self._begin("checkpoint", step, _both(self._exchange_state.saving(state, exchange), self._store.saving(state)))
        if last:
            try:
                self.settle(goes_on=False, rescue=lambda part: self._save_to_mirror(part, state, exchange, stop_by))
            except TandemError:
                # A best one, perhaps, that the disk still took: the mirror may be all that can be read later.
                self._mirror.finish(_seconds_for_mirror(stop_by))
                self._tell_mirror(step)
                raise
            self.finish_mirror(step, _seconds_for_mirror(stop_by))

    def finish_mirror(self, step: int, seconds: float = LAST_COPY_SECONDS) -> None:
        """Wait so long for the copies in the mirror; what is missing there is said."""
        copied = self._mirror.finish(seconds)
        self._tell_mirror(step)
        if not copied:
            self._notice(step, "checkpoint.mirror has no copy of this step yet; the same command makes it")

    def went_back_to(self, step: int) -> None:
        """Take note that training goes on from an earlier checkpoint; what was under way must be settled."""
        assert not self._unsettled
        self._kept, self._incomplete = step or None, None

    def save_if_best(self, state: TrainState, merits: Merits) -> None:
        """Copy the weights after an evaluation and write them if they are among the best."""
        self._begin("best checkpoint", state.progress.step, self._store.saving_if_best(state, merits))

    @property
    def best_under_way(self) -> int | None:
        """Step of the newest evaluation, if the first process may not have written its weights among the best yet."""
        steps = [part.step for part in self._unsettled if part.what != "checkpoint"]
        return max(steps, default=None)

    def finish(self) -> None:
        """Wait until this process has written, or failed to write, all that it was handed; others are not asked."""
        for part in self._unsettled:
            part.result.exception()

    def copy_in_emergency(self, *, checkpoints: bool) -> None:
        """Copy to the mirror what was saved without the others, as far as a few seconds allow.

        With `checkpoints` those of the run, too, in the stead of a first process that may be gone.
        """
        if checkpoints:
            self._mirror.copy_checkpoints_too()
        self._mirror.copy()
        # There the saving itself, and the words at the end, need all the time there is.
        if not kills_after_a_second():
            self._mirror.finish(EMERGENCY_COPY_SECONDS)

    def tell_failures(self) -> None:
        """Record what this process could not write, as soon as it is known, unless all will fail of it."""
        self._tell_mirror(self._kept or 0)
        for part in self._unsettled:
            if self._kept is not None and part.result.done() and not part.told and (fault := part.fault()):
                part.told = True
                self._notice(part.step, f"{self._place(self._world.rank)}: {fault}; {self._consequence(part)}")

    def settle(self, *, goes_on: bool, rescue: Callable[[_UnderWay], bool] = lambda part: False) -> None:
        """Wait for the checkpoint under way on all processes: from then on it is kept by all of them, or by none.

        If it failed, training goes on where it may, and there is an older one to resume from; otherwise all fail, and
        say whether `rescue` has saved it elsewhere.
        """
        if not self._unsettled:
            return
        faults = self._world.gather([part.fault() for part in self._unsettled])
        if goes_on:
            self.tell_failures()
        parts, self._unsettled = self._unsettled, []
        try:
            for place, part in enumerate(parts):
                said = {rank: of_rank[place] for rank, of_rank in enumerate(faults) if of_rank[place]}
                if part.what != "checkpoint":
                    self._lost_best = said
                elif said:
                    self._give_up(part, said, goes_on, rescue)
                else:
                    self._keep(part)
        finally:
            self._copy_settled()
        # The best ones are for use: at the end one that is lost is missed.
        if self._lost_best and not goes_on:
            raise self._error(self._lost_best, parts[-1].step)

    def _begin(self, what: str, step: int, write: Write[Any] | None) -> None:
        result: Future[Any] = Future()
        if write is None:
            result.set_result(None)
        else:
            result = self._thread.submit(_timed, write)
        self._unsettled.append(_UnderWay(what, step, result))

    def _keep(self, part: _UnderWay) -> None:
        self._kept, self._failed_in_a_row, self._incomplete = part.step, 0, None
        with suppress(OSError):
            # A disk that fails to remove what is old is still good for what is new.
            self._store.settle(part.step)
            self._exchange_state.prune()
        saved, seconds = part.result.result() or (None, 0.0)
        if isinstance(saved, Checkpoint):
            self._recorder.record(Saved(step=saved.step, path=str(saved.directory), bytes=saved.size, seconds=seconds))

    def _copy_settled(self) -> None:
        """Begin to copy to the mirror what was written, also where something else was not.

        One that is not whole everywhere stays here: in the mirror it would take the room of one to resume from.
        """
        if self._incomplete is None:
            self._mirror.copy()

    def _give_up(
        self, part: _UnderWay, said: dict[int, str], goes_on: bool, rescue: Callable[[_UnderWay], bool]
    ) -> None:
        """Remove the parts of a checkpoint that is not whole everywhere; an error, if training cannot go on without.

        The newest that is whole in the first process stays until there is a better one: weights without the memory of
        one host's exchange are more than nothing.
        """
        with suppress(OSError):
            self._exchange_state.withdraw(part.step)
            if self._incomplete is not None:
                self._store.withdraw(self._incomplete)
        self._incomplete = None if 0 in said else part.step
        if not goes_on or self._kept is None:
            raise self._error(said, part.step, rescued=rescue(part))
        others = "; ".join(f"{self._place(rank)}: {fault}" for rank, fault in said.items() if rank)
        if others and self._world.is_leader:
            self._notice(part.step, f"{others}; {self._consequence(part)}")
        self._failed_in_a_row += 1

    def _save_to_mirror(self, part: _UnderWay, state: TrainState, exchange: Exchange, stop_by: float | None) -> bool:
        """Write a checkpoint that some disk does not take to the mirror; whether all of its parts are there now."""
        fault = part.result.exception()
        by_disk = fault is None or isinstance(fault, UnwritableCheckpointError | OSError)
        if self._mirror.target is None or self._world.total(not by_disk)[0]:
            return False
        writes = self._exchange_state.writes_elsewhere(state, exchange) | self._store.writes_elsewhere(state)
        begun = [self._mirror.write(directory, write) for directory, write in writes.items()]
        done, late = wait(begun, timeout=_seconds_for_mirror(stop_by))
        missing = bool(late) or any(write.exception() is not None for write in done)
        return not self._world.total(missing)[0]

    def _tell_mirror(self, step: int) -> None:
        if trouble := self._mirror.pop_trouble():
            message = f"{self._place(self._world.rank)}: {trouble}"
            self._notice(step, message)
            self._recorder.relay(message)

    def _consequence(self, part: _UnderWay) -> str:
        if part.what != "checkpoint":
            return f"step {part.step:,} is not kept as a {part.what}"
        before = f", {self._failed_in_a_row + 1} in a row," if self._failed_in_a_row else ""
        return (
            f"training goes on without the checkpoint of step {part.step:,}{before} and tries again at the next one; "
            f"until then all since step {self._kept:,} would be lost with this process"
        )

    def _error(self, said: dict[int, str], step: int, *, rescued: bool = False) -> TandemError:
        """What could not be written at a step, and from where the run goes on once that is mended."""
        faults = "; ".join(f"{self._place(rank)}: {fault}" for rank, fault in said.items())
        if rescued:
            then = f"the state after step {step:,} is saved in {self._mirror.target}, and it continues from there"
        elif self._kept is None:
            then = "no checkpoint was saved yet: it begins again"
        else:
            again = f", {taken_again(step - self._kept)}" if step > self._kept else ""
            then = f"it continues after step {self._kept:,}{again}"
        return self._world.shared_error(f"{faults}; mend that and start the run again; {then}")

    def _place(self, rank: int) -> str:
        return f"rank {rank} on {self._world.host_names[self._world.host_of(rank)]}"

    def _notice(self, step: int, message: str) -> None:
        self._recorder.record(Noticed(step=step, message=message))


def _seconds_for_mirror(stop_by: float | None) -> float:
    """Longest wait for the last copy: half of what is left, if the process has to stop by a certain instant."""
    return LAST_COPY_SECONDS if stop_by is None else max(0.0, (stop_by - time.monotonic()) / 2)


def _both(first: Write[Any] | None, second: Write[Any] | None) -> Write[Any] | None:
    """One write after the other; what the second gives."""
    if first is None or second is None:
        return second or first

    def write() -> Any:
        first()
        return second()

    return write


def _timed(write: Write[Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    written = write()
    return written, time.perf_counter() - start
