"""Two hosts and the network between them: what every way of exchanging costs at every rate.

    python -m bench.two_hosts --text ../shared/corpora/multi30k --dir runs/two-hosts

Two processes with one thread each, in network namespaces joined by a cable with a rate limit, train `small`. The
slowest rate is worked out from the first measurement, so that a plain all-reduce collapses as in the real runs
that Tandem comes from: 1.8 s a step without a limit, 30 s with one. All step times are from one call of this
script; the unlimited all-reduce, to which everything is compared, is measured first, in the middle and last.
Needs root, iproute2 and a quiet machine with two cores.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from subprocess import STDOUT
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from tandem.config import Config
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.text_files import CorpusTexts
from tandem.monitor.device_clock import now
from tandem.monitor.step_clock import Exposure, StepClock, StepPart
from testbed.journals import read_journal
from testbed.network_rig import Host, Rig, slowed

WAYS = ("allreduce", "bf16", "int4", "powersgd", "diloco", "auto")
# Seconds a step of the real run that was capped, with and without the cap.
REAL_CAPPED, REAL_FREE = 30.0, 1.8
# Log lines come this often; a multiple of it is a whole number of rounds of local steps.
STEPS_A_LINE = 16
# The first line holds the first passes through everything, which are slower.
LINES, LINES_LEFT_OUT = 2, 1
PORT = 29533
# How much of a processor the slowed process gets.
SLOWED_SHARE = 0.5
LONGEST_SECONDS = 900
SPLITS = {"train": "train", "dev": "val"}
# The blocks that a step measures: fetching, padding, computing, updating, agreeing on whether to stop.
STEP_PARTS: tuple[StepPart, ...] = ("data", "data", "compute", "optimizer", "communication")


@dataclass(frozen=True)
class Measured:
    """Some log lines of the first host."""

    way: str
    planned: str
    step_seconds: float
    sent_a_step: float
    calculated_a_step: float
    seconds: dict[str, float]
    """By part, of all lines together."""
    line_seconds: tuple[float, ...]
    """A step, line by line."""
    gap: float
    """Largest share by which the parts of a line miss the wall clock between two lines."""

    def share(self, *parts: str) -> float:
        return sum(self.seconds[part] for part in parts) / sum(self.seconds.values())


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--text", type=Path, default=Path("../shared/corpora/multi30k"))
    arguments.add_argument("--dir", type=Path, default=Path("runs/two-hosts"))
    arguments.add_argument("--rates", nargs="*", default=["100mbit"], help="Besides no limit and the collapse.")
    options = arguments.parse_args()
    corpus = options.dir / "corpus"
    if not corpus.is_dir():
        files = {name: (options.text / f"{file}.en", options.text / f"{file}.de") for name, file in SPLITS.items()}
        prepare(CorpusTexts([files["train"]], files["dev"]), corpus, Config.load("small").corpus)
    console = Console(width=140)
    with Rig() as rig:
        bench = Bench(rig, corpus, options.dir, console)
        free = [bench.measure("allreduce", None)]
        collapse = collapse_rate(free[0])
        rows: list[tuple[str, Measured]] = [("no limit", bench.measure(way, None)) for way in WAYS[1:]]
        for rate in (*options.rates, collapse):
            rows += [(rate, bench.measure(way, rate)) for way in WAYS]
            if rate != collapse:
                free.append(bench.measure("allreduce", None))
        slow = [bench.measure(way, None, slow=True) for way in ("allreduce", "diloco")]
        free.append(bench.measure("allreduce", None))
    rows = [("no limit", measured) for measured in free] + rows
    base = statistics.median(measured.step_seconds for measured in free)
    console.print(cost_table(rows, base))
    gradient = 4 * bench.parameters
    print(
        f"gradient {gradient / 1e6:.2f} MB; all-reduce of two hosts must send as much each: on the wire "
        f"{max(abs(m.sent_a_step / gradient - 1) for _, m in rows if m.way == 'allreduce'):.1%} more or less at most"
    )
    for measured in slow:
        print(
            f"{measured.way}, no limit, one process with {SLOWED_SHARE:.0%} of its processor: the other spends "
            f"{measured.share('waiting'):.1%} waiting, {measured.share('communication'):.1%} on the network"
        )
    print(f"parts of a line and the wall clock differ by {max(m.gap for _, m in rows):.2%} at most")
    print(f"bookkeeping takes {bookkeeping_seconds() / base:.3%} of a step of {base:.3f} s")


class Bench:
    """Runs one training after the other on the rig."""

    def __init__(
        self,
        rig: Rig,
        corpus: Path,
        directory: Path,
        console: Console,
        steps_a_line: int = STEPS_A_LINE,
        least_seconds: float = 0.0,
    ) -> None:
        self._rig, self._corpus, self._directory, self._console = rig, corpus, directory, console
        self._steps_a_line, self._least_seconds = steps_a_line, least_seconds
        self.parameters = 0

    def measure(self, way: str, rate: str | None, slow: bool = False) -> Measured:
        """Train until there are enough log lines, then stop."""
        self._rig.limit(rate)
        # A directory for each measurement of each call: nothing is continued.
        run = self._directory / f"{time.time_ns()}-{way}"
        lines: list[dict[str, Any]] = []
        with self._training(way, run, slow):
            for record in _arriving(run / "journal" / "rank-0.jsonl"):
                lines.append(record)
                progressed = [line for line in lines if line["kind"] == "progressed"]
                counted = sum(sum(line["seconds"].values()) for line in progressed[LINES_LEFT_OUT:])
                if len(progressed) >= LINES and counted >= self._least_seconds:
                    break
        self.parameters = next(line["parameters"] for line in lines if line["kind"] == "started")
        measured = summed_up(way, lines)
        self._console.print(
            f"{rate or 'no limit':>9}  {way:9} {measured.planned:26} {measured.step_seconds:7.3f} s/step  "
            f"{measured.sent_a_step / 1e6:7.3f} MB/step" + ("  one process slowed" if slow else "")
        )
        return measured

    @contextmanager
    def _training(self, way: str, run: Path, slow: bool) -> Iterator[None]:
        # Local steps are measured without their start, which is a matter of the first few thousand steps.
        settings = [
            f"exchange.kind={way}",
            "exchange.start_steps=0",
            f"train.log_every={self._steps_a_line}",
            "train.max_steps=100000",
        ]
        command = ["-m", "tandem", "train", "small", *settings]
        command += ["--corpus", str(self._corpus.resolve()), "--run", str(run.resolve())]
        with ExitStack() as stack:
            logs = [stack.enter_context((self._directory / f"vm{rank}.log").open("w")) for rank in (1, 2)]
            processes = [
                self._rig.run(host, pinned, environment, stdout=log, stderr=STDOUT)
                for (host, pinned, environment), log in zip(placed(self._rig, command), logs, strict=True)
            ]
            if slow:
                stack.enter_context(slowed(processes[1], SLOWED_SHARE))
            try:
                yield
            finally:
                for process in processes:
                    process.send_signal(signal.SIGKILL)
                for process in processes:
                    process.wait()


def placed(rig: Rig, arguments: Sequence[str]) -> Iterator[tuple[Host, list[str], dict[str, str]]]:
    """Python with these arguments as one process of one thread on each host, every one on a processor of its own."""
    for rank, host in enumerate(rig.hosts):
        environment = {
            "RANK": str(rank),
            "WORLD_SIZE": str(len(rig.hosts)),
            "LOCAL_RANK": "0",
            "MASTER_ADDR": rig.hosts[0].address,
            "MASTER_PORT": str(PORT),
            "OMP_NUM_THREADS": "1",
        }
        yield host, ["taskset", "-c", str(rank), sys.executable, *arguments], environment


def _arriving(journal: Path) -> Iterator[dict[str, Any]]:
    """The records of a journal as they are written."""
    seen, end = 0, time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < end:
        records = list(read_journal(journal)) if journal.exists() else []
        yield from records[seen:]
        seen = len(records)
        time.sleep(0.5)
    raise TimeoutError(f"{journal}: not enough lines within {LONGEST_SECONDS} s")


def summed_up(way: str, lines: Sequence[dict[str, Any]]) -> Measured:
    """The lines after the first few, together."""
    progressed = [line for line in lines if line["kind"] == "progressed"]
    gaps = []
    for before, after in pairwise(progressed):
        wall = (datetime.fromisoformat(after["time"]) - datetime.fromisoformat(before["time"])).total_seconds()
        gaps.append(abs(sum(after["seconds"].values()) / wall - 1))
    counted = progressed[LINES_LEFT_OUT:]
    steps = sum(line["steps"] for line in counted)
    seconds = {part: sum(line["seconds"][part] for line in counted) for part in counted[0]["seconds"]}
    planned = next(line for line in lines if line["kind"] == "planned")
    local_steps = f", {planned['local_steps']} local steps" if planned["local_steps"] > 1 else ""
    return Measured(
        way=way,
        planned=planned["exchange"] + local_steps,
        step_seconds=sum(seconds.values()) / steps,
        sent_a_step=sum(line["network_sent_bytes"] for line in counted) / steps,
        calculated_a_step=sum(line["exchanged_bytes"] for line in counted) / steps,
        seconds=seconds,
        line_seconds=tuple(line["step_seconds"] for line in counted),
        gap=max(gaps),
    )


def collapse_rate(free: Measured) -> str:
    """The rate at which an all-reduce makes a step as many times longer as in the real run."""
    exchange_seconds = (REAL_CAPPED / REAL_FREE - 1) * free.step_seconds
    return f"{free.sent_a_step * 8 / exchange_seconds / 1000:.0f}kbit"


def cost_table(rows: Sequence[tuple[str, Measured]], base: float) -> Table:
    table = Table("rate", "exchange", "s/step", "MB/step on the wire", "calculated", "network", "waiting", "slow-down")
    for rate, measured in rows:
        named = measured.way if measured.way == measured.planned else f"{measured.way}: {measured.planned}"
        if measured.way == "diloco":
            named = measured.planned
        table.add_row(
            rate,
            named,
            f"{measured.step_seconds:.3f}",
            f"{measured.sent_a_step / 1e6:.3f}",
            f"{measured.calculated_a_step / 1e6:.3f}",
            f"{measured.share('communication'):.1%}",
            f"{measured.share('waiting'):.1%}",
            f"{measured.step_seconds / base:.2f}",
        )
    return table


def bookkeeping_seconds(steps: int = 2000) -> float:
    """What the clock itself takes in a step: as many blocks and exchanges as a step has, and its share of a line."""
    device = torch.device("cpu")
    clock = StepClock(device)
    start = time.perf_counter()
    for step in range(steps):
        for part in STEP_PARTS:
            with clock.measure(part):
                pass
        instant = now(device)
        clock.exchanged(Exposure(instant, now(device), now(device)), inside="compute")
        if step % STEPS_A_LINE == 0:
            clock.lap()
    return (time.perf_counter() - start) / steps


if __name__ == "__main__":
    main()
