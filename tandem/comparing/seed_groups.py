"""Runs put into groups: those that differ by nothing but their seed belong together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import takewhile

from tandem.comparing.systems import System
from tandem.config import Config

WITHOUT_EFFECT = (
    *("cluster.", "monitor.", "checkpoint.every_steps", "checkpoint.keep_", "checkpoint.mirror"),
    *("evaluation.samples", "evaluation.metrics", "evaluation.dev_sets"),
    *("batch.split_when_full", "search.batch_sentences"),
    *("train.log_every", "train.stop_seconds", "train.on_preemption_notice"),
)
"""Settings that change nothing of what a run learns, of which checkpoint is its best, or of how its model searches."""
SEED = "train.seed"
_SEPARATORS = " -_./"


def settings_of(config: Config) -> dict[str, object]:
    """Every setting by its full name."""
    tree = config.model_dump(mode="json")
    return {f"{section}.{key}": value for section, settings in tree.items() for key, value in settings.items()}


def group_by_seed(systems: Sequence[System]) -> list[list[System]]:
    """Systems in groups, in the order of their first members; no group has a seed twice."""
    groups: list[tuple[str, list[System]]] = []
    for system in systems:
        recipe = _recipe(system)
        for known, members in groups:
            if recipe and known == recipe and system.seed not in [member.seed for member in members]:
                members.append(system)
                break
        else:
            groups.append((recipe, [system]))
    return [members for _, members in groups]


def group_names(groups: Sequence[Sequence[System]]) -> list[str]:
    """What the members' names of each group have in common; that of the first where this is no name by itself."""
    found = [_common([member.name for member in members]) for members in groups]
    return [
        name if name and found.count(name) == 1 else members[0].name
        for name, members in zip(found, groups, strict=True)
    ]


def _common(names: Sequence[str]) -> str:
    """The beginning that all names have in common, or else the ends of their paths; empty if that is nothing."""
    if len(names) == 1:
        return names[0]
    return _beginning(names) or _beginning([name.rpartition("/")[2] for name in names])


def _beginning(names: Sequence[str]) -> str:
    letters = takewhile(lambda column: len(set(column)) == 1, zip(*names, strict=False))
    return "".join(column[0] for column in letters).rstrip(_SEPARATORS).removesuffix("seed").rstrip(_SEPARATORS)


def _recipe(system: System) -> str:
    """All that decides what a run becomes, save the seed; empty of what is no run."""
    run = system.run
    return "" if run is None else json.dumps([*_facts(system)], sort_keys=True)


def _facts(system: System) -> Iterator[object]:
    run = system.run
    assert run is not None
    for key, value in settings_of(run.config).items():
        if key != SEED and not key.startswith(WITHOUT_EFFECT):
            yield key, value
    yield run.corpus_digest, system.choice, None if run.origin is None else str(run.origin)
