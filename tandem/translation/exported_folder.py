"""The facts beside an exported CTranslate2 model, by which Tandem loads and checks it.

tandem.json     languages, search, lengths, and the sizes and digests of the other files
tokenizer.model the SentencePiece model
model.bin, config.json, shared_vocabulary.json   what CTranslate2 reads
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from tandem.config import Config, SearchConfig, Section
from tandem.errors import TandemError
from tandem.layout import EXPORT_FILE
from tandem.storage import read_json, sha256_of, write_json
from tandem.untrusted_folder import foreign_entry, foreign_name

FORMAT = 1


class ExportedFile(Section):
    """A file of the folder."""

    bytes: int
    sha256: str


class ExportFacts(Section):
    """What the facts file says."""

    format: int = FORMAT
    """Version of this file."""
    tandem: str
    quantization: str
    """The number format of the weights: float32, float16 or int8."""
    source_language: str
    target_language: str
    step: int
    """The step of the checkpoint that was exported."""
    max_length: int
    """Pieces a sentence may have, EOS included."""
    search: SearchConfig
    """How the run searched for translations; the export searches in the same way."""
    files: dict[str, ExportedFile]

    def search_with(self, overrides: Sequence[str]) -> SearchConfig:
        """The search with some of its settings changed."""
        saved = [f"search.{name}={value}" for name, value in self.search.model_dump(mode="json").items()]
        return Config.load(None, [*saved, *overrides]).search


def is_export(folder: Path) -> bool:
    """Whether a folder says of itself that it is an exported model."""
    return (folder / EXPORT_FILE).is_file()


def write_facts(folder: Path, facts: ExportFacts) -> None:
    """Write the facts, the last file of an export."""
    write_json(folder / EXPORT_FILE, facts.model_dump(mode="json"))


def described_file(path: Path) -> ExportedFile:
    """Size and digest of a file."""
    return ExportedFile(bytes=path.stat().st_size, sha256=sha256_of(path))


def read_export(folder: Path) -> ExportFacts:
    """The facts of an export whose files are all there and undamaged."""
    remedy = "export the run again"
    if foreign := foreign_entry(folder):
        raise TandemError(f"{folder}: not read: {foreign}")
    try:
        content = read_json(folder / EXPORT_FILE)
        if content.get("format", FORMAT) != FORMAT:
            raise TandemError(f"{folder}: exported by another version of Tandem; {remedy}")
        facts = ExportFacts.model_validate(content)
    except (ValidationError, ValueError) as error:
        raise TandemError(f"{folder / EXPORT_FILE}: damaged; {remedy}") from error
    if foreign := foreign_name(facts.files):
        raise TandemError(f"{folder / EXPORT_FILE}: not read: {foreign}; {remedy}")
    for name, expected in facts.files.items():
        path = folder / name
        if not path.is_file():
            raise TandemError(f"{path}: missing; {remedy}")
        if described_file(path) != expected:
            raise TandemError(f"{path}: damaged, not the file that was exported; {remedy}")
    return facts
