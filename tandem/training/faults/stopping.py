"""How a training is stopped by a signal: a vote, a deadline, and what is done when the deadline comes first."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from tandem.cluster.join.launchers import kills_after_a_second
from tandem.cluster.world import World
from tandem.monitor.records import Ended
from tandem.process_exit import SAY_SECONDS, STOP_SIGNALS, within
from tandem.process_signals import SignalPlan, Wait, end_by
from tandem.units import rank_list

if TYPE_CHECKING:
    from tandem.training.trainer import Trainer

ASKED_TO_STOP = "stopped on request"
# Processes that may wish to stop by one signal in one vote: four signals fill a float64's 52 bits.
MOST_VOTES = 2**12
# Longest wait for a disk that does not say what it holds, or does not take a training's last lines.
LAST_LINES_SECONDS = 2.0


def vote_for(number: int | None) -> float:
    """The vote of a process that a signal has asked to stop; 0 for no signal. Votes are summed over processes."""
    return 0.0 if number is None else float(MOST_VOTES ** STOP_SIGNALS.index(signal.Signals(number)))


def voted_signal(votes: float) -> int | None:
    """A signal that some process voted for; None if nobody did."""
    for place, number in enumerate(STOP_SIGNALS):
        if int(votes) // MOST_VOTES**place % MOST_VOTES:
            return number
    return None


def voted_name(votes: float) -> str:
    """The name of a signal that some process voted for."""
    number = voted_signal(votes)
    assert number is not None, "somebody voted"
    return signal.Signals(number).name


def who_was_asked(world: World, asked: Sequence[bool]) -> str:
    """Which processes a signal has reached, given that for each rank, in words."""
    ranks = [rank for rank, reached in enumerate(asked) if reached]
    hosts = ", ".join(dict.fromkeys(world.host_names[world.host_of(rank)] for rank in ranks))
    were = "were" if len(ranks) > 1 else "was"
    return f"{rank_list(ranks)} on {hosts} {were} asked to stop; all have stopped together"


class SaveAndStop(SignalPlan):
    """The first signal is a wish that all processes vote on; a second one or the deadline ends this process alone.

    Half-way to the deadline the last whole step is saved, in case the main thread does not come back: it may wait for a
    process that hangs, or for another one's share of an evaluation.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._seconds = trainer.config.train.stop_seconds

    def answer(self, number: int, wait: Wait) -> None:
        trainer = self._trainer
        # What is looked up, recorded and said at the end takes time, too.
        deadline = time.monotonic() + self._seconds - min(2 * LAST_LINES_SECONDS + SAY_SECONDS, self._seconds / 10)
        trainer.stop_by, trainer.stop_signal = deadline, number
        again = wait(0.0 if kills_after_a_second() else self._seconds / 2)
        saving = threading.Thread(target=trainer.emergency_save, daemon=True)
        saving.start()
        if again is None:
            wait(deadline - time.monotonic())
        while saving.is_alive() and time.monotonic() < deadline and wait(0.05) is None:
            pass
        end_at_once(trainer, number)


def end_at_once(trainer: Trainer, number: int) -> NoReturn:
    """End a process that was asked to stop and cannot wait for the others any more; what it can save is saved."""
    name, left = signal.Signals(number).name, _checkpoint_left(trainer)

    def record() -> None:
        progress = trainer.state.progress
        ended = Ended(
            step=progress.step,
            reason=ASKED_TO_STOP,
            **progress.as_told(),
            seconds={},
            signal=name,
            at_once=True,
        )
        with suppress(Exception):
            trainer.recorder.record(ended)
            trainer.recorder.close()

    within(LAST_LINES_SECONDS, record)
    alone = " without the other processes" if trainer.world.size > 1 else ""
    end_by(number, f"stopped by {name}{alone}; {left}")


def _checkpoint_left(trainer: Trainer) -> str:
    """What is left of the run, as far as its disk tells in time: one that hangs must not make a process deaf."""
    known = ["the same command goes on from the newest checkpoint"]

    def look() -> None:
        with suppress(Exception):
            known.append(trainer.checkpoint_left())

    within(LAST_LINES_SECONDS, look)
    return known[-1]
