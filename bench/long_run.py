"""Whether a long training stays as it began: memory, open files and step time over thousands of steps; its journal.

    python -m bench.long_run [--steps 20000]

Trains a small model on the toy grammar in this process, with the journal, the sampler, evaluations and checkpoints of
any other run, and looks at the process at every log line. It prints the first and the last tenth, a verdict, and what
the journal takes: bytes for 1,000 steps, and for 30 days by the size of its lines.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import psutil
import torch

from tandem.config import Config
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.text_files import CorpusTexts
from tandem.demo import write_demo_text
from tandem.layout import journal_name
from tandem.monitor import sampler
from tandem.monitor.journal_reader import kind_of
from tandem.monitor.records import Progressed, Record, Sampled, Surveyed
from tandem.monitor.views import View
from tandem.training import host_monitor, loop

# So small that 20,000 steps take minutes; everything around the model is as large as ever.
SMALL = (
    *("model.encoder_layers=1", "model.decoder_layers=1", "model.d_model=32", "model.heads=2", "model.d_ff=64"),
    *("batch.tokens=256", "batch.micro_batches=1", "train.log_every=100", "schedule.kind=inverse_sqrt"),
    *("evaluation.every_steps=1000", "checkpoint.every_steps=1000", "search.beam=1", "train.precision=float32"),
)
# What the allocator keeps and what this bench itself remembers; a leak of a kilobyte a step would be 20 MB.
GROWTH_BYTES = 8_000_000
# Other programs make steps slower, and only in one half of the run.
SLOWER = 1.2
DAYS, DAY = 30, 86_400


class Look:
    """The process at a log line."""

    def __init__(self, record: Progressed) -> None:
        process = psutil.Process()
        self.memory, self.files, self.threads = process.memory_info().rss, process.num_fds(), process.num_threads()
        self.step_seconds = record.step_seconds


class Watcher(View):
    """Looks at the process at every log line."""

    def __init__(self) -> None:
        self.looks: list[Look] = []

    def show(self, record: Record) -> None:
        if isinstance(record, Progressed):
            self.looks.append(Look(record))
            if record.step % 1000 == 0:
                print(describe(f"step {record.step:,}", self.looks[-10:]), flush=True)


def describe(name: str, looks: Sequence[Look]) -> str:
    memory = statistics.median(look.memory for look in looks) / 1e6
    step = 1000 * statistics.median(look.step_seconds for look in looks)
    files, threads = (max(values) for values in zip(*((look.files, look.threads) for look in looks), strict=True))
    return f"{name}: {memory:.1f} MB resident, {files} open files, {threads} threads, {step:.2f} ms a step"


def verdict(first: Sequence[Look], last: Sequence[Look]) -> str:
    faults = []
    memory = [statistics.median(look.memory for look in looks) for looks in (first, last)]
    if memory[1] - memory[0] > GROWTH_BYTES:
        faults.append(f"memory grew by {(memory[1] - memory[0]) / 1e6:.1f} MB")
    if max(look.files for look in last) > max(look.files for look in first):
        faults.append("more files are open")
    if max(look.threads for look in last) > max(look.threads for look in first):
        faults.append("more threads run")
    # The fastest of each tenth, because another program can only make them slower.
    fastest = [min(look.step_seconds for look in looks) for looks in (first, last)]
    if fastest[1] > SLOWER * fastest[0]:
        faults.append(f"steps take {fastest[1] / fastest[0]:.2f} times as long")
    return "not flat: " + "; ".join(faults) if faults else "flat"


def month_bytes(sizes: dict[str | None, list[int]], seconds_a_log_line: float) -> float:
    """Bytes that a host's journal takes in 30 days, by the mean size of its lines."""
    later = {Sampled.kind: sampler.LATER_EVERY_SECONDS, Surveyed.kind: host_monitor.LATER_EVERY_SECONDS}
    later[Progressed.kind] = seconds_a_log_line
    return sum(statistics.mean(sizes[kind]) * DAYS * DAY / every for kind, every in later.items() if sizes[kind])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--steps", type=int, default=20_000)
    steps = arguments.parse_args().steps
    torch.set_num_threads(1)  # steps of a few milliseconds only wait for a second thread
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_demo_text(directory)
        train, dev = ((directory / f"{split}.en", directory / f"{split}.de") for split in ("train", "dev"))
        config = Config.load("demo", [*SMALL, f"train.max_steps={steps}"])
        corpus = prepare(CorpusTexts([train], dev), directory / "corpus", config.corpus)
        watcher = Watcher()
        ended = loop.train(config, corpus.directory, directory / "run", [watcher])
        journal = directory / "run/journal" / journal_name(0)
        sizes: dict[str | None, list[int]] = defaultdict(list)
        for line in journal.read_bytes().splitlines(keepends=True):
            sizes[kind_of(line)].append(len(line))
    tenth = max(len(watcher.looks) // 10, 1)
    # What is loaded at the first use, as at the first evaluation, is no leak: the second tenth is the beginning.
    first, last = watcher.looks[tenth : 2 * tenth] or watcher.looks, watcher.looks[-tenth:]
    print(f"{ended.step:,} steps on {os.cpu_count()} cores, {ended.reason}")
    print(describe("second tenth", first))
    print(describe("last tenth  ", last))
    print(f"verdict: {verdict(first, last)}")
    print(f"journal: {1000 * sum(map(sum, sizes.values())) / ended.step:,.0f} bytes for 1,000 steps")
    for kind, lengths in sorted(sizes.items(), key=lambda item: -sum(item[1])):
        print(f"  {len(lengths):,} x {kind}, {statistics.mean(lengths):,.0f} bytes each")
    for what, seconds in (("100 s", 100.0), ("10 s", 10.0)):
        print(f"{DAYS} days, one host, a log line every {what}: {month_bytes(sizes, seconds) / 1e6:,.0f} MB")


if __name__ == "__main__":
    main()
