"""The catalog: true facts about each corpus, and a user's file refused with every fault at once."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sacrebleu.dataset import DATASETS

from tandem.corpus.fetch.catalog import catalog_facts, catalog_lines, find_corpus, load_catalog
from tandem.errors import TandemError
from tests.places import CORPORA

needs_shared = pytest.mark.skipif(not CORPORA.is_dir(), reason="the corpora in ../shared/corpora are not here")

MINE = """
source: en
target: de
files:
  a.en: {path: texts/a.en}
  more.tgz:
    urls: [https://example.org/more.tgz]
    bytes: 2000000
    sha256: 0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7
train:
  - {source: {file: a.en}, target: {file: more.tgz, member: b.de}}
dev: {held_out: 10}
"""


def refusal(path: Path, content: str) -> str:
    path.write_text(content, encoding="utf-8")
    with pytest.raises(TandemError) as caught:
        find_corpus(str(path))
    return str(caught.value)


def test_catalog_has_the_promised_corpora() -> None:
    assert list(load_catalog()) == ["wmt16-en-de", "multi30k-en-de", "tatoeba-en-de"]
    name, entry = find_corpus("wmt16-en-de")
    assert (name, entry.source, entry.target, len(entry.train)) == ("wmt16-en-de", "en", "de", 3)


@needs_shared
def test_wmt16_is_what_was_recorded() -> None:
    rows = re.findall(
        r"^\| (https\S+) \| (\d+) \| (\w{64}) \| (\S+)\{en,de\} \|$", (CORPORA / "README.md").read_text(), re.MULTILINE
    )
    entry = load_catalog()["wmt16-en-de"]
    found = [
        (file.urls[0], str(file.bytes), file.sha256, pair.source.member.removesuffix("en"))
        for file, pair in zip(entry.files.values(), entry.train, strict=True)
    ]
    assert found == rows
    assert [pair.target.member.removesuffix("de") for pair in entry.train] == [row[3] for row in rows]
    assert entry.download_bytes == sum(int(row[1]) for row in rows)


@needs_shared
def test_multi30k_checksums_are_those_of_the_texts() -> None:
    for text in load_catalog()["multi30k-en-de"].texts:
        content = (CORPORA / "multi30k" / text.file.removesuffix(".gz")).read_bytes()
        assert (text.bytes, text.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_sacrebleu_knows_the_test_sets() -> None:
    for entry in load_catalog().values():
        for split in (entry.dev, entry.test):
            if split and split.sacrebleu:
                assert f"{entry.source}-{entry.target}" in DATASETS[split.sacrebleu].langpairs


def test_lines_fit_a_terminal_and_say_what_cannot_be_checked() -> None:
    lines = catalog_lines(load_catalog())
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    assert "wmt16-en-de: en to de, about 4,560,000 pairs" in text
    assert "download: 1,651 MB; checked by sha256 licence: free for research" in text
    assert "size not known, unpacked 4.2 MB; the unpacked text is checked by sha256 licence: for research" in text
    assert "cannot be checked, no sha256 is known licence: CC BY 2.0 FR" in text


def test_facts_are_for_programs() -> None:
    facts = json.loads(json.dumps(catalog_facts(load_catalog())))
    assert facts["wmt16-en-de"]["download_bytes"] == 1_651_121_778
    assert [facts[name]["checked"] for name in facts] == ["files", "texts", None]
    assert facts["tatoeba-en-de"]["files"]["de-en.txt.zip"]["urls"][0].startswith("https://")


def test_a_users_file_is_a_corpus_and_its_paths_count_from_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(MINE, encoding="utf-8")
    name, entry = find_corpus(str(path))
    assert name == "mine"
    assert entry.files["a.en"].path == str(tmp_path / "texts" / "a.en")
    assert (entry.download_bytes, entry.checked, entry.licence) == (2_000_000, None, "not stated")


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(TandemError, match=r"wmt99: neither .*\(wmt16-en-de, multi30k-en-de, tatoeba-en-de\)"):
        find_corpus("wmt99")


def test_every_fault_is_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    message = refusal(
        path,
        """
titel: x
source: true
target: de
files:
  a.tgz: {urls: ['ftp://x'], bytes: 0}
  ../b: {path: x, urls: ['http://a/b']}
  c.gz: {sha256: 12}
train:
  - source: {file: a.tgz, membre: q}
    target: {file: zz}
  - {source: {file: a.tgz}, target: {file: c.gz}}
dev: {sacrebleu: wmt13, held_out: 0}
test: {source: {file: c.gz}}
""",
    )
    first, *rest = message.splitlines()
    keys = [line.strip().split(": ")[0] for line in rest]
    assert first == f"{len(rest)} faults in the corpus ({path}):"
    assert sorted(keys) == [
        "dev.held_out",
        "files.../b",
        "files.../b",
        "files.../b",
        "files.a.tgz.bytes",
        "files.a.tgz.urls.#1",
        "files.c.gz.sha256",
        "source",
        "test",
        "test.source",
        "titel",
        "train.#1.source.membre",
        "train.#1.target.file",
        "train.#2.source",
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("source: en\n", "source: true\n", "source: should be a valid string, not true"),
        ("source: en\n", "", "source: missing; Language to translate from"),
        ("target: de\n", "target: en\n", "source and target are both en; give each language its own name"),
        ("path: texts/a.en", "paths: a", "files.a.en.paths: unknown; did you mean path?"),
        ("path: texts/a.en", "", "files.a.en: needs either urls or a path; give one of the two"),
        ("https://example.org/", "ftp://example.org/", "urls.#1: 'ftp://.*' does not fit; .* https:// or http://"),
        ("file: a.en}", "file: b.en}", "train.#1.source.file: b.en is not under files; there is a.en, more.tgz"),
        ("{file: a.en}", "{file: more.tgz, member: b.de}", "train.#1.target: the same text as train.#1.source"),
        ("dev: {held_out: 10}", "dev: {}", "dev: needs one of: source and target, sacrebleu, held_out"),
        ("dev: {held_out: 10}", "dev: wmt13", "dev: should be settings, one a line below it, not 'wmt13'; What a run"),
        ("train:\n", "training:\n", "training: unknown; did you mean train"),
        ("member: b.de", "member: [b]", "train.#1.target.member: should be a valid string"),
    ],
)
def test_faults_name_the_key_and_the_remedy(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in MINE
    assert re.search(said.replace("?", r"\?"), refusal(tmp_path / "mine.yaml", MINE.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("content", "said"),
    [("a: [", "line 1: not YAML"), ("- a\n", "holds list"), ("source: en\nsource: de\n", "source is there twice")],
)
def test_what_is_no_entry_at_all(tmp_path: Path, content: str, said: str) -> None:
    assert said in refusal(tmp_path / "mine.yaml", content)


def test_torch_is_not_needed() -> None:
    code = "import sys, tandem.corpus.fetch.known_corpus; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
