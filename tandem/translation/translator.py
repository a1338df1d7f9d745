"""A trained model as a translator of text: a run, or a folder that `tandem export` made."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

import torch

from tandem.config import Config
from tandem.corpus.tokenizer import Tokenizer
from tandem.errors import TandemError
from tandem.layout import TOKENIZER_FILE
from tandem.model.transformer import Transformer
from tandem.training.checkpoints.restore import choose_checkpoint, load_model
from tandem.training.run_directory import Run
from tandem.translation.ctranslate2_engine import CTranslate2Engine
from tandem.translation.ctranslate2_weights import write_ctranslate2
from tandem.translation.engine import Engine
from tandem.translation.exported_folder import is_export, read_export
from tandem.translation.repetition import without_loop
from tandem.translation.segments import Segment, split_long, split_sentences
from tandem.translation.torch_engine import TorchEngine

EngineChoice = Literal["auto", "tandem", "ctranslate2"]
# Lines read ahead: enough to sort by length, few enough to keep memory small and to show results soon.
LINES_AT_ONCE = 1024


class Translator:
    """Translates lines of text with one model."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer, languages: tuple[str, str]) -> None:
        self.engine, self.tokenizer = engine, tokenizer
        self.source_language, self.target_language = languages

    @classmethod
    def load(
        cls,
        path: str | Path,
        checkpoint: str = "best",
        overrides: Sequence[str] = (),
        *,
        engine: EngineChoice = "auto",
        batch_tokens: int | None = None,
        threads: int | None = None,
        **search: object,
    ) -> Translator:
        """Load a run's checkpoint (`best`, `last`, `averaged`, or the path of one), or an exported folder.

        The search may be changed by overrides such as "search.beam=8", or in short `beam=8`. CTranslate2 translates
        `threads` batches at the same time, by default one for every core.
        """
        changes = [*overrides, *(f"search.{name}={value}" for name, value in search.items())]
        if is_export(Path(path)):
            return _load_export(Path(path), changes, engine, batch_tokens, threads)
        return _load_run(Run.open(Path(path), changes), checkpoint, engine, batch_tokens, threads)

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The translation of each line, in order; a line longer than the model knows is translated in parts."""
        parts = [self.segments(line) for line in lines]
        translated = iter(self.translate_sentences([part.text for line in parts for part in line]))
        return ["".join(next(translated) + part.space for part in line) for line in parts]

    def translate_stream(self, lines: Iterable[str], at_once: int = LINES_AT_ONCE) -> Iterator[tuple[str, str]]:
        """Each line with its translation, in order, as they come; only so many lines are in memory."""
        remaining = iter(lines)
        while portion := list(islice(remaining, at_once)):
            yield from zip(portion, self.translate(portion), strict=True)

    def translate_sentences(self, sentences: Sequence[str]) -> list[str]:
        """The translation of each sentence, none longer than the model knows; an empty one stays empty."""
        sources = self.tokenizer.encode(sentences)
        found = [without_loop(ids, source) for ids, source in zip(self.engine.translate(sources), sources, strict=True)]
        return self.tokenizer.decode(found)

    def segments(self, line: str) -> list[Segment]:
        """The whole line if the model can hold it; otherwise its sentences, each cut where it is still too long."""
        if self.fits(line):
            return [Segment(line, "")]
        return [part for segment in split_sentences(line, self.source_language) for part in self.fitting(segment)]

    def fitting(self, segment: Segment) -> list[Segment]:
        """A segment in parts that the model can hold."""
        return list(split_long(segment, self.fits))

    def fits(self, text: str) -> bool:
        """Whether the model can hold a text."""
        # A piece has a byte at least, so most lines need not be encoded to know; one more begins the line.
        longest = self.engine.longest_source
        return len(text.encode()) < longest or len(self.tokenizer.encode([text], threads=1)[0]) <= longest


def _load_export(
    folder: Path, overrides: Sequence[str], engine: EngineChoice, batch_tokens: int | None, threads: int | None
) -> Translator:
    if engine == "tandem":
        raise TandemError(f"{folder}: an exported model, which --engine tandem cannot read; name the run instead")
    facts = read_export(folder)
    saved = [f"search.{name}={value}" for name, value in facts.search.model_dump(mode="json").items()]
    search = Config.load(None, [*saved, *overrides]).search
    tokenizer = Tokenizer.load(folder / TOKENIZER_FILE)
    loaded = CTranslate2Engine(
        folder,
        tokenizer.pieces(),
        search,
        max_length=facts.max_length,
        batch_tokens=batch_tokens,
        threads=threads,
    )
    return Translator(loaded, tokenizer, (facts.source_language, facts.target_language))


def _load_run(
    run: Run, checkpoint: str, engine: EngineChoice, batch_tokens: int | None, threads: int | None
) -> Translator:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, tokenizer = load_model(run, choose_checkpoint(run, checkpoint), device), run.tokenizer()
    search = run.config.search
    if engine == "auto":
        faster = device.type == "cpu" and isinstance(model, Transformer) and _has_ctranslate2()
        engine = "ctranslate2" if faster else "tandem"
    if engine == "tandem":
        return Translator(TorchEngine(model, search, batch_tokens=batch_tokens), tokenizer, run.languages())
    with tempfile.TemporaryDirectory(prefix="tandem-") as folder:
        write_ctranslate2(model, tokenizer, Path(folder), "float32")
        loaded = CTranslate2Engine(
            Path(folder),
            tokenizer.pieces(),
            search,
            max_length=run.config.model.max_length,
            batch_tokens=batch_tokens,
            threads=threads,
        )
    return Translator(loaded, tokenizer, run.languages())


def _has_ctranslate2() -> bool:
    try:
        import ctranslate2  # noqa: F401
    except ImportError:
        return False
    return True
