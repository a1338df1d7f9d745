"""Further dev sets of a corpus: prepared, recorded and refused like dev."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tandem.config import CorpusConfig
from tandem.corpus.fetch.catalog import find_corpus
from tandem.corpus.fetch.known_corpus import fetch_corpus, select_texts
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.prepared import PreparedCorpus, summary_lines
from tandem.corpus.text_files import CorpusTexts
from tandem.errors import TandemError
from tests.corpus.prepare.test_pipeline import contents

Files = tuple[Path, Path]
Pairs = list[tuple[str, str]]
SETTINGS = CorpusConfig(vocab_size=400)


@pytest.fixture
def news(write_pair: Callable[[str, Pairs], Files], sentences: Pairs) -> Files:
    return write_pair("news", [*sentences[:2], ("a new one", "ein neues"), ("", "")])


def test_a_corpus_has_as_many_dev_sets_as_are_given(train: Files, dev: Files, news: Files, tmp_path: Path) -> None:
    texts = CorpusTexts([train], dev, dev, dev_sets={"news": news, "wmt-14": dev})
    corpus = prepare(texts, tmp_path / "corpus", SETTINGS)
    assert list(corpus.facts.splits) == ["train", "dev", "news", "wmt-14", "test"]
    assert corpus.facts.dev_sets == ["dev", "news", "wmt-14"]
    assert corpus.text("news")[1][2:] == ["ein neues", ""]
    assert len(corpus.pairs("news")) == 4
    assert corpus.facts.splits["news"].in_train == 2
    assert [file.name for file in corpus.facts.splits["news"].source.inputs] == ["news.en"]
    assert any(line.startswith("  news   en") for line in summary_lines(corpus))
    assert (corpus.chosen_split("news"), corpus.chosen_split(None)) == ("news", "test")
    with pytest.raises(TandemError, match="--split old: choose dev, news, wmt-14 or test"):
        corpus.chosen_split("old")
    with pytest.raises(TandemError, match=r"no old split.*prepare it again with --dev-set old and --overwrite"):
        corpus.pairs("old")
    again = prepare(texts, tmp_path / "again", SETTINGS, jobs=1)
    assert contents(again.directory) == contents(corpus.directory)
    without = prepare(CorpusTexts([train], dev, dev), tmp_path / "without", SETTINGS)
    assert without.digest != corpus.digest == PreparedCorpus.open(corpus.directory).digest
    assert (without.directory / "tokenizer.model").read_bytes() == (corpus.directory / "tokenizer.model").read_bytes()


@pytest.mark.parametrize("name", ["dev", "test", "train", "News", "../news", "a/b", "", "-x"])
def test_a_name_that_cannot_be_one_is_refused(name: str, train: Files, dev: Files) -> None:
    with pytest.raises(TandemError, match=r"a name is small letters, digits, _ and -, as in news-2019"):
        CorpusTexts([train], dev, dev_sets={name: dev})


def test_faults_name_the_option_and_leave_nothing(train: Files, dev: Files, news: Files, tmp_path: Path) -> None:
    out = tmp_path / "new" / "corpus"
    with pytest.raises(TandemError, match=r"--dev-set news .*: the languages are swapped.*swap them: --dev-set news"):
        prepare(CorpusTexts([train], dev, dev_sets={"news": news[::-1]}), out, SETTINGS)
    with pytest.raises(TandemError, match=r"--dev-set news .*source and target are the same file"):
        prepare(CorpusTexts([train], dev, dev_sets={"news": (news[0], news[0])}), out, SETTINGS)
    news[1].write_bytes(b"eins\nzwei\n\xff\nvier\n")
    with pytest.raises(TandemError, match=r"news\.de:3: not UTF-8"):
        prepare(CorpusTexts([train], dev, dev_sets={"news": news}), out, SETTINGS)
    assert not out.parent.exists()


def test_a_prepare_that_goes_on_does_not_take_one_for_another(
    train: Files, dev: Files, news: Files, tmp_path: Path
) -> None:
    def stop(stage: str, done: int, total: int | None, unit: str = "") -> None:
        if stage == "learn vocabulary":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(CorpusTexts([train], dev, dev_sets={"news": news}), tmp_path / "corpus", SETTINGS, progress=stop)
    corpus = prepare(CorpusTexts([train], news, dev_sets={"news": dev}), tmp_path / "corpus", SETTINGS)
    assert (len(corpus.pairs("dev")), len(corpus.pairs("news"))) == (4, len(dev[0].read_text().splitlines()))


def test_a_corpus_file_describes_them_and_the_command_adds_to_them(
    train: Files, dev: Files, news: Files, tmp_path: Path
) -> None:
    def sides(files: Files) -> str:
        return f"{{source: {{file: {files[0].name}}}, target: {{file: {files[1].name}}}}}"

    named = "\n".join(f"  {file.name}: {{path: {file.name}}}" for file in (*train, *dev, *news))
    text = f"source: en\ntarget: de\nfiles:\n{named}\ntrain: [{sides(train)}]\ndev: {sides(dev)}\n"
    described = tmp_path / "mine.yaml"
    described.write_text(f"{text}dev_sets:\n  news: {sides(news)}\n  held: {{held_out: 5}}\n")
    texts = fetch_corpus(*find_corpus(str(described)), tmp_path / "cache")
    assert list(texts.splits) == ["train", "dev", "news", "held"]
    corpus = prepare(texts, tmp_path / "corpus", SETTINGS)
    assert len(corpus.pairs("held")) == 5
    assert len(corpus.pairs("train")) == 59
    more = select_texts(dev_sets={"mine": dev}, known=str(described), cache=tmp_path / "cache")
    assert list(more.splits) == ["train", "dev", "news", "held", "mine"]
    with pytest.raises(TandemError, match="--dev-set news: mine has a dev set of that name; give yours another"):
        select_texts(dev_sets={"news": dev}, known=str(described), cache=tmp_path / "cache")
    described.write_text(f"{text}dev_sets:\n  train-1: {sides(news)}\n")
    with pytest.raises(TandemError, match=r"train-1 is what a training text is unpacked as; give it another name"):
        find_corpus(str(described))
    described.write_text(f"{text}dev_sets:\n  Test: {sides(news)}\n")
    with pytest.raises(TandemError, match=r"dev_sets\.Test: a name is small letters.*Further texts that a run"):
        find_corpus(str(described))
