"""An export: what is written, what it says of itself, and that it is whole or not there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

import tandem
from tandem.errors import TandemError
from tandem.exporting.whole_export import REPLACED, check_place, put_in_place, staged
from tandem.storage import take_lock
from tandem.translation.translator import Translator
from tests.disks import small_disk
from tests.places import REPOSITORY

pytestmark = pytest.mark.slow

CTRANSLATE2 = {"README.md", "config.json", "model.bin", "shared_vocabulary.json", "tandem.json", "tokenizer.model"}
HUGGINGFACE = {
    *("README.md", "config.json", "generation_config.json", "model.safetensors", "special_tokens_map.json"),
    *("tokenizer.json", "tokenizer.model", "tokenizer_config.json"),
}
ARGOS = {
    *("README.md", "metadata.json", "sentencepiece.model", "minisbd/en.onnx"),
    *("model/config.json", "model/model.bin", "model/shared_vocabulary.json"),
}
# An export that says how far it is, and waits there to be killed.
SLOW_EXPORT = """
import sys
from tandem import export

def progress(stage, done, total, unit=""):
    if stage == "check":
        print("checking", flush=True)
        sys.stdin.read()

export(sys.argv[1], sys.argv[2], to="ctranslate2", progress=progress)
"""


def test_a_ctranslate2_folder_translates_as_the_run_does(sure_run: Path, dev_lines: list[str], tmp_path: Path) -> None:
    stages = []
    result = tandem.export(
        sure_run,
        tmp_path / "model",
        to="ctranslate2",
        quantization="float32",
        progress=lambda stage, done, total, unit="": stages.append((stage, done == total)),
    )
    assert result.path == tmp_path / "model"
    assert set(result.files) == CTRANSLATE2 == {path.name for path in result.path.iterdir()}
    assert result.size == sum(path.stat().st_size for path in result.path.iterdir())
    assert result.check.lines == 200
    assert result.check.worse <= 2
    assert result.check.log_probability_difference < 1e-4
    assert result.check.own_bleu == pytest.approx(result.check.exported_bleu, abs=1)
    assert result.check.signature is not None
    assert result.check.signature.startswith("nrefs:1|case:mixed")
    assert {stage for stage, ended in stages if ended} == {"load", "write", "check"}
    exported = Translator.load(result.path).translate(dev_lines)
    own = Translator.load(sure_run, engine="tandem").translate(dev_lines)
    assert sum(one == other for one, other in zip(exported, own, strict=True)) >= len(own) - 1
    assert json.loads(json.dumps(result.as_dict()))["check"]["lines"] == 200


def test_int8_is_the_default_and_a_fraction_of_the_size(sure_run: Path, tmp_path: Path) -> None:
    small = tandem.export(sure_run, tmp_path / "small", to="ctranslate2")
    large = tandem.export(sure_run, tmp_path / "large", to="ctranslate2", quantization="float32")
    assert (small.quantization, large.quantization) == ("int8", "float32")
    assert small.files["model.bin"] < 0.5 * large.files["model.bin"]


@pytest.mark.parametrize(
    ("to", "quantization", "expected"),
    [
        ("ctranslate2", "float16", CTRANSLATE2),
        ("huggingface", "float32", HUGGINGFACE),
        ("huggingface", "float16", HUGGINGFACE),
        ("argos", "int8", ARGOS),
    ],
)
def test_every_format_is_whole_and_the_same_every_time(
    sure_run: Path, tmp_path: Path, to: str, quantization: str, expected: set[str]
) -> None:
    name = "model.argosmodel" if to == "argos" else "model"
    places = [tmp_path / folder / name for folder in ("one", "two")]
    for place in places:
        result = tandem.export(sure_run, place, to=to, quantization=quantization)
        assert [path.name for path in place.parent.iterdir()] == [name]
    if to == "argos":
        assert places[0].read_bytes() == places[1].read_bytes()
        with zipfile.ZipFile(places[0]) as package:
            assert package.testzip() is None
            assert set(package.namelist()) == {f"translate-en_de-1_0/{name}" for name in expected}
            metadata = json.loads(package.read("translate-en_de-1_0/metadata.json"))
        assert (metadata["from_code"], metadata["to_name"]) == ("en", "German")
        return
    assert set(result.files) == expected
    for file in expected:
        assert (places[0] / file).read_bytes() == (places[1] / file).read_bytes(), file


def test_the_model_card_has_what_the_hub_reads_and_people_ask(sure_run: Path, tmp_path: Path) -> None:
    tandem.export(sure_run, tmp_path / "unknown", to="ctranslate2")
    result = tandem.export(sure_run, tmp_path / "model", to="huggingface", licence="cc-by-4.0")
    card = (result.path / "README.md").read_text(encoding="utf-8")
    _, front, text = card.split("---\n", 2)
    assert yaml.safe_load(front) == {
        "license": "cc-by-4.0",
        "language": ["en", "de"],
        "tags": ["translation", "tandem", "huggingface"],
        "pipeline_tag": "translation",
    }
    assert yaml.safe_load((tmp_path / "unknown" / "README.md").read_text().split("---\n")[1])["license"] == "unknown"
    for expected in (
        *("# English to German", "AutoModelForSeq2SeqLM", "nrefs:1|case:mixed", "240 sentence pairs", "cc-by-4.0"),
        *(f"Tandem {tandem.__version__}", "PyTorch", "step 500", f"{result.check.exported_bleu:.2f} by this model"),
    ):
        assert expected in text
    assert str(tmp_path) not in card


@pytest.mark.parametrize("to", ["ctranslate2", "argos"])
def test_the_example_of_the_model_card_works(sure_run: Path, dev_lines: list[str], tmp_path: Path, to: str) -> None:
    """CTranslate2's is run here; those of other programs, in environments of their own, in test_peers.py."""
    result = tandem.export(sure_run, tmp_path / "model.argosmodel", to=to, quantization="float32")
    if to == "argos":
        with zipfile.ZipFile(result.path) as package:
            card = package.read("translate-en_de-1_0/README.md").decode()
        assert 'install_from_path("model.argosmodel")' in card
        return
    [example] = re.findall("```python\n(.*?)```", (result.path / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", example.replace("...", dev_lines[0])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == Translator.load(result.path).translate(dev_lines[:1])


def test_what_is_there_is_replaced_only_if_asked_and_if_it_is_an_export(sure_run: Path, tmp_path: Path) -> None:
    place = tmp_path / "model"
    tandem.export(sure_run, place, to="ctranslate2")
    with pytest.raises(TandemError, match="exists already; choose another --out, or replace it with --overwrite"):
        tandem.export(sure_run, place, to="ctranslate2")
    (place / "README.md").write_text("old")
    tandem.export(sure_run, place, to="ctranslate2", overwrite=True)
    assert (place / "README.md").read_text() != "old"
    with pytest.raises(TandemError, match="is not an export of this kind and is not replaced"):
        tandem.export(sure_run, place, to="huggingface", overwrite=True)
    foreign = tmp_path / "letters"
    foreign.mkdir()
    tandem.export(sure_run, foreign, to="huggingface")  # nothing in it to lose
    shutil.rmtree(foreign)
    foreign.mkdir()
    (foreign / "letter.txt").touch()
    with pytest.raises(TandemError, match="is not replaced; choose another --out"):
        tandem.export(sure_run, foreign, to="ctranslate2", overwrite=True)
    assert (foreign / "letter.txt").is_file()


def test_a_killed_export_leaves_nothing_under_its_name_and_can_be_repeated(sure_run: Path, tmp_path: Path) -> None:
    place = tmp_path / "model"
    command = [sys.executable, "-c", SLOW_EXPORT, str(sure_run), str(place)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    ) as exporting:
        assert exporting.stdout is not None
        assert exporting.stdout.readline() == "checking\n"
        with pytest.raises(TandemError, match="another process is exporting there"):
            tandem.export(sure_run, place, to="ctranslate2")
        exporting.kill()
    assert not place.exists()
    assert [path.name for path in tmp_path.iterdir()] == [".model.exporting"]
    tandem.export(sure_run, place, to="ctranslate2")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_an_export_that_another_writes_is_waited_for_by_nobody(sure_run: Path, tmp_path: Path) -> None:
    (tmp_path / ".model.exporting").mkdir()
    descriptor = os.open(tmp_path / ".model.exporting", os.O_RDONLY)
    try:
        assert take_lock(descriptor)
        with pytest.raises(TandemError, match="another process is exporting there"):
            tandem.export(sure_run, tmp_path / "model", to="ctranslate2")
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("to", ["ctranslate2", "huggingface", "argos"])
def test_a_full_disk_is_named_and_nothing_is_left(sure_run: Path, tmp_path: Path, to: str) -> None:
    with small_disk(tmp_path / "disk", "100k") as disk:
        before = set(disk.iterdir())
        with pytest.raises(TandemError, match=r"model: cannot be written .*; make room or choose another --out"):
            tandem.export(sure_run, disk / "model", to=to)
        assert set(disk.iterdir()) == before


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("tests.exporting.odd_parts:NOISY", "log-probabilities differ by .* nats a sentence, float32 explains 0.001"),
        ("tests.exporting.odd_parts:CARELESS", "200 of 200 sentences are translated worse"),
    ],
)
def test_a_model_that_differs_is_not_left_behind(sure_run: Path, tmp_path: Path, to: str, why: str) -> None:
    with pytest.raises(TandemError, match=f"model: not left behind, because the exported model differs.*{why}"):
        tandem.export(sure_run, tmp_path / "model", to=to, quantization="float32")
    assert list(tmp_path.iterdir()) == []


def test_a_run_whose_corpus_is_gone_is_checked_on_what_its_journal_remembers(sure_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(sure_run, run)
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**facts, "corpus": str(tmp_path / "gone")}))
    result = tandem.export(run, tmp_path / "model", to="ctranslate2", quantization="float32")
    assert (result.check.lines, result.check.own_bleu, result.check.signature) == (2, None, None)
    assert "because its corpus is gone" in result.check.origin
    assert "The corpus was not at hand" in (result.path / "README.md").read_text()
    moved = tandem.export(run, tmp_path / "moved", to="ctranslate2", corpus=sure_run.parent / "corpus")
    assert moved.check.lines == 200
    shutil.rmtree(run / "journal")
    with pytest.raises(TandemError, match=r"the run's corpus is gone.*name the corpus with --corpus"):
        tandem.export(run, tmp_path / "again", to="ctranslate2")


def test_wishes_that_cannot_be_granted_are_refused_in_a_sentence(
    sure_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TandemError, match="--quantization int8: --to huggingface takes float32, float16"):
        tandem.export(sure_run, tmp_path / "model", to="huggingface", quantization="int8")
    with pytest.raises(TandemError, match="--to onnx: input should be 'ctranslate2', 'huggingface' or 'argos'"):
        tandem.export(sure_run, tmp_path / "model", to="onnx")
    with pytest.raises(TandemError, match="nothing averaged yet"):
        tandem.export(sure_run, tmp_path / "model", to="ctranslate2", checkpoint="averaged")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(TandemError, match=r"--to argos: onnx is not installed; pip install 'tandem-nmt\[export\]'"):
        tandem.export(sure_run, tmp_path / "model", to="argos")
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_is_no_transformer_is_refused(sure_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(sure_run, run)
    config = (run / "config.yaml").read_text().replace("kind: transformer", "kind: tests.exporting.odd_parts:Shapeless")
    (run / "config.yaml").write_text(config)
    with pytest.raises(TandemError, match="only the Transformer can be put into another program's form"):
        tandem.export(run, tmp_path / "model", to="ctranslate2")


def test_without_transformers_the_files_are_read_back(
    sure_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    result = tandem.export(sure_run, tmp_path / "model", to="huggingface")
    assert result.check.program.startswith("Tandem, from the files read back (install transformers")
    assert (result.check.identical, result.check.lines) == (200, 200)
    assert result.check.log_probability_difference < 1e-4


def test_an_export_whose_replacement_was_killed_is_put_back(tmp_path: Path) -> None:
    hidden = tmp_path / ".en-de.exporting"
    (hidden / REPLACED).mkdir(parents=True)
    (hidden / REPLACED / "model.bin").write_bytes(b"old")
    with staged(tmp_path / "en-de") as staging:
        assert list(staging.iterdir()) == []
        with pytest.raises(TandemError, match="exists already"):
            check_place(tmp_path / "en-de", replace=False, is_one=lambda path: True)
    assert [path.name for path in tmp_path.iterdir()] == ["en-de"]
    assert (tmp_path / "en-de" / "model.bin").read_bytes() == b"old"


def test_an_exported_folder_is_used_without_pytorch(sure_run: Path, tmp_path: Path) -> None:
    """A small computer has neither the memory nor the time for it."""
    tandem.export(sure_run, tmp_path / "en-de", to="ctranslate2")
    code = (
        "import sys, tandem, tandem.serving.run_server\n"
        "assert tandem.Translator.load(sys.argv[1]).translate(['I see a dog.'])[0]\n"
        "print('torch' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code, tmp_path / "en-de"], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"


def test_an_export_whose_replacement_fails_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandem.exporting.whole_export.fsync_path", lambda path: None)
    place = tmp_path / "en-de"
    place.mkdir()
    (place / "model.bin").write_bytes(b"old")
    # The new one is not there to be renamed, after the old one has lost its name.
    with staged(place) as staging, pytest.raises(FileNotFoundError):
        put_in_place(staging / "made", place)
    assert [path.name for path in tmp_path.iterdir()] == ["en-de"]
    assert (place / "model.bin").read_bytes() == b"old"


@pytest.mark.parametrize(
    ("out", "message"), [(".", "exists already; choose another --out"), ("/", "cannot be an export")]
)
def test_places_that_are_none(
    sure_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, message: str
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "file").touch()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(TandemError, match=message):
        tandem.export(sure_run, out, to="ctranslate2")
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_a_package_goes_into_a_folder_that_is_there_and_gets_its_ending(sure_run: Path, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    inside = tandem.export(sure_run, tmp_path / "here", to="argos")
    assert inside.path == tmp_path / "here" / "translate-en_de-1_0.argosmodel"
    beside = tandem.export(sure_run, tmp_path / "there", to="argos")
    assert beside.path == tmp_path / "there.argosmodel"
