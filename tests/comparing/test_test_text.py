"""The test set: of the runs' corpora, or given; what does not fit is refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandem.comparing.systems import find_systems
from tandem.comparing.test_text import common_text, given_text, text_digest
from tandem.config import CorpusConfig
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.prepared import PreparedCorpus
from tandem.corpus.text_files import CorpusTexts
from tandem.errors import TandemError
from tests.comparing.conftest import Runs
from tests.comparing.copies import copied_run


def test_given_files_must_match(tmp_path: Path) -> None:
    for name, lines in (("two", 2), ("three", 3), ("none", 0)):
        (tmp_path / name).write_text("Hallo.\n" * lines)
    assert given_text(tmp_path / "two", tmp_path / "two").references == ["Hallo."] * 2
    with pytest.raises(TandemError, match=r"two has 2 lines, .*three 3; line n of one must be"):
        given_text(tmp_path / "two", tmp_path / "three")
    with pytest.raises(TandemError, match="no lines to translate"):
        given_text(tmp_path / "none", tmp_path / "none")
    with pytest.raises(TandemError, match="nowhere"):
        given_text(tmp_path / "nowhere", tmp_path / "two")


def test_no_two_texts_have_one_digest() -> None:
    assert len({text_digest(lines) for lines in ([], [""], ["a"], ["a", ""], ["a", "b"], ["ab"], ["b", "a"])}) == 7


def test_files_alone_have_no_test_set(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("Hallo.\n")
    with pytest.raises(TandemError, match="none of these is a run, whose corpus would have a test set; give the test"):
        common_text(find_systems([tmp_path / "a", tmp_path / "b"]), None)


@pytest.mark.slow
def test_the_splits_of_a_common_corpus(runs: Runs, tiny_corpus: PreparedCorpus) -> None:
    systems = find_systems([runs.first_seed, runs.other])
    text = common_text(systems, None)
    assert (text.name, len(text.sources)) == ("test set of corpus", 20)
    assert (text.sources, text.references) == tiny_corpus.text("test")
    assert common_text(systems, "dev").sources == tiny_corpus.text("dev")[0]
    with pytest.raises(TandemError, match="--split train: choose dev or test"):
        common_text(systems, "train")


@pytest.mark.slow
def test_a_corpus_that_is_gone_or_another(runs: Runs, demo_text: Path, tmp_path: Path) -> None:
    gone = copied_run(runs.other, tmp_path / "gone", corpus=str(tmp_path / "nothing"))
    assert len(common_text(find_systems([gone, runs.first_seed]), None).sources) == 20
    also_gone = copied_run(runs.first_seed, tmp_path / "too", corpus=str(tmp_path / "nothing"))
    with pytest.raises(TandemError, match="nothing: not the corpus that gone was trained on any more; give the test"):
        common_text(find_systems([gone, also_gone]), None)
    train, dev = ((demo_text / f"{split}.en", demo_text / f"{split}.de") for split in ("train", "dev"))
    other = prepare(CorpusTexts([train], dev, dev), tmp_path / "other", CorpusConfig(vocab_size=600))
    moved = copied_run(runs.other, tmp_path / "moved", corpus=str(other.directory), corpus_digest=other.digest)
    systems = find_systems([runs.first_seed, moved])
    with pytest.raises(TandemError, match="narrow-1 and moved: the test sets of their corpora are different texts"):
        common_text(systems, None)
    # Another corpus with the same text is none the worse.
    assert len(common_text(systems, "dev").sources) == 20


@pytest.mark.slow
def test_a_test_set_that_was_trained_on_is_told(runs: Runs, demo_text: Path, tmp_path: Path) -> None:
    train = (demo_text / "train.en", demo_text / "train.de")
    few = [tmp_path / f"few.{language}" for language in ("en", "de")]
    for path, full in zip(few, train, strict=True):
        path.write_text("".join(full.read_text(encoding="utf-8").splitlines(keepends=True)[:10]), encoding="utf-8")
    seen = prepare(CorpusTexts([train], train, (few[0], few[1])), tmp_path / "seen", CorpusConfig(vocab_size=600))
    moved = [
        copied_run(run, tmp_path / run.name, corpus=str(seen.directory), corpus_digest=seen.digest) for run in runs[:2]
    ]
    (remark,) = common_text(find_systems(moved), None).remarks
    assert remark.startswith("10 of the 10 pairs also stand in the training text of narrow-1 (seen)")
