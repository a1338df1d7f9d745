"""Opening a prepared corpus: everything is there, or the error says what is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tandem.config import CorpusConfig
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.prepared import PreparedCorpus
from tandem.corpus.text_files import CorpusTexts
from tandem.errors import TandemError


@pytest.fixture
def corpus(train: tuple[Path, Path], dev: tuple[Path, Path], tmp_path: Path) -> PreparedCorpus:
    return prepare(CorpusTexts([train], dev), tmp_path / "corpus", CorpusConfig(vocab_size=400))


def test_what_was_prepared_is_opened(corpus: PreparedCorpus) -> None:
    opened = PreparedCorpus.open(corpus.directory)
    opened.verify()
    assert opened.directory == corpus.directory
    assert (opened.facts, opened.digest) == (corpus.facts, corpus.digest)
    assert (opened.facts.source_language, opened.facts.target_language) == ("en", "de")
    assert len(opened.pairs("train")) == 64
    assert opened.text("dev")[1][0] == "die Katze liebt grüne Schuhe."


def test_what_was_not_given_or_not_kept(corpus: PreparedCorpus) -> None:
    for ask in (corpus.pairs, corpus.text):
        with pytest.raises(TandemError, match="no test split, only train, dev; prepare it again with --test and"):
            ask("test")
    with pytest.raises(TandemError, match="text of train is not kept"):
        corpus.text("train")


def test_what_is_no_corpus(tmp_path: Path) -> None:
    with pytest.raises(TandemError, match=r"nowhere: no such directory; make one with `tandem prepare"):
        PreparedCorpus.open(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "file"):  # where `tandem prepare` writes nothing
        with pytest.raises(TandemError, match=r"not a prepared corpus \(no corpus\.json\); name one, or make one else"):
            PreparedCorpus.open(place)


@pytest.mark.parametrize("name", ["tokenizer.model", "train/00000.target.npy", "dev/source.txt"])
def test_missing_cut_and_changed_files(corpus: PreparedCorpus, name: str) -> None:
    path = corpus.directory / name
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[-2] ^= 1
    path.write_bytes(flipped)
    with pytest.raises(TandemError, match=rf"{name}: its contents differ from corpus\.json; .*prepare --overwrite`"):
        corpus.verify()
    path.write_bytes(whole[:-1])
    with pytest.raises(TandemError, match=rf"{name}: {len(whole) - 1} bytes, but corpus\.json says {len(whole)}; "):
        PreparedCorpus.open(corpus.directory)
    path.unlink()
    with pytest.raises(TandemError, match=rf"{name}: a file of the corpus is missing; .*`tandem prepare --overwrite`"):
        PreparedCorpus.open(corpus.directory)
    path.write_bytes(whole)
    PreparedCorpus.open(corpus.directory).verify()


def _set(key: str, value: object) -> Callable[[str], str]:
    def change(text: str) -> str:
        content = json.loads(text)
        *path, last = key.split(".")
        inner = content
        for part in path:
            inner = inner[part]
        inner[last] = value
        return json.dumps(content)

    return change


def _rename(split: str, name: str) -> Callable[[str], str]:
    """Call a split otherwise, or say that a split of that name is there, too."""

    def change(text: str) -> str:
        content = json.loads(text)
        facts = content["splits"].pop(split, content["splits"]["train"])
        content["splits"][name] = facts
        return json.dumps(content)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:-20], r"corpus\.json: damaged \(.+\); .*`tandem prepare --overwrite`"),
        (lambda text: "", r"corpus\.json: damaged"),
        (lambda text: "[]", r"corpus\.json: damaged \(it holds list, not an object\)"),
        (
            _set("format", 3),
            r"corpus\.json: format 3, but this version of Tandem reads format 2; make the corpus again",
        ),
        (_set("surprise", 1), r"corpus\.json: damaged \(surprise: "),
        (
            _set("splits.dev.source.encoded.tokens", "many"),
            r"corpus\.json: damaged \(splits\.dev\.source\.encoded\.tokens: ",
        ),
        (_set("splits", {}), r"corpus\.json: damaged \(splits: .*there is no train"),
        (_rename("dev", "news"), r"corpus\.json: damaged \(splits: .*there is no dev"),
        (_rename("test", "../outside"), r"corpus\.json: damaged \(splits\.\.\./outside"),
        (_rename("test", "/outside"), r"corpus\.json: damaged \(splits\./outside"),
        (_set("vocabulary.actual", 399), r"tokenizer\.model: 400 pieces, but corpus\.json says 399"),
    ],
)
def test_damaged_facts(corpus: PreparedCorpus, change: Callable[[str], str], message: str) -> None:
    path = corpus.directory / "corpus.json"
    path.write_text(change(path.read_text()))
    with pytest.raises(TandemError, match=message) as caught:
        PreparedCorpus.open(corpus.directory)
    assert "\n" not in str(caught.value)


def test_facts_that_forget_pairs(corpus: PreparedCorpus) -> None:
    path = corpus.directory / "corpus.json"
    path.write_text(_set("splits.dev.source.cleaned.lines", 7)(path.read_text()))
    with pytest.raises(TandemError, match=r"dev: 20 pairs, but corpus\.json says 7"):
        PreparedCorpus.open(corpus.directory).pairs("dev")


def test_facts_that_are_not_text(corpus: PreparedCorpus) -> None:
    (corpus.directory / "corpus.json").write_bytes(b"\xff\xfe")
    with pytest.raises(TandemError, match=r"corpus\.json: damaged"):
        PreparedCorpus.open(corpus.directory)
