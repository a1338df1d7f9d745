"""What a reader of a comparison must keep in mind: how much so few runs, seeds and comparisons can tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tandem.comparing.comparison import Group
from tandem.comparing.translate_systems import Translated
from tandem.comparing.verdict_words import FEW_SEEDS


def remarks(translated: Sequence[Translated], groups: Sequence[Group]) -> Iterator[str]:
    """The remarks on a comparison, a sentence or two each."""
    yield from _on_seeds(groups)
    if len(groups) > 2:
        yield (
            f"{len(groups) - 1} others are compared with {groups[0].title}: among so many, one in twenty looks "
            "different by chance alone."
        )
    for each in translated:
        if each.not_kept:
            yield (
                f"{each.system.directory}: its translations could not be kept there; the next comparison makes them "
                "again."
            )


def _on_seeds(groups: Sequence[Group]) -> Iterator[str]:
    several = [group for group in groups if len(group.members) > 1]
    if len(groups) == 1:
        yield (
            "These runs differ by their seed alone: a difference between them shows how much a seed does, and not "
            "that one of them was made in a better way."
        )
    elif not several and any(group.seeds for group in groups):
        yield (
            "One run of each: the tests say which of these models translates such sentences better, and not which "
            "settings do; another seed may move a score by as much. Runs that differ by train.seed alone are taken "
            "together."
        )
    for group in several:
        if len(group.members) < FEW_SEEDS:
            yield (
                f"{len(group.members)} seeds tell little of how far the runs of {group.name} spread; {FEW_SEEDS} would "
                "tell more."
            )
    for group in groups if several else ():
        if len(group.members) == 1:
            yield f"Of {group.name} there is one: it is taken to spread from seed to seed as the other runs do."
