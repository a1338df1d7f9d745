"""Training speed and memory of Tandem, eole 0.6.4 and transformers 5 on the same work, taking turns.

    python -m testbed.peer_environments eole transformers-5
    python -m bench.peers [--shape small|transformer-base] [--precision float32 bfloat16] [--turns 12] [--seconds 10]
    python -m bench.peers --decode RUN [--turns 12] [--seconds 10]

All learn from the same pieces of Multi30k (vocabulary 8,000) with the preset's shape, dropout, label smoothing and
Adam, on all cores, in steps of about 4,096 target tokens. Tandem runs as a user runs it, by its command line, in four
micro-batches; the peers take a step both in one batch and in four (`-4-batches`), through their own trainers. All are
alive at once and one runs at a time (see testbed/taking_turns.py), and so does a process that multiplies matrices in
the same precision: its speed is what the machine can do. For each precision all start anew: `transformer-base` takes
up to 20 GB. The peers get tcmalloc where it is found, which spares them much time for large temporaries; Tandem does
without.

Tokens are target tokens without padding, with EOS. The share of the matrix-multiply speed is the arithmetic of the
model's matrix products for a token (see bench/throughput.py) times tokens/s. Memory is the peak of a process and its
children.

With --decode it is our own beam search, eole's and transformers' that translate Multi30k's test set with the weights of
a trained run: bench/translate.py says how.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from ctypes.util import find_library
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from bench.before_after import MULTI30K, started
from bench.throughput import GEMM_SHAPE, flops_per_target_token
from bench.translate import DECODE_TURN_SECONDS, compare_with_peers
from tandem.config import Config, CorpusConfig
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.prepared import PreparedCorpus
from tandem.corpus.text_files import CorpusTexts
from tandem.model.translation_model import build_model
from testbed.peer_environments import ENVIRONMENTS, why_missing
from testbed.peer_settings import CorpusAsText, PeerSettings, Precision
from testbed.taking_turns import Contender, contest, take_turns

ROOT = Path(__file__).parents[1]
VOCAB_SIZE = 8000
STEP_TOKENS = 4096
WARM_UP_STEPS = 3
# A turn should be several steps long.
TURN_SECONDS = {"small": 10.0, "transformer-base": 40.0}
MICRO_BATCHES = 4
TANDEM_SETTINGS = (f"batch.tokens={STEP_TOKENS // MICRO_BATCHES}", f"batch.micro_batches={MICRO_BATCHES}")
OURS, MATRICES = "tandem", "matrix multiply"
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
TCMALLOC = "tcmalloc_minimal"
GET_TCMALLOC = "it is not installed here (Debian's libtcmalloc-minimal4 has it)"


@dataclass(frozen=True)
class Peer:
    """Another program's training."""

    environment: str
    trainer: str
    """The module of testbed/ that runs it."""
    write_settings: Callable[[PeerSettings, Path], None]
    batches: int = 1
    """Batches of a step."""


EOLE = Peer("eole", "testbed.eole_trainer", PeerSettings.write_for_eole)
TRANSFORMERS = Peer("transformers-5", "testbed.transformers_trainer", PeerSettings.write_for_transformers)
PEERS = {
    "eole": EOLE,
    "eole-4-batches": replace(EOLE, batches=MICRO_BATCHES),
    "transformers": TRANSFORMERS,
    "transformers-4-batches": replace(TRANSFORMERS, batches=MICRO_BATCHES),
}


@dataclass(frozen=True)
class Race:
    """The same training for all, and the directory for the files of those who do it."""

    shape: str
    precision: Precision
    corpus: PreparedCorpus
    text: CorpusAsText
    directory: Path
    tandem_settings: Sequence[str]

    def run(self, names: Sequence[str], turns: int, seconds: float) -> Iterator[str]:
        """Let them take turns, and tell how fast each was."""
        with contest() as contenders:
            for name in (MATRICES, *names):
                contenders.append(self._started(name))
                contenders[-1].warm_up(WARM_UP_STEPS)
            take_turns(contenders, turns, seconds)
            if idle := [contender.name for contender in contenders if not contender.speed]:
                sys.exit(f"{', '.join(idle)}: not one step in {turns} turns of {seconds:g} s; make them longer")
            # As long as they are there to be asked for their memory.
            yield from self._table(contenders)

    def _started(self, name: str) -> Contender:
        """Start one of them."""
        if name == OURS:
            settings = (*TANDEM_SETTINGS, *self.tandem_settings)
            return started(OURS, ROOT, self.shape, self.precision, self.corpus.directory, self.directory, settings)
        if name == MATRICES:
            return started_matrices(self.directory, self.precision)
        log = self.directory / f"{name}.log"
        command = self._peer_command(PEERS[name], self.directory / f"{name}.settings", log)
        environment = os.environ | ({"LD_PRELOAD": library} if (library := find_library(TCMALLOC)) else {})
        process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL)
        return Contender(name, process, log, int)

    def _peer_command(self, peer: Peer, settings: Path, log: Path) -> list[str]:
        """The command of another program's training, after its settings are written."""
        preset, tokens = Config.load(self.shape), STEP_TOKENS // peer.batches
        peer.write_settings(PeerSettings(preset, self.text, self.precision, tokens, peer.batches), settings)
        python = ENVIRONMENTS[peer.environment].python
        return [str(python), "-W", "ignore", "-m", peer.trainer, str(settings), str(log)]

    def _table(self, contenders: Sequence[Contender]) -> Iterator[str]:
        matrices, *trainings = contenders
        yield "tcmalloc is preloaded for " + (", ".join(preloaded(trainings)) or f"nobody: {GET_TCMALLOC}")
        flops = flops_per_target_token(build_model(Config.load(self.shape).model, len(self.text.pieces)))
        ours = next((training.speed for training in trainings if training.name == OURS), math.nan)
        yield row("", "tokens/s", "median turn", "best turn", "/ tandem", "tokens/step", "peak MB", "of matmul")
        for training in trainings:
            yield row(
                training.name,
                *(f"{speed:,.0f}" for speed in speeds(training)),
                f"{training.speed / ours:.2f}",
                f"{statistics.mean(training.pieces):,.0f}",
                f"{training.peak_memory() / 1e6:,.0f}",
                f"{training.speed * flops / matrices.speed:.0%}",
            )
        yield row(matrices.name, *(f"{speed / 1e9:,.0f} GFLOP/s" for speed in speeds(matrices)))


def started_matrices(directory: Path, precision: Precision) -> Contender:
    """Start what shows how fast the machine multiplies."""
    log = directory / "matrices.log"
    options = ["--shape", *map(str, GEMM_SHAPE), "--precision", precision]
    command = [sys.executable, "-m", "testbed.matrix_products", str(log), *options]
    return Contender(MATRICES, subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL), log, int)


def speeds(contender: Contender) -> tuple[float, float, float]:
    """Over all turns, of the median turn and of the best."""
    return contender.speed, statistics.median(contender.speeds), max(contender.speeds)


def row(name: str, *cells: str) -> str:
    return f"{name:24}" + "".join(f"{cell:>13}" for cell in cells)


def preloaded(contenders: Sequence[Contender]) -> Iterator[str]:
    """The names of those who really have tcmalloc."""
    for contender in contenders:
        if TCMALLOC in Path(f"/proc/{contender.process.pid}/maps").read_text(encoding="utf-8"):
            yield contender.name


def prepared(text: Path, directory: Path) -> PreparedCorpus:
    train, dev = ((text / f"{name}.en", text / f"{name}.de") for name in ("train", "val"))
    return prepare(CorpusTexts([train], dev), directory / "corpus", CorpusConfig(vocab_size=VOCAB_SIZE))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--shape", choices=TURN_SECONDS, default="small")
    arguments.add_argument("--precision", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    arguments.add_argument("--only", nargs="+", choices=(OURS, *PEERS), default=(OURS, *PEERS), metavar="NAME")
    arguments.add_argument("--turns", type=int, default=12)
    arguments.add_argument("--seconds", type=float, help="of one turn; 10, or 40 for training transformer-base")
    arguments.add_argument("--decode", type=Path, metavar="RUN", help="compare searches, with this run's weights")
    arguments.add_argument("--tandem-set", nargs="+", default=(), metavar="KEY=VALUE", help="settings of our training")
    arguments.add_argument("--text", type=Path, default=MULTI30K)
    options = arguments.parse_args()
    if options.decode is not None:
        compare_with_peers(options.decode, options.turns, options.seconds or DECODE_TURN_SECONDS)
        return
    missing = {why_missing(PEERS[name].environment) for name in options.only if name in PEERS} - {None}
    if missing:
        sys.exit("\n".join(map(str, missing)))
    seconds = options.seconds or TURN_SECONDS[options.shape]
    with tempfile.TemporaryDirectory() as name:
        corpus = prepared(options.text, Path(name))
        text = CorpusAsText.write(corpus, Path(name))
        print(f"{options.shape}, vocabulary {len(text.pieces):,}, threads: {torch.get_num_threads()}, ", end="")
        print(f"{options.turns} turns of {seconds:g} s each", flush=True)
        for precision in options.precision:
            directory = Path(name) / precision
            directory.mkdir()
            race = Race(options.shape, precision, corpus, text, directory, options.tandem_set)
            print(f"\n{precision}")
            for line in race.run(options.only, options.turns, seconds):
                print(line, flush=True)


if __name__ == "__main__":
    main()
