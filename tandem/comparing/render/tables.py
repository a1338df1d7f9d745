"""The tables of a comparison as rows of text, which all renderings share."""

from __future__ import annotations

from dataclasses import dataclass

from tandem.comparing.comparison import Comparison, Contrast, MetricDifference
from tandem.comparing.verdict_words import signed

NOTHING = "\N{EN DASH}"


@dataclass(frozen=True)
class Table:
    """Rows of text below a header; the first column names what a row is about."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: bool = True
    """Whether all but the first column are numbers, which stand to the right."""


def title(comparison: Comparison) -> str:
    """What is compared with what."""
    first, *others = [contrast.second.name for contrast in comparison.contrasts]
    against = comparison.contrasts[0].first.name
    return f"{first} and {len(others)} more against {against}" if others else f"{first} against {against}"


def text_words(comparison: Comparison) -> str:
    """The test set: its name, size and languages."""
    languages = "" if comparison.languages is None else f", {' to '.join(comparison.languages)}"
    return f"{comparison.test_set}: {comparison.sentences:,} sentences{languages}"


def scores_table(comparison: Comparison) -> Table:
    """Each system with its scores, and half the width of their bootstrap intervals."""
    metrics = [score.metric for score in comparison.systems[0].scores]
    rows = [
        (system.name, *(f"{score.value:.2f} ± {score.interval:.2f}" for score in system.scores))
        for system in comparison.systems
    ]
    return Table(("", *metrics), tuple(rows))


def score_signatures(comparison: Comparison) -> dict[str, str]:
    """How each metric was computed."""
    return {score.metric: score.signature for score in comparison.systems[0].scores}


def all_signatures(comparison: Comparison) -> dict[str, str]:
    """The same, and how each difference was tested."""
    tests = {f"{found.metric}, differences": found.signature for found in comparison.contrasts[0].differences}
    return score_signatures(comparison) | tests


def systems_table(comparison: Comparison) -> Table:
    """Where each system is, and what translated."""
    rows = []
    for system in comparison.systems:
        how = "given" if system.engine is None else f"{system.engine}, {'now' if system.translated else 'kept'}"
        rows.append((system.name, system.kind, system.checkpoint or NOTHING, how, system.path))
    return Table(("", "kind", "checkpoint", "translations", "path"), tuple(rows), numbers=False)


def seeds_table(comparison: Comparison) -> Table | None:
    """Mean and standard deviation over the seeds of each group; None where no group has several runs."""
    if all(len(group.members) == 1 for group in comparison.groups):
        return None
    rows = []
    for group in comparison.groups:
        cells = [
            f"{found.mean:.2f}" + ("" if found.deviation is None else f" ± {found.deviation:.2f}")
            for found in group.spreads
        ]
        rows.append((group.title, *cells, ", ".join(map(str, group.seeds)) or NOTHING))
    metrics = [found.metric for found in comparison.groups[0].spreads]
    return Table(("", *metrics, "seeds"), tuple(rows))


def p_values_table(contrast: Contrast) -> Table:
    """Each metric's difference with its interval and p values."""
    by_seeds = any(found.seeds for found in contrast.differences)
    rows = []
    for found in contrast.differences:
        p_values = [found.p_randomisation] if found.seeds is None else [found.seeds.p]
        cells = [f"{p:.4f}" if p is not None else NOTHING for p in (*p_values, found.p_bootstrap)]
        rows.append((found.metric, signed(found.difference), interval_words(found), *cells))
    test = "p by seeds" if by_seeds else "p by randomisation"
    return Table(("", "difference", "95 % between", test, "p by bootstrap"), tuple(rows))


def settings_table(comparison: Comparison) -> Table | None:
    """What is not the same of the systems; None if everything is."""
    if not comparison.settings:
        return None
    header = ("", *(system.name for system in comparison.systems))
    rows = [(row.key, *(value or NOTHING for value in row.values)) for row in comparison.settings]
    return Table(header, tuple(rows), numbers=False)


def interval_words(found: MetricDifference) -> str:
    return f"{signed(found.low)} and {signed(found.high)}"
