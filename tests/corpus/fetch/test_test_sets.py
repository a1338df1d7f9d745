"""Test sets of sacreBLEU: archives from a server, an offline directory or its own; the text or a clear error."""

from __future__ import annotations

import gzip
import hashlib
import subprocess
from pathlib import Path

import pytest
from sacrebleu.dataset import DATASETS
from sacrebleu.dataset.fake_sgml import FakeSGMLDataset
from sacrebleu.dataset.plain_text import PlainTextDataset

from tandem.corpus.fetch.catalog import CatalogEntry
from tandem.corpus.fetch.known_corpus import fetch_corpus
from tandem.corpus.fetch.test_sets import SacrebleuSet
from tandem.corpus.text_files import CorpusTexts
from tandem.errors import TandemError
from tests.corpus.fetch.archives import tgz
from tests.corpus.fetch.web import Web, served, status, whole

web = pytest.fixture(served)


def sgm(*lines: str) -> bytes:
    segments = "".join(f'<seg id="{number}">{line}</seg>\n' for number, line in enumerate(lines, start=1))
    return f'<srcset>\n<doc docid="x" genre="news" origlang="en">\n{segments}</doc>\n</srcset>\n'.encode()


ARCHIVE = tgz({"test/n-src.en.sgm": sgm("Hello  there .", "Bye ."), "test/n-src.de.sgm": sgm("Hallo .", "Ade .")})
NEWS = [b"Hello there .\nBye .\n", b"Hallo .\nAde .\n"]


def entry(directory: Path, **changes: object) -> CatalogEntry:
    """A corpus whose dev set is sacreBLEU's wmt13."""
    for name in ("a.en", "a.de"):
        (directory / name).write_bytes(b"A\n")
    tree = {
        "source": "en",
        "target": "de",
        "files": {name: {"path": str(directory / name)} for name in ("a.en", "a.de")},
        "train": [{"source": {"file": "a.en"}, "target": {"file": "a.de"}}],
        "dev": {"sacrebleu": "wmt13"},
    }
    return CatalogEntry.model_validate(tree | changes)


@pytest.fixture
def news(web: Web, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CatalogEntry:
    """The corpus, with a wmt13 of two sentences that is served here."""
    dataset = FakeSGMLDataset(
        "wmt13",
        data=[web.url("/wmt13/test.tgz", whole(ARCHIVE))],
        md5=[hashlib.md5(ARCHIVE).hexdigest()],
        langpairs={"en-de": ["test/n-src.en.sgm", "test/n-src.de.sgm"]},
    )
    monkeypatch.setitem(DATASETS, "wmt13", dataset)
    monkeypatch.setattr("sacrebleu.utils.SACREBLEU_DIR", str(tmp_path / "sacrebleu"))
    return entry(tmp_path)


def dev_of(texts: CorpusTexts) -> list[bytes]:
    return [path.read_bytes() for path in texts.splits["dev"][0]]


def test_dev_set_of_sacrebleu(web: Web, news: CatalogEntry, tmp_path: Path) -> None:
    texts = fetch_corpus("own", news, tmp_path / "cache")
    assert dev_of(texts) == NEWS
    assert [texts.origins[Path(path)] for path in texts.dev] == ["sacrebleu wmt13"] * 2
    assert {path.name for path in Path(texts.dev[0]).parent.iterdir()} == {"dev.en", "dev.de", "whole.json"}
    assert not (tmp_path / "sacrebleu").exists()
    fetch_corpus("own", news, tmp_path / "cache")
    assert web.paths == ["/wmt13/test.tgz"]


def test_wrong_test_set_is_refused_and_fetched_anew(
    web: Web, news: CatalogEntry, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    web.url("/wmt13/test.tgz", whole(tgz({"test/n-src.en.sgm": sgm("x"), "test/n-src.de.sgm": sgm("y")})))
    with pytest.raises(TandemError, match=r"^wmt13\.test\.tgz: has the MD5 \w+, not \w+, .* --offline DIR$"):
        fetch_corpus("own", news, tmp_path / "cache")
    web.url("/wmt13/test.tgz", whole(ARCHIVE))
    assert dev_of(fetch_corpus("own", news, tmp_path / "cache")) == NEWS
    assert capfd.readouterr() == ("", "")


def test_test_set_that_cannot_be_fetched(web: Web, news: CatalogEntry, tmp_path: Path) -> None:
    web.url("/wmt13/test.tgz", status(404))
    with pytest.raises(TandemError, match=r"^wmt13\.test\.tgz: could not be fetched: .*404.* --offline DIR$"):
        fetch_corpus("own", news, tmp_path / "cache")


@pytest.mark.parametrize("name", ["wmt13.test.tgz", "test.tgz"])
def test_test_set_offline(web: Web, news: CatalogEntry, tmp_path: Path, name: str) -> None:
    offline = tmp_path / "mine"
    offline.mkdir()
    with pytest.raises(TandemError, match=r"wmt13\.test\.tgz or test\.tgz is missing \(from http"):
        fetch_corpus("own", news, tmp_path / "cache", offline=offline)
    (offline / name).write_bytes(ARCHIVE)
    assert dev_of(fetch_corpus("own", news, tmp_path / "cache", offline=offline)) == NEWS
    assert not web.paths


def test_archive_that_sacrebleu_has_is_used_if_it_is_right(web: Web, news: CatalogEntry, tmp_path: Path) -> None:
    kept = tmp_path / "sacrebleu" / "wmt13" / "raw" / "wmt13.test.tgz"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(ARCHIVE)
    assert dev_of(fetch_corpus("own", news, tmp_path / "cache", offline=tmp_path)) == NEWS
    kept.write_bytes(b"half")
    assert dev_of(fetch_corpus("own", news, tmp_path / "other")) == NEWS
    assert web.paths == ["/wmt13/test.tgz"]


@pytest.mark.usefixtures("news")
def test_several_archives_named_as_sacrebleu_names_them(
    web: Web, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parts = {"/x.tar.gz": tgz({"t.en": b"one\n"}), "/y.de.gz": gzip.compress(b"eins\n")}
    dataset = PlainTextDataset(
        "mine/2018",
        data=[web.url(name, whole(content)) for name, content in parts.items()],
        md5=[hashlib.md5(content).hexdigest() for content in parts.values()],
        langpairs={"en-de": ["t.en", "mine_2018.y.de.gz"]},
    )
    monkeypatch.setitem(DATASETS, "mine/2018", dataset)
    own = entry(tmp_path, dev={"sacrebleu": "mine/2018"})
    assert dev_of(fetch_corpus("own", own, tmp_path / "cache")) == [b"one\n", b"eins\n"]


@pytest.mark.parametrize(
    ("name", "target", "said"),
    [
        ("wmt99", "de", "wmt99: sacreBLEU knows no such test set; see `sacrebleu --list`"),
        ("wmt13", "fr", "wmt13: this test set has no en-fr; it has en-de"),
    ],
)
@pytest.mark.usefixtures("news")
def test_unknown_test_set(name: str, target: str, said: str) -> None:
    with pytest.raises(TandemError) as caught:
        SacrebleuSet(name, "en", target)
    assert str(caught.value) == said


def test_test_set_that_sacrebleu_cannot_read(
    news: CatalogEntry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(DATASETS["wmt13"].langpairs, "en-de", ["test/n-src.en.sgm", "test/other.sgm"])
    with pytest.raises(TandemError, match=r"^wmt13: sacreBLEU cannot read this test set \(.*other\.sgm.*\)"):
        fetch_corpus("own", news, tmp_path / "cache")


@pytest.mark.usefixtures("news")
def test_a_full_disk_is_no_fault_of_the_test_set(tmp_path: Path) -> None:
    (tmp_path / "test.tgz").write_bytes(ARCHIVE)
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        with pytest.raises(OSError, match="No space left"):
            SacrebleuSet("wmt13", "en", "de").write(
                {"wmt13.test.tgz": tmp_path / "test.tgz"}, (disk / "a.en", disk / "a.de"), disk / "scratch"
            )
    finally:
        subprocess.run(["umount", disk], check=True)
