"""The server under load: python -m bench.serve MODEL [--text FILE] [--only load idle memory]

load    64 clients, each with one sentence at a time, for a minute: errors, and sentences a second beside those of the
        same engine offline, which translates the same text in batches before and after; in turns of 20 s; and what
        a sentence costs server, clients and engine offline of a core's time, which other programs change less
idle    one short sentence at a time, by the server and by the engine alone, in turns: medians, 99th percentiles, and
        the 99th percentile of their ratio
memory  100,000 requests of mixed length, and the server's resident memory after every tenth of them, once it has been
        idle for some seconds

Clients run on the same machine and take their share of it.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from rich.console import Console
from rich.table import Table

from tandem.serving.request_batches import QUIET_SECONDS
from tandem.translation.translator import Translator
from testbed.server_process import server_command

# A round of the load and of the engine offline: short, so that whatever else the machine does hits both alike.
ROUND_SECONDS = 20
# Share of a round that is not counted: the first answers come after a batch's time.
WARM = 0.2
LEAST_SHARE = 0.8
MOST_TIMES = 3.0
MOST_GROWTH = 0.05
MEMORY_CLIENTS = 16
# Sentences of a request in the memory bench; most are short, as people's are.
SENTENCES = (1, 1, 1, 1, 2, 3, 5, 10)
IDLE_WORDS = 8


class Connection:
    """A client's connection, as cheap as can be: what it costs is the server's loss."""

    def __init__(self, address: tuple[str, int], languages: tuple[str, str]) -> None:
        self._address, (self._source, self._target) = address, languages

    async def __aenter__(self) -> Connection:
        self._reader, self._writer = await asyncio.open_connection(*self._address)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def translate(self, text: str) -> bool:
        """Whether a text was translated."""
        body = json.dumps({"q": text, "source": self._source, "target": self._target}).encode()
        head = ("POST /translate HTTP/1.1", "host: a", "content-type: application/json", f"content-length: {len(body)}")
        self._writer.write("\r\n".join((*head, "", "")).encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        content = await self._reader.readexactly(length)
        return answer.startswith(b"HTTP/1.1 200 ") and b"translatedText" in content


class Bench:
    """The figures, and what they are measured with."""

    def __init__(self, model: Path, lines: list[str], threads: int, console: Console) -> None:
        self._lines, self._console = lines, console
        self._translator = Translator.load(model, engine="ctranslate2", threads=threads)
        self._model, self._threads = model, threads
        self.figures = Table("figure", "measured", "wanted", "met")

    def load(self, options: argparse.Namespace) -> None:
        """Many clients beside the engine offline."""
        served, errors, answered = [], 0, 0
        with running(self._model, self._threads) as server:
            asyncio.run(self._ask_for(server.address, options.clients, 2.0))
            offline = [self._offline_rate()]
            server_begun, client_seconds, offline_begun = server.processor_seconds(), 0.0, time.process_time()
            for _ in range(max(round(options.seconds / ROUND_SECONDS), 1)):
                client_begun = time.process_time()
                rate, wrong, done = asyncio.run(self._ask_for(server.address, options.clients, ROUND_SECONDS))
                client_seconds += time.process_time() - client_begun
                served.append(rate)
                errors, answered = errors + wrong, answered + done
                offline.append(self._offline_rate())
                self._console.print(f"offline {offline[-1]:.1f} sentences/s, server {served[-1]:.1f}, errors {errors}")
            server_seconds = [end - begin for begin, end in zip(server_begun, server.processor_seconds(), strict=True)]
        offline_seconds = time.process_time() - offline_begun - client_seconds
        self._judge_costs(
            {
                "server": sum(server_seconds) / answered,
                "server, of which the system's": server_seconds[1] / answered,
                "clients": client_seconds / answered,
                "engine offline": offline_seconds / (len(served) * len(self._lines)),
            }
        )
        share = statistics.median(
            2 * rate / (before + after) for rate, before, after in zip(served, offline[:-1], offline[1:], strict=True)
        )
        self._judge("offline, sentences/s", f"{statistics.median(offline):.1f}", "-", None)
        self._judge(
            f"server with {options.clients} clients, sentences/s", f"{statistics.median(served):.1f}", "-", None
        )
        self._judge("share of the offline throughput", f"{share:.0%}", f">= {LEAST_SHARE:.0%}", share >= LEAST_SHARE)
        self._judge("errors", str(errors), "0", errors == 0)

    def _judge_costs(self, costs: Mapping[str, float]) -> None:
        for name, seconds in costs.items():
            self._judge(f"a core's time for a sentence: {name}", f"{1e3 * seconds:.2f} ms", "-", None)

    def _offline_rate(self) -> float:
        begun = time.perf_counter()
        self._translator.translate(self._lines)
        return len(self._lines) / (time.perf_counter() - begun)

    def idle(self, options: argparse.Namespace) -> None:
        """One sentence at a time."""
        short = [line for line in self._lines if len(line.split()) <= IDLE_WORDS] or self._lines
        bare, asked = [], []
        with running(self._model, self._threads) as server:

            async def turns() -> None:
                async with Connection(server.address, server.languages) as connection:
                    for line in itertools.islice(itertools.cycle(short), options.idle):
                        begun = time.perf_counter()
                        self._translator.translate_sentences([line])
                        between = time.perf_counter()
                        assert await connection.translate(line)
                        bare.append(between - begun)
                        asked.append(time.perf_counter() - between)

            asyncio.run(turns())
        for name, seconds in (("engine alone", bare), ("idle server", asked)):
            self._judge(f"{name}, median", f"{1e3 * statistics.median(seconds):.1f} ms", "-", None)
            self._judge(f"{name}, 99th percentile", f"{1e3 * percentile(seconds):.1f} ms", "-", None)
        # Of the same sentence: some take the engine five times as long as others.
        times = percentile([server / engine for server, engine in zip(asked, bare, strict=True)])
        name = "server's time over the engine's for the same sentence, 99th percentile"
        self._judge(name, f"{times:.2f}", f"<= {MOST_TIMES}", times <= MOST_TIMES)

    def memory(self, options: argparse.Namespace) -> None:
        """Memory over many requests."""
        chance = random.Random(1)
        texts = [" ".join(chance.choices(self._lines, k=chance.choice(SENTENCES))) for _ in range(1000)]
        sizes = []
        with running(self._model, self._threads) as server:
            self._judge("resident memory at the start", f"{server.resident() / 1e6:.0f} MB", "-", None)
            for tenth in range(1, 11):
                asyncio.run(self._ask_times(server.address, texts, options.requests // 10))
                time.sleep(3 * QUIET_SECONDS)
                sizes.append(server.resident())
                self._console.print(f"after {tenth * options.requests // 10:,} requests: {sizes[-1] / 1e6:.1f} MB")
        growth = max(sizes) / sizes[0] - 1
        name = f"most after any tenth of {options.requests:,} requests, against the first"
        self._judge(name, f"{growth:+.1%}", f"<= {MOST_GROWTH:.0%}", growth <= MOST_GROWTH)

    async def _ask_for(self, address: tuple[str, int], clients: int, seconds: float) -> tuple[float, int, int]:
        """Sentences answered a second once all clients wait for one, errors, and all answers."""
        begun, lines = time.perf_counter(), itertools.cycle(self._lines)
        counted, end = begun + WARM * seconds, begun + seconds
        done = errors = answered = 0

        async def client() -> None:
            nonlocal done, errors, answered
            async with Connection(address, self._languages) as connection:
                while time.perf_counter() < end:
                    answered += 1
                    if not await connection.translate(next(lines)):
                        errors += 1
                    elif counted <= time.perf_counter() < end:
                        done += 1

        await asyncio.gather(*(client() for _ in range(clients)))
        return done / (end - counted), errors, answered

    async def _ask_times(self, address: tuple[str, int], texts: list[str], times: int) -> None:
        waiting = itertools.islice(itertools.cycle(texts), times)

        async def client() -> None:
            async with Connection(address, self._languages) as connection:
                for text in waiting:
                    assert await connection.translate(text)

        await asyncio.gather(*(client() for _ in range(MEMORY_CLIENTS)))

    @property
    def _languages(self) -> tuple[str, str]:
        return self._translator.source_language, self._translator.target_language

    def _judge(self, figure: str, measured: str, wanted: str, met: bool | None) -> None:
        self.figures.add_row(figure, measured, wanted, {True: "yes", False: "NO", None: ""}[met])


class Served:
    """A server process."""

    def __init__(self, process: subprocess.Popen[str], languages: tuple[str, str], url: str) -> None:
        parts = urlsplit(url)
        self.address, self.languages = (str(parts.hostname), int(parts.port or 0)), languages
        self._process = psutil.Process(process.pid)

    def resident(self) -> int:
        """Bytes of resident memory."""
        return int(self._process.memory_info().rss)

    def processor_seconds(self) -> tuple[float, float]:
        """Seconds of a core that it has taken: its own, and the system's on its behalf."""
        times = self._process.cpu_times()
        return times.user, times.system


@contextmanager
def running(model: Path, threads: int) -> Iterator[Served]:
    """A server of the model on a free port."""
    command = server_command([model], port=0, threads=threads)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            translating = process.stdout.readline().split()
            yield Served(process, (translating[1], translating[3]), process.stdout.readline().split()[2])
        finally:
            process.terminate()


def percentile(seconds: list[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(seconds, n=100)[98]


PARTS: dict[str, Callable[[Bench, argparse.Namespace], None]] = {
    "load": Bench.load,
    "idle": Bench.idle,
    "memory": Bench.memory,
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model", type=Path, help="a run, or an exported folder")
    arguments.add_argument("--text", type=Path, default=Path("../shared/corpora/multi30k/test_2016_flickr.en"))
    arguments.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    arguments.add_argument("--clients", type=int, default=64)
    arguments.add_argument("--seconds", type=float, default=60)
    arguments.add_argument("--idle", type=int, default=500, help="sentences asked of the idle server")
    arguments.add_argument("--requests", type=int, default=100_000, help="of the memory bench")
    arguments.add_argument("--threads", type=int, default=psutil.cpu_count() or 1)
    options = arguments.parse_args()
    console = Console(width=120, highlight=False)
    lines = [line for line in options.text.read_text(encoding="utf-8").splitlines() if line.strip()]
    bench = Bench(options.model, lines, options.threads, console)
    for name in options.only:
        PARTS[name](bench, options)
    console.print(bench.figures)


if __name__ == "__main__":
    main()
