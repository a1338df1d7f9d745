"""Silent and lost processes of a training: in the journal, on every host's terminal, and in the account of time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tandem.cluster.liveness.liveness import PeerListener, returned_words
from tandem.cluster.liveness.silence import Silence
from tandem.layout import RunPaths, stack_name
from tandem.monitor.activity import ACTIVITY
from tandem.monitor.records import FAILED, Record, Returned, Silent
from tandem.process_exit import end_process, say
from tandem.process_signals import lost_peer_code
from tandem.training.trainer import Trainer


class TrainingPeers(PeerListener):
    """Records what heartbeats tell of the other processes of a training."""

    def __init__(self, trainer: Trainer, run: RunPaths) -> None:
        self._trainer = trainer
        self.stack_file = run.journals / stack_name(trainer.world.rank)

    def step(self) -> int:
        return self._trainer.state.progress.step

    def fell_silent(self, silence: Silence, speaks: bool) -> None:
        for rank in silence.ranks:
            if rank != self._trainer.world.rank:
                self._trainer.clock.peer_silent(rank, silence.seconds)
        if speaks:
            record = Silent(
                step=self.step(),
                ranks=list(silence.ranks),
                host=silence.host,
                cause=silence.cause,
                phase=silence.phase,
                seconds=silence.seconds,
                message=silence.words(),
            )
            self._say(record, record.message)

    def returned(self, rank: int, host: str, seconds: float, speaks: bool) -> None:
        self._trainer.clock.peer_returned(rank)
        if speaks:
            words = returned_words(rank, host, seconds)
            self._say(Returned(step=self.step(), rank=rank, host=host, seconds=seconds, message=words), words)

    def slept(self, seconds: float) -> None:
        self._trainer.clock.slept(seconds)
        self._trainer.notice(f"this process did not run for {seconds:.0f} s: it was stopped, or its machine was")

    def lost(self, words: str, speaks: bool) -> None:
        left = self._trainer.emergency_save()
        with suppress(OSError, ValueError):
            self._trainer.end(f"{FAILED}{words}", device_answers=False)
        if speaks:
            say(f"{words}; {left}")
        end_process(lost_peer_code())

    def _say(self, record: Record, words: str) -> None:
        # The first process's views are on its terminal; other hosts have none.
        if not self._trainer.world.is_leader:
            say(words)
        self._trainer.recorder.record(record)


@contextmanager
def watching_peers(trainer: Trainer, run: RunPaths) -> Iterator[None]:
    """Record silent and lost processes while the block lasts."""
    liveness = trainer.world.liveness
    if liveness is None:
        yield
        return
    if liveness.unwatched:
        trainer.notice_of_this_process(liveness.unwatched)
    ACTIVITY.started()
    before, liveness.listener = liveness.listener, TrainingPeers(trainer, run)
    try:
        yield
    finally:
        liveness.listener = before
