"""Raw text to a corpus ready for training, at the size of WMT16: time, memory, growth, and what training waits for.

    python -m bench.prepare [--pairs 4500000] [--only size old training interrupt]

The text is made first (`bench.prepare_text`). Then, each by `tandem prepare` as a user runs it, start-up included:

    size       all pairs, and a tenth of them before and after: seconds, stages, memory, and how both grow
    old        the old way's steps with the same libraries (`bench.old_way`) and ours, in turns, on 500,000 pairs
    training   steps of `small` from the shards, and how long they take to open, after the system has forgotten them
    interrupt  killed three times and continued, then compared with a prepare left alone, file by file

Memory is that of all processes together, looked at five times a second; what several of them share counts once, and
a mapped file counts as far as it is in memory. Stages are told by what is written while they run. The vocabulary is
the recipe's in all of it. Needs a quiet machine, and with all pairs 5 GB of disk and 20 minutes or more.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import IO

import psutil
from rich.console import Console
from rich.table import Table

from bench.prepare_text import MadeText, make_text, read_pairs
from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.errors import TandemError
from tandem.layout import CORPUS_FILE
from tandem.training.batches import Batches
from testbed.journals import read_journal

WMT16_PAIRS = 4_500_000
OLD_WAY_PAIRS = 500_000
INTERRUPTED_PAIRS = 300_000
"""A few chunks, so that every stage has something done and something left when it is killed."""
VOCABULARY = 32_000
"""The recipe's, whatever the number of pairs: the default would be a smaller one for the smaller texts."""
ROUNDS = 2
"""Of the old way and ours in turns."""
LOOK_SECONDS = 0.2
KILLED_DURING = ("clean", "vocabulary", "encode")
"""Words in the names of stages: two that go on where they stopped, and between them one that begins again."""
STEPS, STEPS_A_LINE = 60, 10
LINES_LEFT_OUT = 1
"""The first steps allocate memory and start threads, which is no waiting for data."""
NOT_STEPS = ("evaluation", "checkpoint")
LEARNING = re.compile("vocabulary|tokenizer|words")
"""What the stages of learning a vocabulary are called."""

# What the README promises.
MOST_MINUTES, MOST_GIGABYTES = 15, 3
MOST_SLOWER, MOST_LARGER = 11, 1.25
"""Linear in time and flat in memory, but for the sample of the vocabulary, which a tenth of WMT16 does not fill."""
LEAST_FASTER = 3
MOST_WAITING = 0.01
MOST_OPENING = 1


@dataclass(frozen=True)
class Watched:
    """What a command took."""

    seconds: float
    processor_seconds: float
    peak_bytes: int
    stages: dict[str, float]
    """Seconds of each stage, in order."""
    printed: str

    def whole(self) -> float:
        return self.seconds

    def without_learning(self) -> float:
        """Seconds of all but the vocabulary."""
        return self.seconds - sum(seconds for stage, seconds in self.stages.items() if LEARNING.search(stage))


class Stages:
    """Reads what a command writes to its standard error, as it comes, and which stage lasted how long."""

    def __init__(self, stream: IO[str]) -> None:
        self._marks = [(time.perf_counter(), "start")]
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self.lines.append(line.rstrip())
            # "clean ..." begins a stage and "clean: 40 %" is still the same one.
            name = re.split(r"[\d:(]|\.\.", line.strip())[0].strip()
            if name and name != self._marks[-1][1]:
                self._marks.append((time.perf_counter(), name))

    def seconds_in(self, stage: str) -> float:
        """How long the command has been in this stage; none if it is in another."""
        moment, name = self._marks[-1]
        return time.perf_counter() - moment if name == stage else 0.0

    def seconds(self) -> dict[str, float]:
        """By stage; to be asked when the command has ended."""
        self._thread.join()
        ends = [moment for moment, _ in self._marks[1:]] + [time.perf_counter()]
        taken: dict[str, float] = {}
        for (moment, stage), end in zip(self._marks, ends, strict=True):
            taken[stage] = taken.get(stage, 0.0) + end - moment
        return taken


class Running:
    """A command at work, in a process group of its own; it does not outlast its block."""

    def __init__(self, command: Sequence[str]) -> None:
        # Past the interpreter: `-m tandem prepare`.
        self._name = " ".join(command[1:4])
        self._start, self._used_before = time.perf_counter(), os.times()
        # Lines as long as they are: a stage must not be told by half of its name.
        environment = {**os.environ, "COLUMNS": "200"}
        self._process = subprocess.Popen(
            command, stdout=PIPE, stderr=PIPE, text=True, start_new_session=True, env=environment
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stages = Stages(self._process.stderr)
        self._printed: list[str] = []
        # It would stand still once the pipe is full.
        self._reader = threading.Thread(target=self._printed.extend, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        self._peak = 0

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self.kill()

    def look(self) -> bool:
        """Look at the memory, after a moment; false when the command has ended."""
        try:
            self._process.wait(LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            self._peak = max(self._peak, memory_of(self._process.pid))
            return True
        return False

    def seconds_in(self, stage: str) -> float:
        """How long it has been in this stage; none if it is in another."""
        return self._stages.seconds_in(stage)

    def kill(self) -> None:
        """End it and all its processes at once, as a lost machine would."""
        started = psutil.Process(self._process.pid).children(recursive=True)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        psutil.wait_procs(started)

    def result(self) -> Watched:
        """What it took, once it has ended well."""
        seconds, used = time.perf_counter() - self._start, os.times()
        stages = self._stages.seconds()
        self._reader.join()
        if self._process.returncode:
            raise TandemError(f"{self._name} has failed: {' '.join(self._stages.lines[-1:])}")
        processor = used.children_user + used.children_system
        processor -= self._used_before.children_user + self._used_before.children_system
        return Watched(seconds, processor, self._peak, stages, "".join(self._printed))


def memory_of(identifier: int) -> int:
    """Bytes of memory of a process and all it has started: pages that several share are divided among them."""
    total = 0
    # Processes come and go while they are looked at.
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(identifier)
        for each in [process, *process.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                total += each.memory_full_info().pss
    return total


def watched(command: Sequence[str]) -> Watched:
    """Run a command to its end."""
    with Running(command) as running:
        while running.look():
            pass
        return running.result()


def python(module: str, *arguments: object) -> list[str]:
    """The command that runs a module."""
    return [sys.executable, "-m", module, *map(str, arguments)]


def prepare_command(text: MadeText, out: Path) -> list[str]:
    files = ("--train", *text.train, "--dev", *text.dev, "--test", *text.test)
    return python("tandem", "prepare", *files, "--out", out, f"corpus.vocab_size={VOCABULARY}")


class Bench:
    """Takes the measurements one after the other; each run is told at once, the figures at the end."""

    def __init__(self, scratch: Path, text: Path, pairs: int, console: Console) -> None:
        self._scratch, self._pairs, self._console = scratch, pairs, console
        self._sentences = read_pairs(text)
        self._texts: dict[int, MadeText] = {}
        self.figures = Table("figure", "measured", "must be", "met")

    def size(self) -> None:
        """All pairs, between two measurements of a tenth of them."""
        part, whole = self._text(self._pairs // 10), self._text(self._pairs)
        before = self._ours(part, "tenth")
        full = self._ours(whole, "full")
        after = self._ours(part, "tenth")
        self._tell_stages({"a tenth": before, "all": full, "a tenth again": after})
        minutes, gigabytes = full.seconds / 60, full.peak_bytes / 1e9
        name = f"{whole.pairs:,} pairs, {whole.bytes / 1e9:.2f} GB: time"
        self._judge(name, f"{minutes:.1f} min", f"< {MOST_MINUTES} min", minutes < MOST_MINUTES)
        name = "memory of all processes, at most"
        self._judge(name, f"{gigabytes:.2f} GB", f"< {MOST_GIGABYTES} GB", gigabytes < MOST_GIGABYTES)
        slower = full.seconds / statistics.mean((before.seconds, after.seconds))
        self._judge("time of 10 times the pairs", f"{slower:.1f}", f"<= {MOST_SLOWER}", slower <= MOST_SLOWER)
        larger = full.peak_bytes / statistics.mean((before.peak_bytes, after.peak_bytes))
        self._judge("memory of 10 times the pairs", f"{larger:.2f}", f"<= {MOST_LARGER}", larger <= MOST_LARGER)

    def old(self) -> None:
        """The old way and ours in turns."""
        text = self._text(min(OLD_WAY_PAIRS, self._pairs))
        ours, old = [], []
        for _ in range(ROUNDS):
            ours.append(self._ours(text, "ours"))
            command = python("bench.old_way", *text.train, "--out", self._fresh("old"), "--vocabulary", VOCABULARY)
            old.append(self._tell("old way", watched(command)))
        self._tell_stages({f"ours, round {number}": each for number, each in enumerate(ours, 1)})
        self._tell_stages({f"old way, round {number}": each for number, each in enumerate(old, 1)})
        kept, kept_before = len(PreparedCorpus.open(self._scratch / "ours").pairs("train")), int(old[0].printed)
        self._judge("pairs kept by both ways", f"{kept:,}, {kept_before:,}", "the same", kept == kept_before)
        faster, rest = (
            statistics.median(map(seconds, old)) / statistics.median(map(seconds, ours))
            for seconds in (Watched.whole, Watched.without_learning)
        )
        name = f"{text.pairs:,} pairs: times as fast as the old way"
        self._judge(name, f"{faster:.1f}", f">= {LEAST_FASTER}", faster >= LEAST_FASTER)
        self._judge("the same without learning the vocabulary", f"{rest:.1f}", "-", None)

    def training(self) -> None:
        """What training from all pairs waits for."""
        corpus, run = self._scratch / "full", self._fresh("run")
        if not corpus.is_dir():
            self._ours(self._text(self._pairs), "full")
        forget(corpus)
        seconds, own = opened(corpus)
        self._judge(
            "opening it, and the first batch", f"{seconds:.2f} s", f"< {MOST_OPENING} s", seconds < MOST_OPENING
        )
        self._judge("memory of the process's own that this takes", f"{own / 1e6:.0f} MB", "-", None)
        forget(corpus)
        settings = [
            f"train.max_steps={STEPS}",
            f"train.log_every={STEPS_A_LINE}",
            f"evaluation.every_steps={2 * STEPS}",
        ]
        command = python("tandem", "train", "small", "--corpus", corpus, "--run", run, *settings)
        self._tell(f"{STEPS} steps of small", watched(command))
        share, step_seconds = data_wait(run)
        name = f"data wait of small with {VOCABULARY:,} pieces, of steps of {step_seconds:.2f} s"
        self._judge(name, f"{share:.2%}", f"< {MOST_WAITING:.0%}", share < MOST_WAITING)

    def interrupt(self) -> None:
        """Killed in the middle of three stages, one after the other, and continued each time."""
        text = self._text(min(INTERRUPTED_PAIRS, self._pairs))
        alone = self._ours(text, "alone")
        self._tell_stages({"left alone": alone})
        out, killed = self._fresh("interrupted"), []
        for word in KILLED_DURING:
            stage = next(stage for stage in alone.stages if word in stage)
            with Running(prepare_command(text, out)) as running:
                while running.look():
                    if running.seconds_in(stage) >= alone.stages[stage] / 2:
                        running.kill()
                        killed.append(stage)
                        break
                else:
                    running.result()
        if not (out / CORPUS_FILE).is_file():
            self._tell("continued to the end", watched(prepare_command(text, out)))
        same = digests(out) == digests(self._scratch / "alone")
        name = f"killed {len(killed)} times ({', '.join(killed)}): its {len(digests(out))} files"
        self._judge(name, "the same" if same else "different", "the same", same and len(killed) == len(KILLED_DURING))

    def _text(self, pairs: int) -> MadeText:
        """So much text, made when it is first needed."""
        if pairs not in self._texts:
            start = time.perf_counter()
            text = self._texts[pairs] = make_text(self._scratch / f"text-{pairs}", self._sentences, pairs)
            english, german = text.different_words
            dirt = ", ".join(f"{name} {lines:,}" for name, lines in sorted(text.dirt.items()))
            self._console.print(
                f"text of {pairs:,} pairs made in {time.perf_counter() - start:.0f} s: {text.bytes / 1e6:,.0f} MB, "
                f"{text.bytes / pairs / 2:.0f} bytes a line; {text.words[0]:,} English words, {english:,} different; "
                f"{text.words[1]:,} German words, {german:,} different; dirt: {dirt}"
            )
        return self._texts[pairs]

    def _ours(self, text: MadeText, name: str) -> Watched:
        return self._tell(f"{text.pairs:,} pairs", watched(prepare_command(text, self._fresh(name))))

    def _fresh(self, name: str) -> Path:
        """A path under the scratch directory where nothing is."""
        path = self._scratch / name
        if path.is_dir():
            shutil.rmtree(path)
        return path

    def _tell(self, name: str, run: Watched) -> Watched:
        self._console.print(
            f"{name}: {run.seconds:.1f} s, {run.processor_seconds / run.seconds:.2f} processors busy, "
            f"{run.peak_bytes / 1e6:,.0f} MB"
        )
        return run

    def _tell_stages(self, runs: dict[str, Watched]) -> None:
        table = Table("seconds of the stage", *runs)
        for stage in dict.fromkeys(stage for run in runs.values() for stage in run.stages):
            table.add_row(stage, *(f"{run.stages.get(stage, 0.0):.1f}" for run in runs.values()))
        self._console.print(table)

    def _judge(self, figure: str, measured: str, limit: str, met: bool | None) -> None:
        self.figures.add_row(figure, measured, limit, {True: "yes", False: "NO", None: ""}[met])


def forget(directory: Path) -> None:
    """Have the system forget the files it keeps in memory, so that what comes next reads the disk."""
    for path in (path for path in directory.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            # Only what is safely on the disk is forgotten.
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def opened(directory: Path) -> tuple[float, int]:
    """Seconds from a corpus on the disk to the tensors of its first step, and bytes that only this process has then."""
    before, start = psutil.Process().memory_full_info().uss, time.perf_counter()
    batches = Batches.of_run(Config.load("small"), PreparedCorpus.open(directory).pairs("train"))
    for micro_batch in batches.at(1).micro_batches:
        batches.packed(micro_batch, pinned=False)
    return time.perf_counter() - start, psutil.Process().memory_full_info().uss - before


def data_wait(run: Path) -> tuple[float, float]:
    """Share of the time of steps in which a run waited for data, and the seconds of a step."""
    records = list(read_journal(run / "journal" / "rank-0.jsonl"))
    lines = [record for record in records if record["kind"] == "progressed"][LINES_LEFT_OUT:]
    seconds = sum(taken for line in lines for part, taken in line["seconds"].items() if part not in NOT_STEPS)
    return sum(line["seconds"]["data"] for line in lines) / seconds, seconds / sum(line["steps"] for line in lines)


def digests(directory: Path) -> dict[str, str]:
    """The sha256 of every file."""
    found = {}
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            found[path.relative_to(directory).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


@contextmanager
def scratch_directory(wanted: Path | None, keep: bool) -> Iterator[Path]:
    """A new directory for everything, under the one that is wanted; gone afterwards unless it is to be kept."""
    if wanted is not None:
        wanted.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="tandem-prepare-", dir=wanted)).absolute()
    try:
        yield directory
    finally:
        if not keep:
            shutil.rmtree(directory)


PARTS: dict[str, Callable[[Bench], None]] = {
    "size": Bench.size,
    "old": Bench.old,
    "training": Bench.training,
    "interrupt": Bench.interrupt,
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--text", type=Path, default=Path("../shared/corpora/tatoeba"))
    arguments.add_argument("--pairs", type=int, default=WMT16_PAIRS)
    arguments.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    arguments.add_argument("--scratch", type=Path, help="where everything is put; by default the system's own place")
    arguments.add_argument("--keep", action="store_true", help="leave everything there")
    options = arguments.parse_args()
    console = Console(width=140, highlight=False)
    if not options.text.is_dir():
        console.print(f"{options.text} is not here: the text is made from the demo grammar")
    with scratch_directory(options.scratch, options.keep) as scratch:
        bench = Bench(scratch, options.text, options.pairs, console)
        for name in options.only:
            PARTS[name](bench)
        if options.keep:
            console.print(f"everything is left in {scratch}")
    console.print(bench.figures)


if __name__ == "__main__":
    main()
