"""Scores with their signatures and intervals."""

from __future__ import annotations

import pytest
from sacrebleu import corpus_bleu, corpus_chrf, corpus_ter

from tandem.errors import TandemError
from tandem.scoring import bleu_score, score_all

REFERENCES = [f"Der alte Mann liest ein Buch über {thing}." for thing in ("Hunde", "Katzen", "Autos", "Berge")]
HYPOTHESES = [*REFERENCES[:2], "Ein Mann liest ein Buch über Autos.", "Der Mann mag Berge."]


def test_values_are_sacrebleus_own() -> None:
    bleu, chrf, ter = score_all(HYPOTHESES, REFERENCES)
    assert bleu.value == bleu_score(HYPOTHESES, REFERENCES)[0] == corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert chrf.value == corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert ter.value == corpus_ter(HYPOTHESES, [REFERENCES]).score
    assert [score.metric for score in (bleu, chrf, ter)] == ["BLEU", "chrF2", "TER"]
    assert all("bs:1000|seed:12345" in score.signature for score in (bleu, chrf, ter))


def test_the_interval_is_wide_where_sentences_differ_and_empty_where_they_do_not() -> None:
    assert all(score.interval > 1 for score in score_all(HYPOTHESES, REFERENCES))
    bleu = score_all(REFERENCES, REFERENCES)[0]
    assert [bleu.value, bleu.mean] == pytest.approx([100, 100])
    assert bleu.interval == pytest.approx(0)
    assert str(bleu) == "BLEU 100.00, 95 % within 100.00 ± 0.00"


def test_lines_must_match() -> None:
    with pytest.raises(TandemError, match="3 translations for 4 references; give a line for each"):
        score_all(HYPOTHESES[:3], REFERENCES)
    with pytest.raises(TandemError, match="no lines to score"):
        score_all([], [])
