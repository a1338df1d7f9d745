"""Trials of the promise that stopping changes nothing: a training is killed several times, and ends as if it was not.

Every instant follows from the seed, the strategy and the number of the trial, so that any trial can be repeated;
where it falls inside of a kernel or a message still depends on the machine.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tandem.layout import RunPaths, checkpoint_directories, journal_name
from testbed.faults.comparison import differences
from testbed.faults.places import EVALUATION, JOINING, PRUNE, START_UP, STEP, WRITE, Trap
from testbed.faults.session import Kill, SessionEnd, Site, run_session
from testbed.journals import read_journal
from testbed.tiny_training import TINY_MODEL

HOSTS = 2
LAST_STEP, SAVE_EVERY, EVALUATE_EVERY = 12, 4, 3
SETTINGS = (
    *TINY_MODEL,
    f"train.max_steps={LAST_STEP}",
    "train.log_every=2",
    f"evaluation.every_steps={EVALUATE_EVERY}",
    f"checkpoint.every_steps={SAVE_EVERY}",
    "checkpoint.keep_last=1",
    "checkpoint.keep_best=2",
)
STRATEGIES = {
    **{kind: (f"exchange.kind={kind}",) for kind in ("allreduce", "bf16", "int4", "powersgd")},
    # Two steps together, then rounds of two: hosts are in step again when a checkpoint is due.
    "diloco": ("exchange.kind=diloco", "exchange.start_steps=2", "exchange.local_steps=2"),
}
KILLS_A_TRIAL = 5
ANYWHERE = "anywhere"
# Each is drawn as often as any other.
AIMS = (START_UP, JOINING, STEP, EVALUATION, WRITE, PRUNE, ANYWHERE)


@dataclass(frozen=True)
class Struck:
    """One kill: what was aimed at, and where it hit."""

    kill: Kill
    place: str
    hung: bool
    """Whether those that were left had to be killed, too."""


@dataclass
class TrialEnd:
    """How a training that was killed some times has ended."""

    strategy: str
    number: int
    struck: list[Struck] = field(default_factory=list)
    steps_repeated: list[int] = field(default_factory=list)
    """Steps that were taken again after each kill that hit a session which had begun to train."""
    wrong: list[str] = field(default_factory=list)
    """What differs from the training left alone, or failed; nothing if all is well."""


class Trials:
    """Trials of one strategy: the training left alone, and any number that are killed."""

    def __init__(self, directory: Path, corpus: Path, strategy: str, seed: int) -> None:
        self._directory, self._corpus, self._strategy, self._seed = directory, corpus, strategy, seed
        self._alone = self._site("alone", own_disks=False)
        # From processes that start as a user's do, so that the forks are compared with those, too.
        end = run_session(self._alone, None, fresh=True)
        assert end.well, f"the training left alone failed ({end.codes}): {end.output}"
        self._usual = end.notes
        """How often and how long each process is in which place if nobody disturbs it."""

    def run(self, number: int, kills: int, aims: Sequence[str] | None = None) -> TrialEnd:
        """Train with up to so many kills on the way, in places that the seed chooses or in the given ones; compare."""
        random = Random(f"{self._seed} {self._strategy} {number}")
        site = self._site(f"trial-{number}", own_disks=bool(number % 2))
        ended = TrialEnd(self._strategy, number)
        reached: list[int] = []
        """The step that each session had come to, for those that had begun to train."""
        for aim in aims or [random.choice(AIMS) for _ in range(kills)]:
            kill = Kill.parse(aim) or self._kill(random, aim, _begun(site))
            end = run_session(site, kill)
            if not end.killed:
                ended.wrong += _faults(end, f"not killed ({kill})")
                break
            starts = _starts(site)
            if len(starts) > len(reached):
                reached.append(starts[-1] + end.steps)
            ended.struck.append(Struck(kill, end.place, end.hung))
        last = run_session(site, None)
        ended.wrong += _faults(last, "started again")
        if not ended.wrong:
            ended.steps_repeated = [before - after for before, after in zip(reached, _starts(site)[1:], strict=False)]
            ended.wrong += differences(self._alone.runs, site.runs, LAST_STEP)
        if not ended.wrong:
            shutil.rmtree(site.scratch.parent)
        return ended

    def _site(self, name: str, own_disks: bool) -> Site:
        place = self._directory / self._strategy / name
        shutil.rmtree(place, ignore_errors=True)
        runs = [place / (f"run-{rank}" if own_disks else "run") for rank in range(HOSTS)]
        return Site(runs, self._corpus, (*SETTINGS, *STRATEGIES[self._strategy]), place / "scratch")

    def _kill(self, random: Random, aim: str, begun: int) -> Kill:
        """An instant in a place that a session from this step on comes to."""
        victim, everybody = random.randrange(HOSTS), random.random() < 0.5
        part = random.random()
        usual = self._usual[victim]
        if aim == ANYWHERE:
            seconds = sum(usual.seconds(place) * usual.finished(place) for place in (JOINING, STEP, EVALUATION, WRITE))
            return Kill(victim, everybody, None, delay=part * seconds)
        if aim == START_UP:
            operation = 1 + int(part * (usual.operations(START_UP) - 1))
            return Kill(victim, everybody, Trap(START_UP, operation=operation), fresh=True)
        if not usual.finished(aim):
            # Only the first process writes checkpoints; the others do where a strategy keeps state for each host.
            victim, usual = 0, self._usual[0]
        visits = max(usual.finished(aim) * (LAST_STEP - begun) // LAST_STEP, 1)
        visit = random.randint(1, visits)
        if aim == PRUNE or (aim == WRITE and random.random() < 0.5):
            return Kill(victim, everybody, Trap(aim, visit, operation=int(part * (usual.operations(aim) + 1))))
        # The one that comes last to a meeting does not wait there.
        seconds = min(each.seconds(aim) for each in self._usual) if aim == JOINING else usual.seconds(aim)
        return Kill(victim, everybody, Trap(aim, visit), delay=part * seconds)


def _begun(site: Site) -> int:
    """The step that the next session is likely to continue after, going by the checkpoints."""
    return max(checkpoint_directories(RunPaths(site.runs[0]).checkpoints), default=0)


def _starts(site: Site) -> list[int]:
    """The step that each session has continued after."""
    journal = RunPaths(site.runs[0]).journals / journal_name(0)
    records = read_journal(journal) if journal.exists() else ()
    return [record["step"] for record in records if record["kind"] == "started"]


def _faults(end: SessionEnd, what: str) -> list[str]:
    hung = " (hung)" if end.hung else ""
    return [] if end.well else [f"{what}: exit codes {list(end.codes)}{hung}: {end.output}"]
