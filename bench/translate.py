"""Sentences a second of our engines and of eole's own decoder on the same weights, taking turns.

    python -m testbed.peer_environments eole
    python -m bench.translate RUN [--text FILE --reference FILE] [--turns 12] [--seconds 10]

Translates a file (Multi30k's test_2016_flickr beside the project by default) with the best checkpoint of a run and the
run's own search: by our own decoder, by CTranslate2 in float32 and int8, and by eole 0.6.4, which is given the run's
weights, in batches of 64 sentences and of tokens; its fastest is what the others are compared with. All are alive at
once and one runs at a time, with two threads each (see testbed/taking_turns.py). Our engines also split the text into
pieces and join them again; eole is given pieces. BLEU, and the share of lines that are the same as our own decoder's,
show that nobody translates badly but fast. LD_PRELOAD, say of an allocator, holds for all of them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from tandem.scoring import bleu_score
from tandem.training.checkpoints.restore import choose_checkpoint, load_model
from tandem.training.run_directory import Run
from tandem.translation.ctranslate2_weights import as_transformer
from tandem.vocabulary import EOS
from testbed.eole_model import write_eole
from testbed.peer_environments import ENVIRONMENTS, why_missing
from testbed.taking_turns import Contender, contest, take_turns

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[1]
TEST_SET = Path("../shared/corpora/multi30k/test_2016_flickr")
EOLE_BATCHES = ((64, "sents"), (1024, "tokens"), (4096, "tokens"))
OURS = {"our own decoder": "tandem", "CTranslate2 float32": "float32", "CTranslate2 int8": "int8"}


@dataclass(frozen=True)
class Task:
    """What is to be translated, and the directory for the files of those who do."""

    run: Run
    lines: list[str]
    directory: Path
    threads: int

    def our_decoder(self, name: str, engine: str) -> Contender:
        """Start one of our engines."""
        text = self.directory / "text"
        text.write_text("".join(f"{line}\n" for line in self.lines), encoding="utf-8")
        decoder = [sys.executable, "-m", "testbed.tandem_decoder"]
        return self._started(name, decoder, [self.run.directory.resolve(), text], ["--engine", engine])

    def write_for_eole(self) -> None:
        """The model and the pieces that eole is given."""
        model, tokenizer = load_model(self.run, choose_checkpoint(self.run, "best"), CPU), self.run.tokenizer()
        (self.directory / "eole").mkdir()
        write_eole(as_transformer(model), tokenizer, self.directory / "eole")
        pieces = tokenizer.pieces()
        sources = (" ".join(pieces[number] for number in (*ids, EOS)) for ids in tokenizer.encode(self.lines))
        (self.directory / "pieces").write_text("".join(f"{source}\n" for source in sources), encoding="utf-8")

    def eole_decoder(self, name: str, batch: int, unit: str) -> Contender:
        """Start eole."""
        search = self.run.config.search
        options = ["--beam", search.beam, "--alpha", search.length_penalty, "--batch", batch, "--unit", unit]
        decoder = [ENVIRONMENTS["eole"].python, "-W", "ignore", "-m", "testbed.eole_decoder"]
        return self._started(name, decoder, [self.directory / "eole", self.directory / "pieces"], options)

    def _started(
        self, name: str, decoder: Sequence[object], given: Sequence[Path], options: Sequence[object]
    ) -> Contender:
        """Start a process that writes its translations and its counts to files of its own."""
        log = self.directory / f"{name}.log"
        command = [*decoder, *given, self.translated_by(name), log, *options, "--threads", self.threads]
        threads = {"OMP_NUM_THREADS": str(self.threads)}
        process = subprocess.Popen([*map(str, command)], env={**os.environ, **threads}, cwd=ROOT)
        return Contender(name, process, log, int)

    def translated_by(self, name: str) -> Path:
        """The file that a contender writes its first translation of everything to."""
        return self.directory / f"{name}.out"

    def translations(self, name: str) -> list[str]:
        """What a contender has translated, as text; eole writes pieces."""
        found = self.translated_by(name).read_text(encoding="utf-8").splitlines()
        if name in OURS:
            return found
        tokenizer = self.run.tokenizer()
        numbers = {piece: number for number, piece in enumerate(tokenizer.pieces())}
        return tokenizer.decode([[numbers[piece] for piece in line.split()] for line in found])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("run", type=Path)
    arguments.add_argument("--text", type=Path, default=TEST_SET.with_suffix(".en"))
    arguments.add_argument("--reference", type=Path, default=TEST_SET.with_suffix(".de"))
    arguments.add_argument("--lines", type=int, help="only so many of the file")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--turns", type=int, default=12)
    arguments.add_argument("--seconds", type=float, default=10.0, help="of one turn")
    options = arguments.parse_args()
    missing = why_missing("eole")
    if missing:
        sys.exit(missing)
    lines, references = (
        path.read_text(encoding="utf-8").splitlines()[: options.lines] for path in (options.text, options.reference)
    )
    with tempfile.TemporaryDirectory() as name, contest() as contenders:
        task = Task(Run.open(options.run), lines, Path(name), options.threads)
        task.write_for_eole()
        for label, engine in OURS.items():
            contenders.append(task.our_decoder(label, engine))
            contenders[-1].warm_up(1)
        for batch, unit in EOLE_BATCHES:
            contenders.append(task.eole_decoder(f"eole, {batch:,} {unit}", batch, unit))
            contenders[-1].warm_up(1)
        take_turns(contenders, options.turns, options.seconds)
        translations = {contender.name: task.translations(contender.name) for contender in contenders}
    ours = translations[next(iter(OURS))]
    eole = max(contender.speed for contender in contenders if contender.name not in OURS)
    print(f"{len(lines):,} sentences, beam {task.run.config.search.beam}, {options.threads} threads, ", end="")
    print(f"{options.turns} turns of {options.seconds:g} s each")
    print(f"{'':22}{'sentences/s':>12}{'best turn':>11}{'/ eole':>8}{'BLEU':>7}{'as ours':>9}")
    for contender in contenders:
        found = translations[contender.name]
        alike = sum(a == b for a, b in zip(found, ours, strict=True)) / len(lines)
        print(f"{contender.name:22}{contender.speed:12,.1f}{max(contender.speeds):11,.1f}", end="")
        print(f"{contender.speed / eole:8.2f}{bleu_score(found, references)[0]:7.2f}{alike:9.1%}")


if __name__ == "__main__":
    main()
