"""Scores with their signatures and intervals."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from sacrebleu import corpus_bleu, corpus_chrf, corpus_ter

from tandem.errors import TandemError
from tandem.scoring import bleu_score, metric_score, score_all

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


def test_lower_cased_bleu_says_so() -> None:
    shouted = [line.upper() for line in HYPOTHESES]
    assert metric_score("bleu", shouted, REFERENCES)[0] < 20
    value, signature = metric_score("bleu_lc", shouted, REFERENCES)
    assert value == pytest.approx(corpus_bleu(HYPOTHESES, [REFERENCES], lowercase=True).score)
    assert "|case:lc|eff:no|tok:13a|" in signature
    (score,) = score_all(shouted, REFERENCES, metrics=["bleu_lc"])
    assert str(score).startswith("lower-cased BLEU ")


def test_tokenised_bleu_says_what_was_tokenised_how() -> None:
    """As `tokenizer.perl -l de | multi-bleu.perl -lc` counts: full stop, comma and quotation marks are tokens."""
    pytest.importorskip("sacremoses", reason="the extra moses is not installed")
    references = ["„Das ist z.B. ein Haus“, sagt er.", "Der Hund schläft im 3. Stock."]
    hypotheses = ["„das ist z.B. ein Haus“, sagte er.", "Der Hund schläft im 3. Stock."]
    cut = [
        ["„ das ist z.b. ein haus “ , sagt er .", "der hund schläft im 3. stock ."],
        ["„ das ist z.b. ein haus “ , sagte er .", "der hund schläft im 3. stock ."],
    ]
    expected = corpus_bleu(cut[1], [cut[0]], tokenize="none", smooth_method="none", force=True).score
    value, signature = metric_score("bleu_lc_tok", hypotheses, references, "de")
    assert value == pytest.approx(expected)
    assert f"case:lc|eff:no|tok:moses-de-sacremoses-{version('sacremoses')}|smooth:none" in signature
    (score,) = score_all(hypotheses, references, metrics=["bleu_lc_tok"], language="de")
    assert str(score).startswith("lower-cased tokenised BLEU ")
    assert score.signature.startswith("nrefs:1|bs:1000|seed:12345|case:lc")


def test_faults_of_metrics_are_one_sentence() -> None:
    with pytest.raises(TandemError, match="must know the target language; give it"):
        metric_score("bleu_lc_tok", HYPOTHESES, REFERENCES)
    with pytest.raises(TandemError, match="meteor: no metric of that name; choose from bleu, chrf"):
        score_all(HYPOTHESES, REFERENCES, metrics=["meteor"])
