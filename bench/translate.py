"""Sentences a second of our engines and of other programs' decoders on the same weights, taking turns.

    python -m testbed.peer_environments eole transformers-5
    python -m bench.translate RUN [--text FILE --reference FILE] [--turns 12] [--seconds 10]
    python -m bench.peers --decode RUN          the same without CTranslate2

Translates a file (Multi30k's test_2016_flickr beside the project by default) with the best checkpoint of a run and the
run's own search: by our own decoder, by CTranslate2 in float32 and int8, by eole 0.6.4, which is given the run's
weights, in batches of 64 sentences and of tokens, and by generate() of transformers 5 on our HuggingFace export, in
batches of 64, with a search that ends when ours does and with one that ends by its own rule. The fastest of the others
is what all are compared with. All are alive at once and one runs at a time, with two threads each (see
testbed/taking_turns.py). Our engines also split the text into pieces and join them again; eole is given pieces,
transformers ids. BLEU, and the share of lines that are the same as our own decoder's, show that nobody translates badly
but fast. LD_PRELOAD, say of an allocator, holds for all of them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from tandem.exporting.export_run import trained_model
from tandem.exporting.huggingface_folder import HuggingFaceFolder
from tandem.model.length_rules import EXTRA_LENGTH
from tandem.scoring import bleu_score
from tandem.training.checkpoints.restore import choose_checkpoint, load_model
from tandem.training.run_directory import Run
from tandem.translation.ctranslate2_weights import as_transformer
from testbed.eole_model import eole_sources, eole_translations, write_eole
from testbed.peer_environments import ENVIRONMENTS, why_missing
from testbed.taking_turns import Contender, contest, take_turns

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[1]
TEST_SET = Path("../shared/corpora/multi30k/test_2016_flickr")
OUR_OWN = "our own decoder"
OURS = {OUR_OWN: "tandem", "CTranslate2 float32": "float32", "CTranslate2 int8": "int8"}
EOLE = {f"eole, {size:,} {unit}": (size, unit) for size, unit in ((64, "sents"), (1024, "tokens"), (4096, "tokens"))}
TRANSFORMERS = {"transformers, as ours": "never", "transformers, as usual": "usual"}
PEERS = (*EOLE, *TRANSFORMERS)
DECODE_TURN_SECONDS = 10.0
PEER_ENVIRONMENTS = ("eole", "transformers-5")


@dataclass(frozen=True)
class Task:
    """What is to be translated, and the directory for the files of those who do."""

    run: Run
    lines: list[str]
    directory: Path
    threads: int

    def write_files(self) -> None:
        """What the decoders are given: the text, the pieces, and the model in the forms of other programs."""
        checkpoint, tokenizer = choose_checkpoint(self.run, "best"), self.run.tokenizer()
        for name in ("eole", "huggingface"):
            (self.directory / name).mkdir()
        write_eole(as_transformer(load_model(self.run, checkpoint, CPU)), tokenizer, self.directory / "eole")
        HuggingFaceFolder().write(trained_model(self.run, checkpoint), "float32", self.directory / "huggingface")
        for name, lines in (("text", self.lines), ("pieces", eole_sources(self.lines, tokenizer))):
            (self.directory / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def started(self, name: str) -> Contender:
        """Start a decoder, which writes its translations and its counts to files of its own."""
        log, search, text = self.directory / f"{name}.log", self.run.config.search, self.directory / "text"
        python: Path | str = sys.executable
        if name in OURS:
            decoder, given = "tandem_decoder", [self.run.directory.resolve(), text]
            options: list[object] = ["--engine", OURS[name]]
        elif name in EOLE:
            python, (batch, unit) = ENVIRONMENTS["eole"].python, EOLE[name]
            decoder, given = "eole_decoder", [self.directory / "eole", self.directory / "pieces"]
            options = ["--beam", search.beam, "--alpha", search.length_penalty, "--batch", batch, "--unit", unit]
        else:
            python = ENVIRONMENTS["transformers-5"].python
            decoder, given = "transformers_decoder", [self.directory / "huggingface", text]
            options = ["--end", TRANSFORMERS[name], "--extra-length", EXTRA_LENGTH]
        files = [*given, self.translated_by(name), log]
        command = [python, "-W", "ignore", "-m", f"testbed.{decoder}", *files, *options, "--threads", self.threads]
        threads = {"OMP_NUM_THREADS": str(self.threads)}
        process = subprocess.Popen([*map(str, command)], env={**os.environ, **threads}, cwd=ROOT)
        return Contender(name, process, log, int)

    def translated_by(self, name: str) -> Path:
        """The file that a contender writes its first translation of everything to."""
        return self.directory / f"{name}.out"

    def translations(self, name: str) -> list[str]:
        """What a contender has translated, as text."""
        found = self.translated_by(name).read_text(encoding="utf-8").splitlines()
        return eole_translations(found, self.run.tokenizer()) if name in EOLE else found


def compared(
    run: Path,
    names: Sequence[str],
    text: Path,
    reference: Path,
    *,
    lines: int | None,
    threads: int,
    turns: int,
    seconds: float,
) -> Iterator[str]:
    """Let decoders, our own among them, take turns; a table of how fast and how good each was."""
    sources, references = (path.read_text(encoding="utf-8").splitlines()[:lines] for path in (text, reference))
    with tempfile.TemporaryDirectory() as directory, contest() as contenders:
        task = Task(Run.open(run), sources, Path(directory), threads)
        task.write_files()
        for name in names:
            contenders.append(task.started(name))
            contenders[-1].warm_up(1)
        take_turns(contenders, turns, seconds)
        translations = {name: task.translations(name) for name in names}
    if idle := [contender.name for contender in contenders if not contender.speed]:
        sys.exit(f"{', '.join(idle)}: not one batch in {turns} turns of {seconds:g} s; make them longer")
    best_peer = max(contender.speed for contender in contenders if contender.name in PEERS)
    yield (
        f"{len(sources):,} sentences, beam {task.run.config.search.beam}, {threads} threads, {turns} turns of "
        f"{seconds:g} s each"
    )
    yield f"{'':24}{'sentences/s':>12}{'best turn':>11}{'/ best peer':>13}{'BLEU':>7}{'as ours':>9}"
    for contender in contenders:
        found = translations[contender.name]
        alike = sum(a == b for a, b in zip(found, translations[OUR_OWN], strict=True)) / len(sources)
        yield (
            f"{contender.name:24}{contender.speed:12,.1f}{max(contender.speeds):11,.1f}"
            f"{contender.speed / best_peer:13.2f}{bleu_score(found, references)[0]:7.2f}{alike:9.1%}"
        )


def compare_with_peers(run: Path, turns: int, seconds: float) -> None:
    """Print how our own decoder compares with those of other programs."""
    check_environments()
    text, reference = (TEST_SET.with_suffix(suffix) for suffix in (".en", ".de"))
    names = (OUR_OWN, *PEERS)
    for line in compared(run, names, text, reference, lines=None, threads=2, turns=turns, seconds=seconds):
        print(line, flush=True)


def check_environments() -> None:
    """End with the commands that make what is missing."""
    if missing := [why for name in PEER_ENVIRONMENTS if (why := why_missing(name))]:
        sys.exit("\n".join(missing))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("run", type=Path)
    arguments.add_argument("--text", type=Path, default=TEST_SET.with_suffix(".en"))
    arguments.add_argument("--reference", type=Path, default=TEST_SET.with_suffix(".de"))
    arguments.add_argument("--lines", type=int, help="only so many of the file")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--turns", type=int, default=12)
    arguments.add_argument("--seconds", type=float, default=DECODE_TURN_SECONDS, help="of one turn")
    options = vars(arguments.parse_args())
    check_environments()
    for line in compared(names=(*OURS, *PEERS), **options):
        print(line, flush=True)


if __name__ == "__main__":
    main()
