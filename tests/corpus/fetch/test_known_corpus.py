"""Obtaining a corpus: from a server, an offline directory or the user's disk; whole texts or a clear error."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import json
import shutil
import zipfile
from pathlib import Path
from threading import Event, Thread

import pytest

from tandem.corpus.fetch.catalog import CatalogEntry, find_corpus, load_catalog
from tandem.corpus.fetch.known_corpus import default_cache, fetch_corpus
from tandem.corpus.text_files import CorpusTexts
from tandem.errors import TandemError
from tests.corpus.fetch.archives import tgz, zipped
from tests.corpus.fetch.web import Web, served, whole
from tests.places import CORPORA

needs_shared = pytest.mark.skipif(not CORPORA.is_dir(), reason="the corpora in ../shared/corpora are not here")


web = pytest.fixture(served)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def numbered(language: str, start: int, count: int) -> bytes:
    return b"".join(f"{language} {number}\n".encode() for number in range(start, start + count))


def both(file: str, member: str) -> dict[str, dict[str, str]]:
    """The two texts of an archive whose members end in en and de."""
    return {side: {"file": file, "member": f"{member}.{x}"} for side, x in (("source", "en"), ("target", "de"))}


FILES = {
    "first.tgz": tgz({f"a/t.{x}": numbered(x, 0, 30) for x in ("en", "de")} | {"d.en": b"e\n", "d.de": b"d\n"}),
    "second.zip": zipped({f"u.{x}": numbered(x, 30, 12) for x in ("en", "de")}),
    "t.en.gz": gzip.compress(b"en test\n"),
    "t.de.gz": gzip.compress(b"de test\n"),
}


@pytest.fixture
def corpus(web: Web) -> CatalogEntry:
    """Two training pairs in two archives, dev in the first, test in two gzipped files."""
    files: dict[str, dict[str, object]] = {
        name: {"urls": [web.url(f"/{name}", whole(content))]} for name, content in FILES.items()
    }
    files["first.tgz"] |= {"bytes": len(FILES["first.tgz"]), "sha256": sha256(FILES["first.tgz"])}
    return CatalogEntry.model_validate(
        {
            "source": "en",
            "target": "de",
            "files": files,
            "train": [both("first.tgz", "a/t"), both("second.zip", "u")],
            "dev": both("first.tgz", "d"),
            "test": {"source": {"file": "t.en.gz"}, "target": {"file": "t.de.gz", "sha256": sha256(b"de test\n")}},
        }
    )


def contents(texts: CorpusTexts) -> list[bytes]:
    return [path.read_bytes() for pairs in texts.splits.values() for pair in pairs for path in pair]


EXPECTED = [
    *(numbered("en", 0, 30), numbered("de", 0, 30), numbered("en", 30, 12), numbered("de", 30, 12)),
    *(b"e\n", b"d\n", b"en test\n", b"de test\n"),
]


def test_a_corpus_from_a_server(web: Web, corpus: CatalogEntry, tmp_path: Path) -> None:
    stages: dict[str, tuple[int, int | None]] = {}
    texts = fetch_corpus(
        "c", corpus, tmp_path, progress=lambda stage, done, total, unit="": stages.update({stage: (done, total)})
    )
    assert texts.languages == ("en", "de")
    assert texts.test is not None
    assert contents(texts) == EXPECTED
    assert [Path(path).name for path in texts.train[1]] == ["train-2.en", "train-2.de"]
    assert sorted(web.paths) == ["/first.tgz", "/second.zip", "/t.de.gz", "/t.en.gz"]
    assert list(texts.origins.values()) == [
        *("first.tgz:a/t.en", "first.tgz:a/t.de", "second.zip:u.en", "second.zip:u.de"),
        *("first.tgz:d.en", "first.tgz:d.de", "t.en.gz", "t.de.gz"),
    ]
    assert list(texts.origins) == [path for pair in (*texts.train, texts.dev, texts.test) for path in pair]
    assert "unpack first.tgz" in stages
    assert all(done == total for done, total in stages.values())


def test_whole_text_is_used_again_without_its_archives(web: Web, corpus: CatalogEntry, tmp_path: Path) -> None:
    fetch_corpus("c", corpus, tmp_path)
    shutil.rmtree(tmp_path / "archives")
    web.asked.clear()
    assert contents(fetch_corpus("c", corpus, tmp_path)) == EXPECTED
    assert not web.asked


@pytest.mark.parametrize("damage", ["marker missing", "marker cut short", "text cut short", "text missing"])
def test_text_that_is_not_whole_is_made_again(web: Web, corpus: CatalogEntry, tmp_path: Path, damage: str) -> None:
    text = Path(fetch_corpus("c", corpus, tmp_path).train[1][0])
    path = text.with_name("whole.json") if damage.startswith("marker") else text
    path.write_bytes(path.read_bytes()[:9])
    if damage.endswith("missing"):
        path.unlink()
    web.asked.clear()
    assert contents(fetch_corpus("c", corpus, tmp_path)) == EXPECTED
    assert not web.asked  # the archives are still there


def test_an_entry_that_changed_never_meets_the_old_text(corpus: CatalogEntry, tmp_path: Path) -> None:
    fetch_corpus("c", corpus, tmp_path)
    changed = corpus.model_copy(update={"train": corpus.train[1:]})
    assert contents(fetch_corpus("c", changed, tmp_path)) == EXPECTED[2:]
    assert contents(fetch_corpus("c", corpus, tmp_path)) == EXPECTED


def test_offline_archives_are_used_in_place(web: Web, corpus: CatalogEntry, tmp_path: Path) -> None:
    offline = tmp_path / "mine"
    offline.mkdir()
    with pytest.raises(TandemError, match=r"first\.tgz is missing .*second\.zip is missing"):
        fetch_corpus("c", corpus, tmp_path / "cache", offline=offline)
    for name, content in FILES.items():
        (offline / name).write_bytes(content)
    assert contents(fetch_corpus("c", corpus, tmp_path / "cache", offline=offline)) == EXPECTED
    assert not web.asked
    assert not (tmp_path / "cache" / "archives").exists()
    # Another archive of the same name, of which nothing is known, is not taken for the old one.
    (offline / "second.zip").write_bytes(zipped({"u.en": b"en new\n", "u.de": b"de new\n"}))
    assert contents(fetch_corpus("c", corpus, tmp_path / "cache", offline=offline))[2:4] == [b"en new\n", b"de new\n"]


def test_the_text_is_the_text(web: Web, corpus: CatalogEntry, tmp_path: Path) -> None:
    """An archive without a checksum is refused if its text is wrong, and fetched anew the next time."""
    web.url("/t.de.gz", whole(gzip.compress(b"de tost\n")))
    with pytest.raises(TandemError, match=r"^t\.de\.gz: the text in it has the sha256 \w+, not .* it was removed: try"):
        fetch_corpus("c", corpus, tmp_path)
    assert not [path for path in (tmp_path / "text").iterdir() if path.is_dir()]
    web.url("/t.de.gz", whole(FILES["t.de.gz"]))
    assert contents(fetch_corpus("c", corpus, tmp_path)) == EXPECTED


def test_a_misspelt_member_or_another_name_costs_no_download(web: Web, corpus: CatalogEntry, tmp_path: Path) -> None:
    described = corpus.model_dump()
    described["train"][1]["source"]["member"] = "u.english"
    with pytest.raises(TandemError, match=r"second\.zip: has no member u\.english; correct the name; there are u\.en"):
        fetch_corpus("c", CatalogEntry.model_validate(described), tmp_path)
    assert contents(fetch_corpus("another", corpus, tmp_path)) == EXPECTED
    assert web.paths.count("/first.tgz") == web.paths.count("/second.zip") == 1


def test_a_damaged_archive_is_fetched_anew(web: Web, corpus: CatalogEntry, tmp_path: Path) -> None:
    web.url("/second.zip", whole(FILES["second.zip"][:-40]))
    with pytest.raises(TandemError, match=r"^second\.zip: does not hold what it should .* it was removed: try again"):
        fetch_corpus("c", corpus, tmp_path)
    web.url("/second.zip", whole(FILES["second.zip"]))
    assert contents(fetch_corpus("c", corpus, tmp_path)) == EXPECTED
    assert web.paths.count("/first.tgz") == 1


def test_the_second_process_waits_for_the_first(corpus: CatalogEntry, tmp_path: Path) -> None:
    text = Path(fetch_corpus("c", corpus, tmp_path).dev[0]).parent
    (text / "whole.json").rename(tmp_path / "marker")
    waiting = Event()
    results: list[CorpusTexts] = []

    def watch(stage: str, done: int, total: int | None, unit: str = "") -> None:
        if stage.startswith("wait for another process"):
            waiting.set()

    with text.with_name(f"{text.name}.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = Thread(target=lambda: results.append(fetch_corpus("c", corpus, tmp_path, progress=watch)))
        second.start()
        assert waiting.wait(60)
        before = (text / "train-1.en").stat().st_ino
        (tmp_path / "marker").rename(text / "whole.json")  # the first has finished
    second.join()
    assert contents(results[0]) == EXPECTED
    assert (text / "train-1.en").stat().st_ino == before


def test_a_cache_that_cannot_be_written(corpus: CatalogEntry, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(TandemError, match=r"cache/archives: cannot be written \(Not a directory\); check the disk"):
        fetch_corpus("c", corpus, tmp_path / "cache")


def test_default_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "tandem"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # which the standard says is to be ignored
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache() == tmp_path / ".cache" / "tandem"


# The user's own files.


def own(directory: Path, dev: object, **texts: bytes) -> CatalogEntry:
    """A corpus of plain files: a_en and a_de are one pair, b_en and b_de another."""
    for name, content in texts.items():
        (directory / name.replace("_", ".")).write_bytes(content)
    names = sorted({name[0] for name in texts})
    tree = {
        "source": "en",
        "target": "de",
        "files": {name.replace("_", "."): {"path": name.replace("_", ".")} for name in texts},
        "train": [{"source": {"file": f"{name}.en"}, "target": {"file": f"{name}.de"}} for name in names],
        "dev": dev,
    }
    (directory / "own.yaml").write_text(json.dumps(tree))
    return find_corpus(str(directory / "own.yaml"))[1]


def test_texts_on_the_disk_stay_where_they_are(tmp_path: Path) -> None:
    written = {"a_en": b"A\n", "a_de": b"a\n", "b_en": b"B\n", "b_de": b"b\n", "v_en": b"V\n", "v_de": b"v\n"}
    entry = own(tmp_path, {"held_out": 1}, **written)
    dev = {"source": {"file": "v.en"}, "target": {"file": "v.de"}}
    tree = entry.model_dump(exclude_none=True) | {"dev": dev}
    tree["train"] = tree["train"][:2]
    texts = fetch_corpus("own", CatalogEntry.model_validate(tree), tmp_path / "cache")
    assert texts.train[1] == (tmp_path / "b.en", tmp_path / "b.de")
    assert (texts.dev, texts.test) == ((tmp_path / "v.en", tmp_path / "v.de"), None)
    assert all(origin == path.name for path, origin in texts.origins.items())


def test_a_text_on_the_disk_that_changed_is_held_out_from_again(tmp_path: Path) -> None:
    entry = own(tmp_path, {"held_out": 2}, a_en=numbered("en", 0, 20), a_de=numbered("de", 0, 20))
    old = contents(fetch_corpus("own", entry, tmp_path / "cache"))
    own(tmp_path, {"held_out": 2}, a_en=numbered("en", 0, 30), a_de=numbered("de", 0, 30))
    new = contents(fetch_corpus("own", entry, tmp_path / "cache"))
    assert [content.count(b"\n") for content in old] == [18, 18, 2, 2]
    assert [content.count(b"\n") for content in new] == [28, 28, 2, 2]


def test_texts_of_unequal_length_are_named_as_the_user_knows_them(tmp_path: Path) -> None:
    entry = own(tmp_path, {"held_out": 2}, a_en=numbered("en", 0, 20), a_de=numbered("de", 0, 19))
    with pytest.raises(TandemError, match=r"^a\.en has 20 lines but a\.de has 19; line N"):
        fetch_corpus("own", entry, tmp_path / "cache")


def test_a_missing_text_is_named(tmp_path: Path) -> None:
    entry = own(tmp_path, {"held_out": 2}, a_en=b"a\n", a_de=b"a\n")
    (tmp_path / "a.de").unlink()
    with pytest.raises(TandemError, match=r"a\.de: no such file; check the path of a\.de in the YAML file"):
        fetch_corpus("own", entry, tmp_path / "cache")


# The real corpora.


@needs_shared
def test_multi30k_offline(tmp_path: Path) -> None:
    for path in (CORPORA / "multi30k").iterdir():
        (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), compresslevel=1))
    texts = fetch_corpus("multi30k-en-de", load_catalog()["multi30k-en-de"], tmp_path / "cache", offline=tmp_path)
    stems = ("train", "val", "test_2016_flickr")
    assert contents(texts) == [(CORPORA / "multi30k" / f"{s}.{x}").read_bytes() for s in stems for x in ("en", "de")]


@pytest.mark.slow
@needs_shared
def test_tatoeba_offline(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "de-en.txt.zip", "w") as archive:
        for x in ("en", "de"):
            archive.write(CORPORA / "tatoeba" / f"tatoeba.{x}", f"Tatoeba.de-en.{x}")
    texts = fetch_corpus("tatoeba-en-de", load_catalog()["tatoeba-en-de"], tmp_path / "cache", offline=tmp_path)
    sides = [content.splitlines() for content in contents(texts)]
    assert [len(side) for side in sides[2:]] == [2000] * 4
    assert len(sides[0]) == len(sides[1]) == 169_813 - 4000
    assert not set(sides[0]) & set(sides[2] + sides[4])
    assert not set(sides[2]) & set(sides[4])
    assert [texts.origins[Path(path)] for path in (texts.train[0][0], texts.dev[1])] == [
        "de-en.txt.zip:Tatoeba.de-en.en without held-out pairs",
        "held out of de-en.txt.zip:Tatoeba.de-en.de",
    ]
