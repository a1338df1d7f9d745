"""A trained model as a translator of text: a run, or a folder that `tandem export` made.

An exported folder is loaded without PyTorch, so that it starts at once and is at home on a small computer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from tandem.corpus.tokenizer import Tokenizer
from tandem.errors import TandemError
from tandem.layout import MODEL_FILE, TOKENIZER_FILE, RunPaths
from tandem.training.run_directory import Run
from tandem.translation.ctranslate2_engine import CTranslate2Engine
from tandem.translation.engine import Engine
from tandem.translation.exported_folder import is_export, read_export
from tandem.translation.repetition import without_loop
from tandem.translation.segments import Segment, split_long, split_sentences

EngineChoice = Literal["auto", "tandem", "ctranslate2"]
# Lines read ahead: enough to sort by length, few enough to keep memory small and to show results soon.
LINES_AT_ONCE = 1024
# The same bound where lines are whole documents.
CHARACTERS_AT_ONCE = 500_000


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
        directory = Path(path)
        if is_export(directory):
            return _load_export(directory, changes, engine, batch_tokens, threads)
        if RunPaths(directory).run_file.is_file():
            from tandem.translation.run_translator import run_translator

            return run_translator(Run.open(directory, changes), checkpoint, engine, batch_tokens, threads)
        raise no_model(directory)

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The translation of each line, in order; a line longer than the model knows is translated in parts."""
        parts = [self.segments(line) for line in lines]
        translated = iter(self.translate_sentences([part.text for line in parts for part in line]))
        return ["".join(next(translated) + part.space for part in line) for line in parts]

    def translate_stream(self, lines: Iterable[str], at_once: int = LINES_AT_ONCE) -> Iterator[tuple[str, str]]:
        """Each line with its translation, in order, as they come; only so many lines are in memory."""
        for portion in _portions(lines, at_once):
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


def no_model(path: Path) -> TandemError:
    """What to say of a path that is no model which Tandem can load."""
    remedy = "give the --run of `tandem train`, or a folder made by `tandem export --to ctranslate2`"
    if not path.exists():
        return TandemError(f"{path}: no such directory; {remedy}")
    if path.is_file() or (path / MODEL_FILE).is_file():
        return TandemError(f"{path}: for another program, if it is an export, and not for Tandem; {remedy}")
    return TandemError(f"{path}: neither a run nor an exported model; {remedy}")


def _portions(lines: Iterable[str], at_once: int) -> Iterator[list[str]]:
    """Lines in portions, bounded by their number and by their characters."""
    portion: list[str] = []
    characters = 0
    for line in lines:
        portion.append(line)
        characters += len(line)
        if len(portion) >= at_once or characters >= CHARACTERS_AT_ONCE:
            yield portion
            portion, characters = [], 0
    if portion:
        yield portion


def _load_export(
    folder: Path, overrides: Sequence[str], engine: EngineChoice, batch_tokens: int | None, threads: int | None
) -> Translator:
    if engine == "tandem":
        raise TandemError(f"{folder}: an exported model, which --engine tandem cannot read; name the run instead")
    facts = read_export(folder)
    tokenizer = Tokenizer.load(folder / TOKENIZER_FILE)
    loaded = CTranslate2Engine(
        folder,
        tokenizer.pieces(),
        facts.search_with(overrides),
        max_length=facts.max_length,
        batch_tokens=batch_tokens,
        threads=threads,
    )
    return Translator(loaded, tokenizer, (facts.source_language, facts.target_language))
