"""A comparison as real runs would give: two groups of seeds and an export, hostile names, long words, curves."""

from __future__ import annotations

import numpy as np

from tandem.comparing.comparison import (
    Comparison,
    Contrast,
    Group,
    MetricDifference,
    MetricSpread,
    ScoredSystem,
    SentenceDifference,
    SettingRow,
    Verdict,
)
from tandem.comparing.seed_spread import compare_groups
from tandem.comparing.verdict_words import difference_words, headline
from tandem.reporting.answers import Chart, Trace
from tandem.reporting.run_record import Curve
from tandem.scoring import Score

HOSTILE = """</script><script>alert("x")</script><img src=x onerror='alert(1)'> & $title"""
SIGNATURE = "nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
NAMES = ("base-1", "base-2", "deeper-1", "deeper-2", "exported/en-de-int8")
SEEDS = (1, 2, 1, 2, None)
SENTENCES = 1014
SCORES = {
    "BLEU": (34.1, 34.5, 35.6, 35.9, 34.2),
    "chrF2": (58.0, 58.1, 58.3, 58.0, 57.9),
    "TER": (47.7, 47.4, 46.1, 46.0, 47.6),
}
BASE = Group(name="base", members=NAMES[:2], seeds=(1, 2), spreads=())
STEPS = np.arange(500.0, 20_001.0, 500.0)


def sample_comparison(text: str = "Ein Mann liest ein Buch.") -> Comparison:
    """The whole of it, the same every time; `text` stands wherever a user's own words do."""
    groups = (BASE, Group(name="deeper", members=NAMES[2:4], seeds=(1, 2)), Group(name=NAMES[4], members=NAMES[4:]))
    return Comparison(
        version="0.1.0",
        made="2026-11-16T03:30:00+00:00",
        test_set=f"test set of {text}",
        sentences=SENTENCES,
        languages=("en", "de"),
        systems=tuple(scored(place, name, text) for place, name in enumerate(NAMES)),
        groups=tuple(with_spreads(group) for group in groups),
        contrasts=tuple(contrast(other, text) for other in groups[1:]),
        settings=(
            SettingRow(key="train.seed", values=("1", "2", "1", "2", None)),
            SettingRow(key="model.encoder_layers", values=("3", "3", "6", "6", None)),
            SettingRow(key="corpus", values=(text, text, text, text, None)),
        ),
        remarks=("2 seeds tell little of how far the runs of base spread; 5 would tell more.", text),
        charts=curves(),
    )


def scored(place: int, name: str, text: str) -> ScoredSystem:
    return ScoredSystem(
        name=name,
        kind="run" if SEEDS[place] else "export",
        path=f"runs/{text}",
        checkpoint="best, step 19,500",
        step=19_500,
        seed=SEEDS[place],
        engine="ctranslate2",
        translated=bool(place),
        scores=tuple(Score(metric, values[place], values[place], 1.02, SIGNATURE) for metric, values in SCORES.items()),
    )


def scores_of(group: Group, metric: str) -> list[float]:
    return [SCORES[metric][NAMES.index(name)] for name in group.members]


def with_spreads(group: Group) -> Group:
    spreads = []
    for metric in SCORES:
        found = scores_of(group, metric)
        deviation = float(np.std(found, ddof=1)) if len(found) > 1 else None
        spreads.append(MetricSpread(metric=metric, mean=float(np.mean(found)), deviation=deviation))
    return Group(name=group.name, members=group.members, seeds=group.seeds, spreads=tuple(spreads))


def contrast(other: Group, text: str) -> Contrast:
    found = tuple(difference(metric, other) for metric in SCORES)
    verdict, words = headline(BASE, other, found, SENTENCES)
    return Contrast(
        first=BASE,
        second=other,
        verdict=verdict,
        headline=words,
        differences=found,
        words=tuple(difference_words(each, BASE, other, SENTENCES) for each in found),
        gained=(
            SentenceDifference(
                number=17,
                source="A man reads a book about compilers.",
                reference="Ein Mann liest ein Buch über Übersetzer.",
                first="Ein Mann " + "immer" * 40,
                second="Ein Mann liest ein Buch über Übersetzer.",
                first_chrf=21.4,
                second_chrf=100.0,
            ),
        ),
        lost=(
            SentenceDifference(
                number=1001, source=text, reference=text, first=text, second="", first_chrf=100.0, second_chrf=0.0
            ),
        ),
    )


def difference(metric: str, other: Group) -> MetricDifference:
    one, two = scores_of(BASE, metric), scores_of(other, metric)
    found = float(np.mean(two) - np.mean(one))
    verdict: Verdict = "better" if abs(found) > 1 else "unclear"
    return MetricDifference(
        metric=metric,
        difference=found,
        low=found - 0.4,
        high=found + 0.5,
        p_bootstrap=0.004 if verdict == "better" else 0.31,
        p_randomisation=None,
        seeds=compare_groups(one, two),
        lower_is_better=metric == "TER",
        signature=SIGNATURE,
        verdict=verdict,
    )


def curves() -> tuple[Chart, ...]:
    losses = [
        Trace(name=name, curve=Curve(STEPS, 1.5 + 0.1 * place + 4 * np.exp(-STEPS / 3000)))
        for place, name in enumerate(NAMES[:4])
    ]
    scores = [
        Trace(name=name, curve=Curve(STEPS, (34 + place / 2) * (1 - np.exp(-STEPS / 4000))))
        for place, name in enumerate(NAMES[:4])
    ]
    return (
        Chart(id="eval_loss", title="Evaluation loss", y_label="nats per token", traces=tuple(losses)),
        Chart(id="bleu", title="BLEU on dev", y_label="BLEU", traces=tuple(scores), note=SIGNATURE),
    )
