"""Compares models: finds them, translates the test set, tests the differences, and gathers what explains them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

import tandem
from tandem.comparing.comparison import (
    Comparison,
    Contrast,
    Group,
    MetricDifference,
    MetricSpread,
    ScoredSystem,
)
from tandem.comparing.remarks import remarks
from tandem.comparing.run_curves import curve_charts, unfinished
from tandem.comparing.seed_groups import group_by_seed, group_names
from tandem.comparing.seed_spread import compare_groups, spread_of
from tandem.comparing.sentence_differences import most_different
from tandem.comparing.setting_rows import setting_rows
from tandem.comparing.significance import MEASURES, Measure, Statistics, bootstrap, randomisation, signature
from tandem.comparing.systems import System, find_systems
from tandem.comparing.test_text import TestText, common_text, given_text
from tandem.comparing.translate_systems import Translated, translate_systems
from tandem.comparing.verdict_words import difference_words, headline, judge, p_values
from tandem.corpus.progress import ProgressCallback, no_progress
from tandem.errors import TandemError
from tandem.reporting.formats.find_run import read_run
from tandem.scoring import score_all
from tandem.translation.translator import EngineChoice

SENTENCES = 5
"""Sentences shown for each direction of each pair."""


def compare(
    models: Sequence[str | Path],
    overrides: Sequence[str] = (),
    *,
    split: str | None = None,
    test: tuple[str | Path, str | Path] | None = None,
    engine: EngineChoice = "auto",
    sentences: int = SENTENCES,
    progress: ProgressCallback = no_progress,
) -> Comparison:
    """Compare runs, checkpoints, exported models and files of translations with the first of them.

    The test set is that of the runs' corpora, another `split` of them, or the source and reference given as `test`.
    """
    if test is not None and split is not None:
        raise TandemError("--test gives a test set, --split names one: give one or the other")
    # A text that is not there should not cost the reading of weights.
    given = None if test is None else given_text(Path(test[0]), Path(test[1]))
    systems = find_systems([Path(model) for model in models], overrides)
    text = common_text(systems, split) if given is None else given
    translated = translate_systems(systems, text, engine, progress)
    measured = _measure(translated, text, progress)
    parts = group_by_seed(systems)
    groups = [_group(name, members, measured) for name, members in zip(group_names(parts), parts, strict=True)]
    # Of one group alone, the members are compared: there is nothing else.
    sides = groups if len(groups) > 1 else [_group(system.name, [system], measured) for system in systems]
    lines = {each.system.name: each.lines for each in translated}
    contrasts = []
    for side in sides[1:]:
        contrasts.append(_contrast(sides[0], side, measured, lines, text, sentences))
        progress("test differences", len(contrasts), len(sides) - 1)
    records = {system.name: read_run(system.directory) for system in systems if system.run is not None}
    return Comparison(
        version=tandem.__version__,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        test_set=text.name,
        sentences=len(text.sources),
        languages=next((system.languages for system in systems if system.languages), None),
        systems=tuple(_scored(each, text) for each in translated),
        groups=tuple(groups),
        contrasts=tuple(contrasts),
        settings=setting_rows(systems),
        remarks=(*text.remarks, *remarks(translated, groups), *unfinished(records)),
        charts=curve_charts(records, {system.run.corpus_digest for system in systems if system.run is not None}),
    )


Measured = Mapping[str, Sequence[Statistics]]
"""Statistics of each system, a metric each."""


def _measure(translated: Sequence[Translated], text: TestText, progress: ProgressCallback) -> Measured:
    found: dict[str, list[Statistics]] = {}
    for done, each in enumerate(translated, 1):
        found[each.system.name] = [Statistics.of(measure, each.lines, text.references) for measure in MEASURES]
        progress("score", done, len(translated))
    return found


def _scored(each: Translated, text: TestText) -> ScoredSystem:
    system = each.system
    step = "" if system.step is None else f"step {system.step:,}"
    return ScoredSystem(
        name=system.name,
        kind=system.kind,
        path=str(system.directory),
        checkpoint=step if system.choice in ("", step) else f"{system.choice}, {step}",
        step=system.step,
        seed=system.seed,
        engine=each.engine,
        translated=each.made_now,
        scores=tuple(score_all(each.lines, text.references)),
    )


def _group(name: str, members: Sequence[System], measured: Measured) -> Group:
    spreads = []
    for place, measure in enumerate(MEASURES):
        scores = [measured[member.name][place].whole for member in members]
        deviation = spread_of(scores) if len(members) > 1 else None
        spreads.append(MetricSpread(metric=measure.name, mean=fmean(scores), deviation=deviation))
    return Group(
        name=name,
        members=tuple(member.name for member in members),
        seeds=tuple(member.seed for member in members if member.seed is not None),
        spreads=tuple(spreads),
    )


def _contrast(
    first: Group, second: Group, measured: Measured, lines: Mapping[str, Sequence[str]], text: TestText, most: int
) -> Contrast:
    differences = []
    for place, measure in enumerate(MEASURES):
        sides = [[measured[name][place] for name in group.members] for group in (first, second)]
        alike = all(lines[name] == lines[first.members[0]] for name in (*first.members, *second.members))
        differences.append(_difference(measure, sides, alike))
    verdict, words = headline(first, second, differences, len(text.sources))
    gained, lost = most_different(text, lines[first.members[0]], lines[second.members[0]], most)
    return Contrast(
        first=first,
        second=second,
        verdict=verdict,
        headline=words,
        differences=tuple(differences),
        words=tuple(difference_words(found, first, second, len(text.sources)) for found in differences),
        gained=gained,
        lost=lost,
    )


def _difference(measure: Measure, sides: Sequence[Sequence[Statistics]], alike: bool) -> MetricDifference:
    one, other = ([statistics.whole for statistics in side] for side in sides)
    seeds = compare_groups(one, other)
    resampled = bootstrap(*sides)
    p_randomisation = randomisation(sides[0][0], sides[1][0]) if seeds is None else None
    difference = fmean(other) - fmean(one)
    return MetricDifference(
        metric=measure.name,
        difference=difference,
        low=resampled.low,
        high=resampled.high,
        p_bootstrap=resampled.p,
        p_randomisation=p_randomisation,
        seeds=seeds,
        lower_is_better=measure.lower_is_better,
        signature=signature(sides[0][0], with_randomisation=p_randomisation is not None),
        verdict=judge(
            difference,
            p_values(resampled.p, p_randomisation, seeds),
            lower_is_better=measure.lower_is_better,
            alike=alike,
        ),
    )
