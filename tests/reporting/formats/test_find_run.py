"""What a path holds: recognised by content, mixed directories, and bad input that gets one clear sentence."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tandem.errors import TandemError
from tandem.reporting.formats.find_run import read_run
from tests.reporting.formats import test_fairseq, test_joeynmt, test_marian, test_openseq2seq
from tests.reporting.formats.events import write_events

LOGS = {
    "OpenSeq2Seq log": test_openseq2seq.START + test_openseq2seq.progress(0, 50),
    "JoeyNMT run": test_joeynmt.NEWER,
    "fairseq log": test_fairseq.OLDER,
    "Marian log": test_marian.PROGRESS,
    "table": "epoch,train_loss,valid_loss\n1,5.0,4.5\n2,4.0,3.5\n",
}


@pytest.mark.parametrize("source", LOGS)
def test_the_content_tells_and_not_the_name(tmp_path: Path, source: str) -> None:
    path = tmp_path / "notes.bin"
    path.write_text(LOGS[source])
    assert read_run(path).source == source


@pytest.mark.parametrize("source", LOGS)
def test_text_around_and_bytes_that_are_no_text(tmp_path: Path, source: str) -> None:
    path = tmp_path / "log"
    around = b"" if source == "table" else b"hello from the scheduler\nW\xfc\xffrde\n\n"
    path.write_bytes(around + LOGS[source].encode() + around + b"\xe2\x96")
    assert read_run(path).source == source


@pytest.mark.parametrize("source", LOGS)
def test_a_log_written_as_utf16(tmp_path: Path, source: str) -> None:
    path = tmp_path / "log"
    path.write_text(LOGS[source], encoding="utf-16")
    record = read_run(path)
    assert record.source == source
    assert record.last_step > 0


@pytest.mark.parametrize("source", LOGS)
def test_any_cut_ends_in_a_record_or_a_sentence(tmp_path: Path, source: str) -> None:
    path = tmp_path / "log"
    text = LOGS[source].encode()
    for kept in random.Random(4).sample(range(len(text)), 25):
        path.write_bytes(text[:kept])
        try:
            read = read_run(path).source
        except TandemError as error:
            read = str(error)
        assert read == source or str(path) in read


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b"  \n\n\t\n", "empty"),
        (bytes(range(256)) * 40, "binary"),
        (b"\x7fELF\x02\x01\x01\0\0", "binary"),
        (b"Dear diary,\ntoday nothing was trained.\n", "none of the logs"),
        (b"name,colour\nfox,red\n", "none of the logs"),
        (b"It starts under torchrun, mpirun and srun.\n", "none of the logs"),
        (b"x" * 300_000, "none of the logs"),
        (b"step,loss\n", "names of columns but no row: wait until"),
        (b"10,5.5\n20,4.5\n", "without names of its columns: write them in a first line"),
        (b"10;5,5;\n", "without names of its columns"),
        (b"{}\n", "none of the logs"),
    ],
)
def test_what_is_no_run_gets_a_sentence(tmp_path: Path, content: bytes, word: str) -> None:
    path = tmp_path / "thing"
    path.write_bytes(content)
    with pytest.raises(TandemError, match=word) as raised:
        read_run(path)
    assert "JoeyNMT validations.txt" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_no_such_path_and_nothing_in_a_directory(tmp_path: Path) -> None:
    with pytest.raises(TandemError, match="no such file"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(TandemError, match="holds no run"):
        read_run(tmp_path)
    (tmp_path / "notes.txt").write_text("nothing\n")
    with pytest.raises(TandemError, match="holds no run"):
        read_run(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(LOGS["Marian log"])
    path.chmod(0)
    with pytest.raises(TandemError, match="cannot be read"):
        read_run(path)


def test_a_directory_with_one_log_among_other_files(tmp_path: Path) -> None:
    (tmp_path / "README.txt").write_text("words\n")
    (tmp_path / "weights.bin").write_bytes(bytes(100))
    (tmp_path / "nohup.out").write_text(LOGS["OpenSeq2Seq log"])
    record = read_run(tmp_path)
    assert record.path == str(tmp_path / "nohup.out")
    assert record.problems == ()


def test_a_tandem_run_is_known_by_its_journal(tmp_path: Path) -> None:
    journal = tmp_path / "runs" / "one" / "journal" / "rank-0.jsonl"
    journal.parent.mkdir(parents=True)
    journal.write_text('{"time": "2026-01-02T00:00:59+00:00", "kind": "noticed", "step": 1, "message": "x"}\n')
    (tmp_path / "runs" / "one" / "tensorboard").mkdir()
    for path in (journal, journal.parents[1], tmp_path / "runs"):
        record = read_run(path)
        assert (record.source, record.path) == ("Tandem run", str(journal.parents[1]))


def test_mixed_runs_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(LOGS["Marian log"])
    (tmp_path / "b.log").write_text(LOGS["OpenSeq2Seq log"])
    write_events(tmp_path / "old", [("loss", 1, 5.0, 1e9)])
    record = read_run(tmp_path)
    (problem,) = record.problems
    left_out = {"a.log", "b.log", "old"} - {Path(record.path).name}
    assert all(str(tmp_path / name) in problem for name in left_out)
    assert "To read one of them: tandem report" in problem


def test_a_table_for_each_side_is_one_run(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("epoch,loss,ppl\n1,5.0,148.0\n2,4.0,54.0\n")
    (tmp_path / "valid.log").write_text("epoch,loss,ppl\n1,4.5,90.0\n2,3.5,33.0\n")
    record = read_run(tmp_path)
    assert list(record.train_loss.values) == [5.0, 4.0]
    assert list(record.eval_loss.values) == [4.5, 3.5]
    assert record.problems == ()


def test_many_runs_and_deep_directories_end_soon(tmp_path: Path) -> None:
    for number in range(20):
        place = tmp_path / f"run-{number:02}"
        place.mkdir()
        (place / "log.csv").write_text("step,loss\n" + "".join(f"{step},5.0\n" for step in range(1, number + 2)))
    deep = tmp_path.joinpath(*"abcdefg")
    deep.mkdir(parents=True)
    (deep / "log.csv").write_text("step,loss\n" + "1,5.0\n" * 1000)
    record = read_run(tmp_path)
    assert record.path == str(tmp_path / "run-19" / "log.csv")
    assert "and 14 more" in record.problems[-1]


def test_torch_is_not_imported(tmp_path: Path) -> None:
    write_events(tmp_path, [("loss", 1, 5.0, 1e9)])
    code = (
        "import sys; from pathlib import Path; from tandem.reporting.formats.find_run import read_run; "
        "import tandem.reporting.formats.tandem_run, tandem.translation.translator; "
        f"read_run(Path({str(tmp_path)!r})); print('torch' in sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout == "False\n"
    assert printed.stderr == ""


@pytest.mark.parametrize("name", ["events.out.tfevents.1.x", "events.out.tfevents.9999999999.x"])
def test_a_link_to_an_event_file_that_is_gone(tmp_path: Path, name: str) -> None:
    write_events(tmp_path, [("loss", step, 5.0, 1e9 + step) for step in range(1, 6)])
    (tmp_path / name).symlink_to(tmp_path / "gone")
    record = read_run(tmp_path)
    assert len(record.train_loss) == 5
    assert any(str(tmp_path / name) in problem for problem in record.problems)


FAULTS = {
    "OpenSeq2Seq log": ("ResourceExhaustedError: OOM when allocating\n", "ValueError: no such file.\n"),
    "JoeyNMT run": ("RuntimeError: CUDA out of memory. Tried\n",),
    "fairseq log": ("RuntimeError: CUDA out of memory.\n", "FloatingPointError: Minimum loss scale reached.\n"),
    "Marian log": ("[2022] Error: CUDA error 2 'out of memory'\n", "[2022] Error: Aborted from here.\n"),
    "mpirun console log": ("ORTE was unable to reliably start one or more daemons.\n",),
}


@pytest.mark.parametrize(("source", "fault"), [(source, fault) for source in FAULTS for fault in FAULTS[source]])
def test_a_failure_goes_on_behind_the_run_crashed(tmp_path: Path, source: str, fault: str) -> None:
    path = tmp_path / "log"
    path.write_text(LOGS.get(source, "") + fault)
    record = read_run(path)
    assert (record.source, record.state) == (source, "crashed")
    assert re.match(r"it (?:ran|was)|mpirun never", record.failure or "")
    assert not (record.failure or "").endswith(".")
