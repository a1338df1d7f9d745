"""Two finished runs compared bit for bit: weights, optimizer, exchange state, best models, every measured number."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tandem.layout import MODEL_FILE, STATE_FILE, RunPaths, checkpoint_directories, checkpoint_name, journal_name
from testbed.journals import read_journal

# What a journal's record says of the model, and not of the clock.
MEASURED = {
    "progressed": ("train_loss", "objective", "learning_rate", "gradient_norm", "target_tokens"),
    "evaluated": ("eval_loss", "perplexity", "bleu", "signature", "sentences", "samples", "metrics"),
}


def differences(left: Sequence[Path], right: Sequence[Path], last_step: int) -> list[str]:
    """What differs between two runs, each given by its directory on every host; nothing if they ended alike."""
    return [*_file_differences(left, right, last_step), *_number_differences(left[0], right[0])]


def _file_differences(left: Sequence[Path], right: Sequence[Path], last_step: int) -> Iterator[str]:
    name = checkpoint_name(last_step)
    pairs = [(RunPaths(left[0]).checkpoints / name, RunPaths(right[0]).checkpoints / name)]
    for host, (mine, other) in enumerate(zip(left, right, strict=True)):
        states = RunPaths(mine).host_state(host) / name, RunPaths(other).host_state(host) / name
        if any(state.is_dir() for state in states):
            pairs.append(states)
    bests = [checkpoint_directories(RunPaths(runs[0]).best) for runs in (left, right)]
    if list(bests[0]) != list(bests[1]):
        yield f"best checkpoints are of steps {list(bests[0])} and {list(bests[1])}"
    pairs += [(bests[0][step], bests[1][step]) for step in bests[0] if step in bests[1]]
    for mine, other in pairs:
        yield from _checkpoint_differences(mine, other)


def _checkpoint_differences(left: Path, right: Path) -> Iterator[str]:
    for directory in (left, right):
        if not (directory / STATE_FILE).is_file():
            yield f"{directory} is missing"
            return
    states = [json.loads((directory / STATE_FILE).read_bytes()) for directory in (left, right)]
    numbers = [state["numbers"] for state in states]
    losses = [each.get("losses", {}).get("recent", []) for each in numbers]
    if _is_part(losses[1], losses[0]):
        numbers = [{name: number for name, number in each.items() if name != "losses"} for each in numbers]
    if numbers[0] != numbers[1]:
        yield f"{left / STATE_FILE}: numbers are {numbers[0]} and {numbers[1]}"
    for name in sorted({MODEL_FILE, *states[0]["files"], *states[1]["files"]} & {*_names(left), *_names(right)}):
        if not ((left / name).is_file() and (right / name).is_file()):
            yield f"{left / name} or {right / name} is missing"
        elif (left / name).read_bytes() != (right / name).read_bytes():
            yield f"{left / name} differs"


def _is_part(some: Sequence[float], all_of_them: Sequence[float]) -> bool:
    """Whether some losses are among others in the same order.

    Those of steps that were not summed over the processes by an emergency, when one of them is gone, nobody knows.
    """
    remaining = iter(all_of_them)
    return all(loss in remaining for loss in some)


def _names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def _number_differences(left: Path, right: Path) -> Iterator[str]:
    """Differences between what the first process measured; a step that was taken twice has to give the same twice."""
    expected: dict[tuple[str, int], Any] = {}
    for run in (left, right):
        for record in read_journal(RunPaths(run).journals / journal_name(0)):
            names = MEASURED.get(record["kind"])
            if names is None:
                continue
            key, numbers = (record["kind"], record["step"]), {name: record[name] for name in names}
            # Two lines over different numbers of steps do not compare: the first after a resume may be shorter.
            if record["kind"] == "evaluated":
                key = (f"evaluated on {record['split']}", record["step"])
            if record["kind"] == "progressed":
                key = (f"progressed over {record['steps']}", record["step"])
            if run == left:
                expected[key] = numbers
            elif expected.get(key, numbers) != numbers:
                yield f"{key[0]} at step {key[1]}: {expected[key]} and {numbers}"
