"""A run's checkpoint as a translator: the part that needs PyTorch."""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path

import torch

from tandem.model.transformer import Transformer
from tandem.training.checkpoints.restore import choose_checkpoint, load_model
from tandem.training.run_directory import Run
from tandem.translation.ctranslate2_engine import CTranslate2Engine
from tandem.translation.ctranslate2_weights import write_ctranslate2
from tandem.translation.engine import Engine
from tandem.translation.torch_engine import TorchEngine
from tandem.translation.translator import EngineChoice, Translator


def run_translator(
    run: Run, checkpoint: str, engine: EngineChoice, batch_tokens: int | None, threads: int | None
) -> Translator:
    """Load a checkpoint into an engine; `auto` is CTranslate2 where that is faster and possible."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, tokenizer = load_model(run, choose_checkpoint(run, checkpoint), device), run.tokenizer()
    if engine == "auto":
        faster = device.type == "cpu" and isinstance(model, Transformer) and find_spec("ctranslate2") is not None
        engine = "ctranslate2" if faster else "tandem"
    loaded: Engine
    if engine == "tandem":
        loaded = TorchEngine(model, run.config.search, batch_tokens=batch_tokens)
    else:
        with tempfile.TemporaryDirectory(prefix="tandem-") as folder:
            write_ctranslate2(model, tokenizer, Path(folder), "float32")
            loaded = CTranslate2Engine(
                Path(folder),
                tokenizer.pieces(),
                run.config.search,
                max_length=run.config.model.max_length,
                batch_tokens=batch_tokens,
                threads=threads,
            )
    return Translator(loaded, tokenizer, run.languages())
