"""Seconds of training until dev BLEU 30 and 35 on Multi30k: one of our presets against eole 0.6.4, taking turns.

    python -m testbed.peer_environments eole
    python -m bench.time_to_quality [--preset small] [--limit 3600] [--every 250] [--eole-set KEY=VALUE ...]

Both learn from the same pieces (vocabulary of the preset), in the processor's best precision, with a model of the
preset's shape. Ours runs as a user runs it, by its command line, with the preset as it is. eole has no recipe for so
small a corpus: it is given the one of its WMT17 English-German (Noam with factor 2 and 4,000 steps of warm-up, beta2
0.998, no clipping, label smoothing 0.1, weights drawn by Xavier), with the preset's dropout and tokens a step, which
suit this corpus; --eole-set tries others. It gets tcmalloc where that is found.

Both are alive, one runs at a time (testbed/taking_turns.py), and time counts only while a contender runs: its training,
with the writing of checkpoints, from the first step on. Neither is charged for start-up or for evaluations. Every so
many steps each writes a checkpoint, and while both stand still it is scored: its own decoder translates the dev set
with the preset's search, and the same sacreBLEU (cased, 13a, detokenised) judges. The time of a checkpoint is that of
its step. A model worth less than 2 BLEU on the first 100 sentences is not asked for the rest.

A contender is done when it has reached the last target, at its limit of seconds, or at the end of its own training; the
other goes on alone. A target is reached at the first checkpoint that has that BLEU.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from ctypes.util import find_library
from dataclasses import dataclass, field
from pathlib import Path

import torch

from bench.before_after import MULTI30K, started
from bench.peers import TCMALLOC
from tandem.cluster.devices import best_precision
from tandem.config import Config, CorpusConfig
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.prepared import PreparedCorpus
from tandem.corpus.text_files import CorpusTexts
from tandem.layout import RunPaths, checkpoint_name
from tandem.scoring import bleu_score, bleu_signature
from tandem.training.checkpoints.checkpoint import read
from tandem.training.checkpoints.restore import load_model
from tandem.training.evaluate import FIRST_SENTENCES, WORTHLESS_BLEU
from tandem.training.run_directory import Run
from tandem.translation.torch_engine import TorchEngine
from tandem.yaml_files import parse_yaml
from testbed.eole_model import eole_sources, eole_translations
from testbed.peer_environments import ENVIRONMENTS, why_missing
from testbed.peer_settings import CorpusAsText, PeerSettings, Precision
from testbed.taking_turns import Contender, contest

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[1]
OURS, EOLE = "tandem", "eole"
TARGETS = (30.0, 35.0)
KEEP_ALL = 1_000_000
EOLE_RECIPE = {
    "optim": "adam",
    "learning_rate": 2.0,
    "decay_method": "noam",
    "warmup_steps": 4000,
    "adam_beta2": 0.998,
    "max_grad_norm": 0,
    "label_smoothing": 0.1,
    "param_init_method": "xavier_uniform",
    "keep_checkpoint": KEEP_ALL,
}


@dataclass(frozen=True)
class Point:
    """A checkpoint of a training: when it was reached, and what it is worth."""

    step: int
    seconds: float
    tokens: int
    bleu: float = math.nan


@dataclass
class Training:
    """A contender, its clock and its curve."""

    contender: Contender
    checkpoint: Callable[[int], Path]
    """Where it puts the checkpoint of a step."""
    translate: Callable[[Path, Sequence[str]], list[str]]
    """The translations by a checkpoint."""
    every: int
    seconds: float = 0.0
    waiting: list[Point] = field(default_factory=list)
    """Checkpoints that are yet to be scored."""
    curve: list[Point] = field(default_factory=list)

    def turn(self, seconds: float) -> None:
        """Let it train, and note when it comes to the step of a checkpoint."""
        before = len(self.contender.pieces)
        ran, seen = self.contender.run_timed(seconds)
        for place, (after, _) in enumerate(seen, 1):
            step = before + place
            if step % self.every == 0:
                self.waiting.append(Point(step, self.seconds + after, sum(self.contender.pieces[:step])))
        self.seconds += ran

    def score(self, sources: Sequence[str], references: Sequence[str]) -> None:
        """Score the checkpoints that are whole by now, and remove them."""
        while self.waiting and self._is_whole(self.waiting[0].step):
            point = self.waiting.pop(0)
            path = self.checkpoint(point.step)
            bleu = 0.0
            for lines in (slice(FIRST_SENTENCES), slice(None)):
                bleu = bleu_score(self.translate(path, sources[lines]), references[lines])[0]
                if bleu < WORTHLESS_BLEU:
                    break
            self.curve.append(Point(point.step, point.seconds, point.tokens, bleu))
            shutil.rmtree(path)
            print(row(self.contender.name, self.curve[-1]), flush=True)

    def _is_whole(self, step: int) -> bool:
        """Whether a checkpoint is written: ours gets its name only then, eole goes on only then."""
        there = self.checkpoint(step).is_dir()
        return there and (self.contender.name == OURS or len(self.contender.pieces) > step)

    def is_done(self, target: float, limit: float) -> bool:
        ended = self.contender.process.poll() is not None
        return ended or self.seconds >= limit or self.seconds_to(target) is not None

    def seconds_to(self, target: float) -> float | None:
        """Seconds until the first checkpoint with this BLEU; None if there is none."""
        return next((point.seconds for point in self.curve if point.bleu >= target), None)


@dataclass(frozen=True)
class Race:
    """The same corpus for both, and the directory for their files."""

    preset: str
    config: Config
    corpus: PreparedCorpus
    precision: Precision
    every: int
    directory: Path

    def ours(self, settings: Sequence[str]) -> Training:
        """Start our training."""
        kept = [f"checkpoint.every_steps={self.every}", f"checkpoint.keep_last={KEEP_ALL}"]
        settings = [f"train.max_steps={self.config.train.max_steps}", *kept, *settings]
        place = self.corpus.directory, self.directory, settings
        contender = started(OURS, ROOT, self.preset, self.precision, *place)
        paths = RunPaths(self.directory / OURS)
        return Training(contender, lambda step: paths.checkpoints / checkpoint_name(step), self._by_us, self.every)

    def eole(self, settings: Sequence[str]) -> Training:
        """Start eole's training."""
        text, given, log = CorpusAsText.write(self.corpus, self.directory), self.directory / "eole.settings", "eole.log"
        asked = {key: parse_yaml(value) for key, _, value in (setting.partition("=") for setting in settings)}
        recipe = {**EOLE_RECIPE, "save_checkpoint_steps": self.every, **asked}
        batch = self.config.batch
        tokens = batch.step_tokens if batch.tokens == "auto" else batch.tokens * batch.micro_batches
        PeerSettings(self.config, text, self.precision, tokens, 1, recipe).write_for_eole(given)
        process = self._in_eole("testbed.eole_trainer", given, self.directory / log)
        contender = Contender(EOLE, process, self.directory / log, int)
        return Training(contender, lambda step: Path(f"{given}.model/step_{step}"), self._by_eole, self.every)

    def _in_eole(self, module: str, *arguments: object) -> subprocess.Popen[bytes]:
        library = find_library(TCMALLOC)
        environment = os.environ | ({"LD_PRELOAD": library} if library else {})
        command = [ENVIRONMENTS["eole"].python, "-W", "ignore", "-m", module, *arguments]
        return subprocess.Popen([*map(str, command)], env=environment, cwd=ROOT, stdout=subprocess.DEVNULL)

    def _by_us(self, checkpoint: Path, lines: Sequence[str]) -> list[str]:
        run, tokenizer = Run.open(self.directory / OURS), self.corpus.tokenizer
        engine = TorchEngine(load_model(run, read(checkpoint), CPU), self.config.search)
        return tokenizer.decode(engine.translate(tokenizer.encode(list(lines))))

    def _by_eole(self, checkpoint: Path, lines: Sequence[str]) -> list[str]:
        pieces, output, search = self.directory / "pieces", self.directory / "eole.out", self.config.search
        sources = eole_sources(lines, self.corpus.tokenizer)
        pieces.write_text("".join(f"{source}\n" for source in sources), encoding="utf-8")
        options = ["--beam", search.beam, "--alpha", search.length_penalty, "--batch", 64, "--unit", "sents", "--once"]
        files = [checkpoint, pieces, output, self.directory / "eole_decoder.log"]
        if self._in_eole("testbed.eole_decoder", *files, *options).wait():
            raise SystemExit("eole cannot translate with its own checkpoint; see above")
        return eole_translations(output.read_text(encoding="utf-8").splitlines(), self.corpus.tokenizer)


def row(name: str, point: Point) -> str:
    return f"{name:8}{point.step:8,}{point.seconds:10,.0f}{point.tokens:14,}{point.bleu:8.2f}"


def verdict(trainings: Sequence[Training], targets: Sequence[float]) -> None:
    """Print the time of each to each target, and how many times ours eole's is."""
    for target in targets:
        times = {training.contender.name: training.seconds_to(target) for training in trainings}
        said = ", ".join(
            f"{training.contender.name} {seconds:,.0f} s"
            if (seconds := times[training.contender.name]) is not None
            else f"{training.contender.name} not in {training.seconds:,.0f} s"
            for training in trainings
        )
        ours, eole = times[OURS], times[EOLE]
        ratio = f"; ours / eole {ours / eole:.2f}" if ours is not None and eole is not None else ""
        print(f"dev BLEU {target:g}: {said}{ratio}")


def prepared(text: Path, directory: Path, settings: CorpusConfig) -> PreparedCorpus:
    train, dev = ((text / f"{name}.en", text / f"{name}.de") for name in ("train", "val"))
    return prepare(CorpusTexts([train], dev), directory / "corpus", settings)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--preset", default="small")
    arguments.add_argument(
        "--set", nargs="+", default=(), metavar="KEY=VALUE", help="settings in place of the preset's"
    )
    arguments.add_argument("--eole-set", nargs="+", default=(), metavar="KEY=VALUE", help="settings of eole's training")
    arguments.add_argument("--targets", nargs="+", type=float, default=TARGETS, metavar="BLEU")
    arguments.add_argument("--limit", type=float, default=3600.0, help="seconds of each contender's training")
    arguments.add_argument("--every", type=int, default=250, help="steps between two checkpoints")
    arguments.add_argument("--seconds", type=float, default=20.0, help="of one turn")
    arguments.add_argument("--text", type=Path, default=MULTI30K)
    options = arguments.parse_args()
    if missing := why_missing("eole"):
        raise SystemExit(missing)
    config = Config.load(options.preset, options.set)
    precision: Precision = "bfloat16" if best_precision(CPU) == "bfloat16" else "float32"
    with tempfile.TemporaryDirectory() as name, contest() as contenders:
        corpus = prepared(options.text, Path(name), config.corpus)
        race = Race(options.preset, config, corpus, precision, options.every, Path(name))
        print(f"{options.preset}, {precision}, beam {config.search.beam}, turns of {options.seconds:g} s, ", end="")
        print(f"at most {options.limit:,.0f} s each; {bleu_signature()}")
        trainings = []
        for start, settings in ((race.ours, options.set), (race.eole, options.eole_set)):
            trainings.append(start(settings))
            contenders.append(trainings[-1].contender)
            contenders[-1].warm_up(1)
        print(f"{'':8}{'step':>8}{'seconds':>10}{'tokens':>14}{'BLEU':>8}", flush=True)
        last = max(options.targets)
        while active := [training for training in trainings if not training.is_done(last, options.limit)]:
            for training in active:
                training.turn(min(options.seconds, options.limit - training.seconds))
                training.score(*corpus.text("dev"))
        verdict(trainings, sorted(options.targets))


if __name__ == "__main__":
    main()
