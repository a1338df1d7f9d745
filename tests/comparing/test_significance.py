"""Paired tests on sacreBLEU's statistics: the same figures as sacreBLEU where it has them, our own where it has not."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest, Result

from tandem.comparing.significance import (
    MEASURES,
    TRIALS,
    Statistics,
    bootstrap,
    randomisation,
    share_as_far,
    signature,
)
from tandem.scoring import RESAMPLINGS, SEED, score_all

THINGS = ["Hunde", "Katzen", "Autos", "Berge", "Bücher", "Häuser", "Bäume", "Wolken", "Schiffe", "Vögel"]
REFERENCES = [
    f"{who} {verb} {count} {thing} und {other}."
    for who, verb in (("Der alte Mann", "malt"), ("Eine Frau", "sieht"), ("Das Kind", "zählt heute"))
    for count in ("viele", "drei", "keine")
    for thing, other in pairwise(THINGS)
]


def spoiled(share: float, seed: int) -> list[str]:
    """Translations in which so many words are wrong."""
    chance = random.Random(seed)
    return [" ".join(word if chance.random() > share else "etwas" for word in line.split()) for line in REFERENCES]


FIRST, SECOND = spoiled(0.30, 1), spoiled(0.26, 2)


def statistics(hypotheses: list[str]) -> list[Statistics]:
    return [Statistics.of(measure, hypotheses, REFERENCES) for measure in MEASURES]


def p_value(result: str | Result) -> float:
    assert isinstance(result, Result)
    assert result.p_value is not None
    return result.p_value


def test_scores_are_those_of_the_scorer() -> None:
    assert [each.whole for each in statistics(FIRST)] == [score.value for score in score_all(FIRST, REFERENCES)]


def test_randomisation_gives_the_p_values_of_sacrebleu() -> None:
    metrics = {"BLEU": BLEU(), "chrF2": CHRF(), "TER": TER()}
    _, theirs = PairedTest([("a", FIRST), ("b", SECOND)], metrics, [REFERENCES], test_type="ar")()
    ours = [randomisation(one, other) for one, other in zip(statistics(FIRST), statistics(SECOND), strict=True)]
    expected = [p_value(theirs[name][1]) for name in metrics]
    assert ours[:2] == pytest.approx(expected[:2], abs=1e-9)
    # TER counts whole edits, so that many trials are exactly as far apart; sacreBLEU leaves those out.
    assert expected[2] < ours[2] < expected[2] + 0.1
    assert 0.001 < min(ours) < max(ours) < 0.5


@pytest.mark.slow
def test_randomisation_and_scores_are_those_of_sacrebleus_command_line(tmp_path: Path) -> None:
    for name, lines in (("ref", REFERENCES), ("a", FIRST), ("b", SECOND)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", "ref", "-i", "a", "b", "-m", "bleu", "chrf", "--paired-ar"]
    ended = subprocess.run([*command, "-f", "json"], cwd=tmp_path, capture_output=True, text=True, check=True)
    _, theirs = json.loads(ended.stdout)
    for one, other, name in zip(statistics(FIRST), statistics(SECOND), ("BLEU", "chrF2"), strict=False):
        assert other.whole == pytest.approx(theirs[name]["score"], abs=0.05)
        assert randomisation(one, other) == pytest.approx(theirs[name]["p_value"], abs=5e-5)


def test_the_bootstrap_resamples_as_sacrebleu_does() -> None:
    """From the same resamplings come the interval of the difference, by hand, and sacreBLEU's one-sided p value."""
    metric, few = BLEU(), slice(0, 25)
    references, sides = REFERENCES[few], (FIRST[few], SECOND[few])
    named: list[tuple[str, Sequence[str]]] = [("a", sides[0]), ("b", sides[1])]
    _, theirs = PairedTest(named, {"BLEU": metric}, [references], test_type="bs")()
    one, other = (Statistics.of(MEASURES[0], side, references) for side in sides)
    differences = []
    for chosen in np.random.default_rng(SEED).choice(25, size=(RESAMPLINGS, 25), replace=True):
        scores = [
            metric.corpus_score([side[index] for index in chosen], [[references[index] for index in chosen]]).score
            for side in sides
        ]
        differences.append(scores[1] - scores[0])
    found = bootstrap([one], [other])
    assert (found.low, found.high) == pytest.approx((sorted(differences)[25], sorted(differences)[-26]))
    real, distances = abs(other.whole - one.whole), np.abs(differences)
    one_sided = (np.sum(distances - distances.mean() > real) + 1) / (RESAMPLINGS + 1)
    assert one_sided == pytest.approx(p_value(theirs["BLEU"][1]))
    two_sided = (np.sum(np.abs(differences - np.mean(differences)) >= real) + 1) / (RESAMPLINGS + 1)
    assert found.p == pytest.approx(two_sided)


def test_a_group_is_resampled_by_its_mean() -> None:
    alone = bootstrap(statistics(FIRST)[:1], statistics(SECOND)[:1])
    twice = bootstrap([statistics(FIRST)[0]] * 2, statistics(SECOND)[:1])
    assert (twice.low, twice.high, twice.p) == pytest.approx((alone.low, alone.high, alone.p))


def test_the_same_translations_are_no_difference() -> None:
    """Where sacreBLEU would call it significant: no trial is further apart than not at all."""
    for one, other in zip(statistics(FIRST), statistics(FIRST), strict=True):
        found = bootstrap([one], [other])
        assert (found.low, found.high, found.p, randomisation(one, other)) == (0, 0, 1, 1)


def test_one_sentence_that_differs_tells_nothing() -> None:
    """Every trial that swaps it, or not, is exactly as far apart; such ties count as chance."""
    other = [*FIRST[:-1], REFERENCES[-1]]
    assert randomisation(statistics(FIRST)[0], statistics(other)[0]) == 1


def test_a_share_counts_the_difference_itself() -> None:
    assert share_as_far(np.array([0.1, 0.2, 0.3]), -0.2) == 3 / 4
    assert share_as_far(np.array([0.1, 0.1, 0.1]), 0.2) == 1 / 4


def test_the_signature_tells_the_tests() -> None:
    said = signature(statistics(FIRST)[0], with_randomisation=True)
    assert said.startswith(f"nrefs:1|bs:{RESAMPLINGS}|ar:{TRIALS}|seed:{SEED}|case:mixed|")
    assert "ar:" not in signature(statistics(FIRST)[0], with_randomisation=False)
