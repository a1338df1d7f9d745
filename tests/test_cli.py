"""The command line from end to end on a few lines of text: what a person or a program would see."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import tandem
from tandem.cli import command_line
from tandem.corpus.prepared import PreparedCorpus
from tests.conftest import TINY

Tandem = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run_tandem(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tandem:
    """Runs the command line in this process: exit code, standard output, standard error."""

    def run(*arguments: object, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tandem", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as end:
            command_line.main()
        code = end.value.code
        captured = capsys.readouterr()
        return (int(code) if code is not None else 0), captured.out, captured.err

    return run


def test_prepare(run_tandem: Tandem, demo_text: Path, tmp_path: Path) -> None:
    files = [
        *("--train", demo_text / "train.en", demo_text / "train.de"),
        *("--dev", demo_text / "dev.en", demo_text / "dev.de"),
    ]
    code, out, err = run_tandem("prepare", *files, "--out", tmp_path / "corpus", "--json")
    assert code == 0
    facts = json.loads(out)
    assert facts["splits"]["train"]["source"]["raw"]["lines"] == 400
    assert "learn vocabulary" in err
    code, out, err = run_tandem("prepare", *files, "--out", tmp_path / "corpus")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "--overwrite" in err
    code, out, _ = run_tandem("prepare", *files, "--out", tmp_path / "corpus", "--overwrite", "corpus.vocab_size=500")
    assert code == 0
    assert re.search(r"train en +400 +0\.\d\d +400 ", out), out
    assert "500 pieces" in out


@pytest.mark.slow
def test_prepare_from_a_description(run_tandem: Tandem, demo_text: Path, tmp_path: Path) -> None:
    names = [f"{split}.{language}" for split in ("train", "dev") for language in ("en", "de")]
    described = {
        "source": "en",
        "target": "de",
        "files": {name: {"path": str(demo_text / name)} for name in names},
        "train": [{"source": {"file": "train.en"}, "target": {"file": "train.de"}}],
        "dev": {"source": {"file": "dev.en"}, "target": {"file": "dev.de"}},
    }
    description = tmp_path / "mine.yaml"
    description.write_text(yaml.safe_dump(described))
    command = ["prepare", "--from", description, "--cache", tmp_path / "cache", "corpus.vocab_size=600", "--json"]
    code, out, _ = run_tandem(*command, "--out", tmp_path / "described")
    assert code == 0
    facts = json.loads(out)
    assert facts["origin"] == "mine"
    assert [file["name"] for file in facts["splits"]["train"]["source"]["inputs"]] == ["train.en"]
    pair = ("--train", demo_text / "train.en", demo_text / "train.de")
    dev = ("--dev", demo_text / "dev.en", demo_text / "dev.de")
    code, out, _ = run_tandem("prepare", *pair, *pair, *dev, "--out", tmp_path / "twice", "--explain", 2, "--json")
    assert code == 0
    facts = json.loads(out)
    assert facts["splits"]["train"]["dropped"]["duplicate"] == 400
    assert [example["line"] for example in facts["examples"]["duplicate"]] == [101, 301]
    code, out, _ = run_tandem("prepare", *pair, *pair, *dev, "--out", tmp_path / "twice", "--explain", 1, "--overwrite")
    assert code == 0
    assert "an equal pair came before" in out


def test_prepare_without_text(run_tandem: Tandem, tmp_path: Path) -> None:
    for arguments, said in (
        ((), "--train is missing"),
        (("--train", "a.en", "a.de"), "--dev is missing"),
        (("--from", "wmt16-en-de", "--train", "a.en", "a.de"), "leave out --train"),
        (("--offline", "there"), "name it with --from"),
        (("--from", "nothing"), "neither a corpus that Tandem knows"),
    ):
        code, out, err = run_tandem("prepare", *arguments, "--out", tmp_path / "corpus")
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert said in err


def test_corpora(run_tandem: Tandem) -> None:
    code, out, _ = run_tandem("corpora")
    assert code == 0
    assert "wmt16-en-de" in out
    assert "1,651 MB" in out
    code, out, _ = run_tandem("corpora", "--json")
    assert code == 0
    assert set(json.loads(out)) == {"wmt16-en-de", "multi30k-en-de", "tatoeba-en-de"}


def test_train_as_a_program_reads_it(run_tandem: Tandem, tiny_corpus: PreparedCorpus, tmp_path: Path) -> None:
    settings = [*TINY, "train.max_steps=2"]
    command = ["train", "demo", *settings, "--corpus", tiny_corpus.directory, "--run", tmp_path / "run", "--json"]
    code, out, err = run_tandem(*command)
    assert code == 0
    answer = json.loads(out)
    assert (answer["step"], answer["reason"]) == (2, "finished")
    # People's lines do not disturb the program's answer.
    assert "step 2/2" in err


@pytest.mark.parametrize(("options", "split", "lines"), [((), "test", 20), (("--split", "dev"), "dev", 20)])
def test_evaluate(run_tandem: Tandem, trained: Path, options: tuple[str, ...], split: str, lines: int) -> None:
    code, out, _ = run_tandem("evaluate", trained, "--json", *options)
    assert code == 0
    answer = json.loads(out)
    assert (answer["split"], answer["sentences"]) == (split, lines)
    assert 0 <= answer["bleu"] <= 100
    assert "tok:13a" in answer["signature"]
    code, out, _ = run_tandem("evaluate", trained, *options, "search.beam=1")
    assert code == 0
    assert f"{split} BLEU" in out
    assert "tok:13a" in out


def test_translate_arguments_and_standard_input_alike(run_tandem: Tandem, trained: Path) -> None:
    sentences = ["The dog sleeps.", "I see a cat."]
    _, from_arguments, _ = run_tandem("translate", trained, *sentences)
    _, from_input, _ = run_tandem("translate", trained, stdin="\n".join(sentences).encode())
    assert from_arguments == from_input
    assert from_arguments.count("\n") == 2
    _, as_json, _ = run_tandem("translate", trained, "--json", *sentences)
    answers = [json.loads(line) for line in as_json.splitlines()]
    assert [answer["source"] for answer in answers] == sentences
    assert [answer["translation"] for answer in answers] == from_arguments.splitlines()


def test_translate_keeps_lines_in_step(run_tandem: Tandem, trained: Path) -> None:
    _, out, _ = run_tandem("translate", trained, stdin=b"I see a cat.\n\n   \nThe dog sleeps.\n")
    lines = out.split("\n")
    assert len(lines) == 5
    assert lines[1] == lines[2] == ""


def test_translate_takes_settings_as_every_command_does(run_tandem: Tandem, trained: Path) -> None:
    answers = [
        run_tandem("translate", trained, "search.beam=1", "I see a cat."),
        run_tandem("translate", trained, "I see a cat.", "--set", "search.beam=1"),
        run_tandem("translate", trained, "search.beam=1", stdin=b"I see a cat.\n"),
    ]
    assert answers[0][0] == 0
    assert len({out for _, out, _ in answers}) == 1
    for command in (("evaluate", trained), ("score", trained), ("config", "show", "demo")):
        code, _, err = run_tandem(*command, "--set", "search.beam=0")
        assert code == 2
        assert "search.beam: should be greater than or equal to 1" in err


def test_a_sentence_that_looks_like_a_setting_is_asked_about(run_tandem: Tandem, trained: Path) -> None:
    code, out, err = run_tandem("translate", trained, "my.thing=1")
    assert (code, out) == (2, "")
    assert err == (
        "tandem: my.thing=1: a sentence or a setting? There is no setting of that name; to translate it, "
        "give it on standard input\n"
    )
    assert run_tandem("translate", trained, stdin=b"my.thing=1\n")[0] == 0
    assert run_tandem("translate", trained, "E = mc2 is what he said.")[0] == 0


def test_translate_a_file_into_a_file(run_tandem: Tandem, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("I see a cat.\n\nThe dog sleeps.\n")
    code, out, _ = run_tandem("translate", trained, "--input", tmp_path / "in", "--output", tmp_path / "out")
    assert (code, out) == (0, "")
    _, expected, _ = run_tandem("translate", trained, "I see a cat.", "", "The dog sleeps.")
    assert (tmp_path / "out").read_text() == expected
    code, _, err = run_tandem("translate", trained, "A cat.", "--input", tmp_path / "in")
    assert code == 2
    assert "sentences were given, too" in err


def test_score(run_tandem: Tandem, trained: Path, demo_text: Path) -> None:
    run_tandem("translate", trained, "-i", demo_text / "test.en", "-o", trained / "test.out")
    code, from_run, _ = run_tandem("score", trained, "--json")
    assert code == 0
    scores = json.loads(from_run)["scores"]
    assert [score["metric"] for score in scores] == ["BLEU", "chrF2", "TER"]
    files = ("--hypotheses", trained / "test.out", "--references", demo_text / "test.de")
    assert json.loads(run_tandem("score", *files, "--json")[1])["scores"] == scores
    code, text, _ = run_tandem("score", *files)
    assert text.splitlines()[1] == f"    {scores[0]['signature']}"
    (trained / "test.marked").write_bytes(b"\xef\xbb\xbf" + (trained / "test.out").read_bytes())
    marked = ("--hypotheses", trained / "test.marked", "--references", demo_text / "test.de")
    assert json.loads(run_tandem("score", *marked, "--json")[1])["scores"] == scores
    assert run_tandem("score") == (2, "", "tandem: give a RUN, or --hypotheses and --references\n")
    assert run_tandem("score", trained, "--hypotheses", "x")[0] == 2
    assert run_tandem("score", trained, "--split", "train")[2] == "tandem: --split train: choose dev or test\n"


def test_translate_names_the_line_that_is_not_utf8(run_tandem: Tandem, trained: Path) -> None:
    code, _, err = run_tandem("translate", trained, stdin=b"I see a cat.\ncaf\xe9\n")
    assert code == 2
    assert err == (
        "tandem: standard input:2: not UTF-8 (byte 4 of the line is 0xe9); "
        "convert it, for example with iconv -f LATIN1 -t UTF-8\n"
    )


@pytest.mark.parametrize("override", ["model.heads=4", "train.seed=3"])
def test_a_trained_model_is_what_it_is(run_tandem: Tandem, trained: Path, override: str) -> None:
    code, _, err = run_tandem("evaluate", trained, override)
    assert code == 2
    assert f"{override}: a trained run takes only search., evaluation., batch. settings" in err


@pytest.mark.slow
def test_of_many_processes_one_answers(trained: Path) -> None:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "tandem", "--"]
    command = [sys.executable, *launcher, "evaluate", str(trained), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["split"] == "test"


@pytest.mark.slow
def test_a_launched_command_answers_a_program_plainly(trained: Path) -> None:
    command = [sys.executable, "-m", "tandem", "launch", "-H", "localhost:1", "--", "evaluate", str(trained), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["split"] == "test"


def test_average(run_tandem: Tandem, trained: Path) -> None:
    code, out, _ = run_tandem("average", trained, "--json")
    assert code == 0
    assert json.loads(out)["averaged_steps"] == [8, 12]
    code, out, _ = run_tandem("evaluate", trained, "--checkpoint", "averaged", "--json")
    assert code == 0
    assert json.loads(out)["checkpoint"].endswith("averaged")
    code, _, err = run_tandem("average", trained, "--last", "5")
    assert code == 2
    assert "checkpoint.keep_last=5" in err


def test_report_writes_a_page_beside_the_run(run_tandem: Tandem, trained: Path) -> None:
    code, out, _ = run_tandem("report", trained, "--price-per-hour", "2")
    assert code == 0
    assert "The run finished" in out
    assert f"wrote {trained / 'report.html'}" in out
    written = json.loads((trained / "report.json").read_text(encoding="utf-8"))
    assert len(written["questions"]) == 11
    assert "Was the network the bottleneck?" in (trained / "report.md").read_text(encoding="utf-8")
    assert "plotly" in (trained / "report.html").read_text(encoding="utf-8")


def test_report_as_a_program_reads_it(run_tandem: Tandem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    curve = tmp_path / "curve.csv"
    curve.write_text("epoch,valid_loss\n" + "".join(f"{epoch},{2 + 4 / epoch}\n" for epoch in range(1, 30)))
    code, out, err = run_tandem("report", curve, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["questions"][1]["verdict"] == "improving"
    assert [path.name for path in tmp_path.iterdir()] == ["curve.csv"]
    assert run_tandem("report", curve)[0] == 0
    assert (tmp_path / "report-curve/report.html").is_file()
    curve.write_bytes(bytes(100))
    code, out, err = run_tandem("report", curve, "--json")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_watch_once(run_tandem: Tandem, trained: Path) -> None:
    code, out, _ = run_tandem("watch", trained, "--once")
    assert code == 0
    assert "finished" in out
    assert "12" in out


@pytest.mark.slow
def test_doctor_with_settings_it_would_not_start(
    run_tandem: Tandem, tiny_corpus: PreparedCorpus, tmp_path: Path
) -> None:
    command = ["doctor", "demo", *TINY, "--corpus", tiny_corpus.directory, "--run", tmp_path / "run", "--json"]
    code, out, err = run_tandem(*command)
    diagnosis = json.loads(out)
    assert code == int(diagnosis["advises_against"]) == 0, diagnosis["reasons_against"]
    assert "steps without exchange" in err
    # More checkpoints than any disk holds.
    code, out, _ = run_tandem(*command, "checkpoint.keep_last=1000000000")
    assert code == 1
    assert "make room" in " ".join(json.loads(out)["reasons_against"])


def test_config_show_prints_what_config_reads(run_tandem: Tandem, tmp_path: Path) -> None:
    code, out, _ = run_tandem("config", "show", "transformer-base", "train.max_steps=5")
    assert code == 0
    assert "# Steps after which training ends." in out
    assert yaml.safe_load(out)["train"]["max_steps"] == 5
    (tmp_path / "mine.yaml").write_text(out)
    _, again, _ = run_tandem("config", "show", tmp_path / "mine.yaml")
    assert again == out
    _, as_json, _ = run_tandem("config", "show", "small", "--json")
    assert json.loads(as_json)["model"]["d_model"] == 256


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("translate", "nowhere", "x"), ["nowhere: no such directory", "tandem train"]),
        (("evaluate", "nowhere"), ["nowhere: no such directory"]),
        (
            ("config", "show", "giant"),
            ["giant: neither a preset (demo, small, tiny, transformer-base, transformer-big)"],
        ),
        (("train", "demo", "--corpus", "nowhere", "--run", "run"), ["nowhere", "tandem prepare"]),
        (("train", "demo", "train.max_step=3", "--corpus", "x", "--run", "run"), ["did you mean train.max_steps?"]),
    ],
)
def test_a_users_fault_is_one_message_and_exit_code_2(
    run_tandem: Tandem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run_tandem(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("tandem: ")
    assert "Traceback" not in err
    for word in words:
        assert word in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("choice", ["bset", "averaged"])
def test_a_checkpoint_that_is_not_there(
    run_tandem: Tandem, tiny_corpus: PreparedCorpus, tmp_path: Path, choice: str
) -> None:
    run_tandem(
        "train", "demo", *TINY, "train.max_steps=1", "--corpus", tiny_corpus.directory, "--run", tmp_path / "run"
    )
    code, _, err = run_tandem("translate", tmp_path / "run", "--checkpoint", choice, "Hello.")
    assert code == 2
    assert "neither best, last, averaged" in err if choice == "bset" else "tandem average" in err


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["train", "--help"], ["compare", "--help"], ["config", "show", "demo"]]
)
def test_what_does_not_compute_does_not_import_torch(arguments: list[str]) -> None:
    """Rule 9: torch takes seconds to import."""
    check = (
        "import sys; from tandem.cli.command_line import main\n"
        "try: main()\nfinally: print('torch' in sys.modules, file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", check, *arguments], capture_output=True, text=True, check=True)
    assert ended.stderr == "False\n"
    assert ended.stdout


def test_version(run_tandem: Tandem) -> None:
    assert run_tandem("--version") == (0, f"tandem {tandem.__version__}\n", "")


@pytest.mark.slow
def test_a_program_with_pytorch_ends_without_taking_python_down() -> None:
    """Otherwise one of gloo's threads may abort it, after everything has gone well."""
    code = "import atexit, sys, torch; atexit.register(print, 'down'); sys.argv = ['tandem', '--version']; "
    ended = subprocess.run(
        [sys.executable, "-c", f"{code} from tandem.cli.command_line import program; program()"],
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout) == (0, f"tandem {tandem.__version__}\n")
