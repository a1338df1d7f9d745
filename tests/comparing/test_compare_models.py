"""`tandem compare` for real: tiny trained runs, an exported model and files, once and again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tandem.corpus.prepared import PreparedCorpus
from tests import warm
from tests.comparing.conftest import Runs
from tests.comparing.copies import copied_run

pytestmark = pytest.mark.slow


def compare(*arguments: object, directory: Path, fails: bool = False) -> tuple[str, str]:
    """Standard output and error of the command, as users run it."""
    command = [sys.executable, "-m", "tandem", "compare", *map(str, arguments)]
    ended = warm.run(command, cwd=directory)
    assert ended.returncode == (2 if fails else 0), ended.stderr
    return ended.stdout, ended.stderr


def as_json(*arguments: object, directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(compare(*arguments, "--json", directory=directory)[0])
    return found


def test_two_runs_once_and_again(runs: Runs, tmp_path: Path) -> None:
    first, other = (copied_run(run, tmp_path / run.name) for run in (runs.first_seed, runs.other))
    out, err = compare(first, other, directory=tmp_path)
    assert out.startswith("wide against narrow-1, test set of corpus: 20 sentences, en to de\n")
    for words in ("Scores", "p by randomisation", "model.d_model", "One run of each", "seed:12345"):
        assert words in out
    assert "wrote compare-narrow-1-wide/compare.html, and the same as compare.md and compare.json" in out
    assert "translate wide" in err
    written = json.loads((tmp_path / "compare-narrow-1-wide/compare.json").read_text())
    assert [system["translated"] for system in written["systems"]] == [True, True]
    again = as_json(first, other, directory=tmp_path)
    assert [system["translated"] for system in again["systems"]] == [False, False]
    for key in ("contrasts", "settings", "remarks"):
        assert again[key] == written[key]
    assert [row["key"] for row in again["settings"] if row["key"].startswith("model.")] == ["model.d_model"]
    # Another search is another translation.
    wider = as_json(first, other, "search.beam=3", directory=tmp_path)
    assert [system["translated"] for system in wider["systems"]] == [True, True]
    dev = as_json(first, other, "--split", "dev", "--sentences", 1, directory=tmp_path)
    assert dev["test_set"] == "dev set of corpus"
    assert len(dev["contrasts"][0]["gained"]) <= 1


def test_seeds_are_taken_together(runs: Runs, tmp_path: Path) -> None:
    found = as_json(*runs, directory=tmp_path)
    narrow, wide = found["groups"]
    assert (narrow["name"], narrow["members"], narrow["seeds"]) == ("narrow", ["narrow-1", "narrow-2"], [1, 2])
    scores = [system["scores"][0]["value"] for system in found["systems"]]
    spread = narrow["spreads"][0]
    assert spread["mean"] == pytest.approx(sum(scores[:2]) / 2)
    assert spread["deviation"] == pytest.approx(abs(scores[0] - scores[1]) / 2**0.5)
    assert wide["spreads"][0]["deviation"] is None
    (contrast,) = found["contrasts"]
    bleu = contrast["differences"][0]
    assert bleu["difference"] == pytest.approx(scores[2] - sum(scores[:2]) / 2)
    assert (bleu["p_randomisation"], bleu["seeds"]["freedom"]) == (None, 1)
    said = " ".join(found["remarks"])
    assert "2 seeds tell little" in said
    assert "Of wide there is one" in said
    out, _ = compare(*runs, directory=tmp_path)
    assert "narrow (2 seeds)" in out


def test_runs_that_differ_by_nothing_but_their_seed(runs: Runs, tmp_path: Path) -> None:
    found = as_json(runs.first_seed, runs.second_seed, directory=tmp_path)
    assert [group["members"] for group in found["groups"]] == [["narrow-1", "narrow-2"]]
    assert [contrast["second"] for contrast in found["contrasts"]] == ["narrow-2"]
    assert "differ by their seed alone" in found["remarks"][0]


def test_a_run_beside_its_export_and_files(runs: Runs, tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    run = copied_run(runs.first_seed, tmp_path / "run")
    command = ["export", str(run), "--out", str(tmp_path / "small"), "--quantization", "int8"]
    warm.run([sys.executable, "-m", "tandem", *command], check=True)
    sources, references = tiny_corpus.text("test")
    for name, lines in (("test.en", sources), ("test.de", references), ("perfect.de", references)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    test = ("--test", tmp_path / "test.en", tmp_path / "test.de")
    found = as_json(run, tmp_path / "small", tmp_path / "perfect.de", *test, directory=tmp_path)
    assert [system["kind"] for system in found["systems"]] == ["run", "export", "translations"]
    assert found["systems"][2]["scores"][0]["value"] == pytest.approx(100)
    assert found["contrasts"][1]["verdict"] == "better"
    assert {row["key"]: row["values"] for row in found["settings"]} == {"weights": ["float32", "int8", None]}
    assert list((tmp_path / "small/translations").iterdir())
    again = as_json(tmp_path / "small", tmp_path / "perfect.de", *test, directory=tmp_path)
    assert [system["translated"] for system in again["systems"]] == [False, False]
    # What was translated beside it is no part of the export.
    warm.run([sys.executable, "-m", "tandem", "translate", str(tmp_path / "small"), "Hello."], check=True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Missing argument"),
        (("a.de",), "one model alone cannot be compared; name two or more"),
        (("a.de", "nowhere"), "nowhere: no such directory"),
        (("a.de", "b.de"), "none of these is a run, whose corpus would have a test set; give the test set with --test"),
        (("a.de", "b.de", "--test", "a.de", "none.de"), "none.de"),
        (("a.de", "b.de", "--test", "long.de", "long.de"), "a.de: 1 lines for 2 sentences of the long.de, long.de"),
        (("a.de", "b.de", "--split", "dev", "--test", "a.de", "a.de"), "give one or the other"),
        (("a.de", "a.de", "--test", "a.de", "a.de"), "the same file twice"),
    ],
)
def test_a_users_fault_is_one_sentence(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    for name, lines in (("a.de", 1), ("b.de", 1), ("long.de", 2)):
        (tmp_path / name).write_text("Hallo.\n" * lines)
    before = sorted(tmp_path.iterdir())
    out, err = compare(*arguments, directory=tmp_path, fails=True)
    assert out == ""
    assert said in err
    assert "Traceback" not in err
    if arguments:
        assert err.startswith("tandem: ")
        assert err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_files_alone_are_compared_without_pytorch(tmp_path: Path) -> None:
    for name in ("a.de", "b.de", "ref.de"):
        (tmp_path / name).write_text(f"Hallo {name}.\nNoch eins.\n")
    code = (
        "import sys, tandem\n"
        "found = tandem.compare(['a.de', 'b.de'], test=('ref.de', 'ref.de'))\n"
        "tandem.write_comparison(found, 'out')\n"
        "print(found.contrasts[0].verdict, 'torch' in sys.modules)"
    )
    # A process that was not started by one that has PyTorch already.
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout == "unclear False\n"
    assert (tmp_path / "out/compare.html").is_file()
