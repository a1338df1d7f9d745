"""A corpus with the vocabulary of another: the same numbers for the same pieces, as it is or extended."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandem.cli.command_line import command_group
from tandem.config import CorpusConfig
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.prepared import PreparedCorpus, summary_lines
from tandem.corpus.text_files import CorpusTexts
from tandem.errors import TandemError
from tandem.layout import CORPUS_FILE, EXPORT_FILE, RUN_FILE, TOKENIZER_FILE
from tests.corpus.conftest import Pairs, WritePair

NEW = [("a giraffe in a big yellow zoo", "eine Giraffe in einem großen gelben Zoo"), ("zebras œuvre", "Zebras œuvre")]


@pytest.fixture
def texts(write_pair: WritePair, sentences: Pairs) -> CorpusTexts:
    new = [(f"{source} {left}", f"{target} {right}") for left, right in sentences for source, target in NEW]
    return CorpusTexts([write_pair("train", new)], write_pair("dev", new[:4]), None)


def test_the_vocabulary_is_taken_over(tiny_corpus: PreparedCorpus, texts: CorpusTexts, tmp_path: Path) -> None:
    corpus = prepare(texts, tmp_path / "corpus", CorpusConfig(vocab_size=300), vocabulary=tiny_corpus.directory)
    model = (tiny_corpus.directory / TOKENIZER_FILE).read_bytes()
    assert (corpus.directory / TOKENIZER_FILE).read_bytes() == model
    size = tiny_corpus.tokenizer.vocab_size
    assert corpus.facts.vocabulary.model_dump() == {"requested": size, "actual": size, "kept": size}
    source, _ = corpus.text("dev")
    encoded = [corpus.pairs("dev").source(line).tolist() for line in range(len(source))]
    assert encoded == tiny_corpus.tokenizer.encode(source)


def test_an_extended_vocabulary_comes_from_a_run_too(
    tiny_corpus: PreparedCorpus, texts: CorpusTexts, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / RUN_FILE).write_text("{}")
    (run / TOKENIZER_FILE).write_bytes((tiny_corpus.directory / TOKENIZER_FILE).read_bytes())
    corpora = [prepare(texts, tmp_path / str(jobs), vocabulary=run, extend=40, jobs=jobs) for jobs in (1, 2)]
    first, second = (corpus.tokenizer.model for corpus in corpora)
    assert first == second
    old, new = tiny_corpus.tokenizer, corpora[0].tokenizer
    assert new.extends(old)
    assert 0 < new.vocab_size - old.vocab_size <= 40
    facts = corpora[0].facts.vocabulary
    assert (facts.requested, facts.kept) == (old.vocab_size + 40, old.vocab_size)
    assert f"{facts.kept:,} of them taken over" in list(summary_lines(corpora[0]))[-1]
    source, _ = corpora[0].text("dev")
    assert [corpora[0].pairs("dev").source(line).tolist() for line in range(len(source))] == new.encode(source)
    assert sum(map(len, new.encode(source))) < sum(map(len, old.encode(source)))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (None, "no such directory; name a run or a prepared corpus"),
        ("other.txt", "neither a run nor a prepared corpus (no run.json, no corpus.json)"),
        (EXPORT_FILE, "an exported model, which is not trained any more; name a run or a prepared corpus"),
        (CORPUS_FILE, "tokenizer.model: no such tokenizer model"),
    ],
)
def test_what_has_no_vocabulary_is_refused(make: str | None, expected: str, texts: CorpusTexts, tmp_path: Path) -> None:
    place = tmp_path / "place"
    if make:
        place.mkdir()
        (place / make).write_text("{}")
    with pytest.raises(TandemError) as refused:
        prepare(texts, tmp_path / "corpus", vocabulary=place)
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.glob("*corpus*"))


def test_contradicting_options_are_refused(tiny_corpus: PreparedCorpus, texts: CorpusTexts, tmp_path: Path) -> None:
    with pytest.raises(TandemError, match=r"^--extend 5: extends the vocabulary of --vocabulary RUN or CORPUS"):
        prepare(texts, tmp_path / "corpus", extend=5)
    files = map(str, (*texts.splits["train"][0], "--dev", *texts.splits["dev"][0]))
    command = ["prepare", "--train", *files, "--out", str(tmp_path / "corpus"), "corpus.vocab_size=300"]
    with pytest.raises(TandemError, match=r"^corpus.vocab_size: --vocabulary has its own size"):
        command_group().main([*command, "--vocabulary", str(tiny_corpus.directory)], standalone_mode=False)
    assert not list(tmp_path.glob("*corpus*"))
