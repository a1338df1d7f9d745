"""Which checkpoint a run continues from: the newest that is whole and that all hosts can resume."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from tandem.cluster.world import World
from tandem.monitor.records import CONTINUING_FROM
from tandem.training.checkpoints.checkpoint import INCOMPLETE, Checkpoint
from tandem.training.checkpoints.checkpoint_store import CheckpointStore, damaged_checkpoints


def find_checkpoint(
    world: World,
    store: CheckpointStore,
    can_resume: Callable[[int], bool],
    notice: Callable[[str], None],
    *,
    before: int | None = None,
    newer: str = INCOMPLETE,
) -> Checkpoint | None:
    """The checkpoint to continue from, in the first process; all processes look for it together.

    `can_resume` says whether this host has what it keeps for itself at a step. If no checkpoint has that of all hosts,
    it is the newest whole one of which all hosts had their parts once: what they have lost since cannot be helped. From
    any other the run would not end with the same bits, but from its beginning it does.
    What is passed over is said, in steps, and put aside, under a name that begins with `newer` if it is not damaged.
    With `before` only older ones than that step are looked at.
    """
    damaged: dict[int, str] = {}
    passed_over: dict[int, str] = {}
    candidates: Iterator[Checkpoint] = store.whole(damaged, before) if world.is_leader else iter(())
    newest, chosen = None, None
    while chosen is None:
        found = world.together(lambda: next(candidates, None))
        step = world.broadcast(None if found is None else found.step)
        if step is None:
            break
        if found is not None and store.is_settled(found.step):
            newest = newest or found
        # Each host looks at its own disk, and perhaps into the mirror: an error of one is an error of all.
        able = world.together(partial(can_resume, step))
        lacking = {world.host_of(rank) for rank, each in enumerate(world.gather(able)) if not each}
        if not lacking:
            chosen = found
            break
        names = ", ".join(world.host_names[host] for host in sorted(lacking))
        passed_over[step] = f"cannot be resumed exactly: {names} lacks the exchange's state of that step"
    # Only the first process has read any of them, and knows what is gone back from.
    if world.is_leader:
        chosen = chosen or newest
    world.together(lambda: _go_back(store, chosen, damaged, passed_over, notice, newer) if world.is_leader else None)
    return chosen


def taken_again(steps: int) -> str:
    """What going back by so many steps costs, in words."""
    return f"{steps:,} steps are taken again" if steps > 1 else "1 step is taken again"


def _go_back(
    store: CheckpointStore,
    chosen: Checkpoint | None,
    damaged: dict[int, str],
    passed_over: dict[int, str],
    notice: Callable[[str], None],
    name: str,
) -> None:
    """Put aside what is newer than the chosen one, and say what that costs."""
    if chosen is None:
        if damaged:
            raise damaged_checkpoints(store.last_directory, list(damaged.values()))
        if passed_over:
            notice("no checkpoint can be resumed exactly; the run begins again")
        store.go_back_to(0, (), name)
        return
    reasons = passed_over | {step: f"is damaged ({why})" for step, why in damaged.items()}
    newer = {step: why for step, why in sorted(reasons.items(), reverse=True) if step > chosen.step}
    if newer:
        said = "; ".join(f"the checkpoint of step {step:,} {why}" for step, why in newer.items())
        notice(f"{said}; {CONTINUING_FROM} {chosen.step:,}: {taken_again(max(newer) - chosen.step)}")
    store.go_back_to(chosen.step, damaged, name)
