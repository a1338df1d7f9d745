"""One of our engines, translating one file again and again.

    python -m testbed.tandem_decoder RUN TEXT OUTPUT LOG --engine tandem|float32|int8

`tandem` is our own search in PyTorch; the number formats are those of a CTranslate2 model. The first translation of the
file is written to OUTPUT; from then on LOG gains a line with the number of sentences for whatever is done together.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sized
from pathlib import Path
from typing import IO, Any

import torch

from tandem.model import search
from tandem.training.checkpoints.restore import choose_checkpoint, load_model
from tandem.training.run_directory import Run
from tandem.translation.ctranslate2_engine import CTranslate2Engine
from tandem.translation.ctranslate2_weights import write_ctranslate2
from tandem.translation.engine import Engine
from tandem.translation.torch_engine import TorchEngine
from tandem.translation.translator import Translator

ENGINES = ("tandem", "float32", "int8")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("run", "text", "output", "log"):
        arguments.add_argument(name, type=Path)
    arguments.add_argument("--engine", choices=ENGINES, required=True)
    arguments.add_argument("--threads", type=int, default=2)
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    run = Run.open(options.run)
    engine = load_engine(run, options.engine, options.threads)
    translator = Translator(engine, run.tokenizer(), run.languages())
    lines = options.text.read_text(encoding="utf-8").splitlines()
    options.output.write_text("".join(f"{line}\n" for line in translator.translate(lines)), encoding="utf-8")
    with options.log.open("w", buffering=1) as log:
        count_sentences(engine, log)
        while True:
            translator.translate(lines)


def load_engine(run: Run, name: str, threads: int) -> Engine:
    """The engine with the best checkpoint of a run and the run's own search."""
    model = load_model(run, choose_checkpoint(run, "best"), torch.device("cpu"))
    if name == "tandem":
        return TorchEngine(model, run.config.search)
    tokenizer, max_length = run.tokenizer(), run.config.model.max_length
    with tempfile.TemporaryDirectory() as folder:
        write_ctranslate2(model, tokenizer, Path(folder), name)
        return CTranslate2Engine(
            Path(folder), tokenizer.pieces(), run.config.search, max_length=max_length, threads=threads
        )


def count_sentences(engine: Engine, log: IO[str]) -> None:
    """Make an engine tell how many sentences it has translated: ours after each batch, CTranslate2 after each."""

    def counted(work: Callable[..., Sized], sentences: Callable[[Sized], int]) -> Callable[..., Any]:
        def and_tell(*arguments: Any, **settings: Any) -> Sized:
            result = work(*arguments, **settings)
            log.write(f"{sentences(result)}\n")
            return result

        return and_tell

    if isinstance(engine, CTranslate2Engine):
        engine._ranked = counted(engine._ranked, lambda hypotheses: 1)  # type: ignore[method-assign]
    else:
        search.beam_search = counted(search.beam_search, len)


if __name__ == "__main__":
    main()
