"""A run exported: written, checked against our own model, and put in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from tandem.corpus.prepared import CorpusFacts
from tandem.corpus.progress import ProgressCallback, no_progress
from tandem.errors import TandemError
from tandem.exporting.check_text import check_text
from tandem.exporting.export_format import ExportFormat, Quantization, TrainedModel
from tandem.exporting.model_card import CardFacts, model_card
from tandem.exporting.self_check import ExportCheck, check_export, refuse_if_different
from tandem.exporting.whole_export import check_place, explained_writing, put_in_place, staged
from tandem.layout import MODEL_CARD, RUN_FILE, TOKENIZER_FILE
from tandem.registry import EXPORTS
from tandem.storage import write_whole
from tandem.training.checkpoints.checkpoint import Checkpoint
from tandem.training.checkpoints.restore import choose_checkpoint, load_model
from tandem.training.run_directory import Run
from tandem.translation.ctranslate2_weights import as_transformer
from tandem.untrusted_folder import foreign_name


@dataclass(frozen=True)
class ExportResult:
    """An export that is in its place, and how it compares with the model it was made of."""

    path: Path
    """The folder, or the package file."""
    to: str
    quantization: Quantization
    checkpoint: Path
    step: int
    files: dict[str, int]
    """Size in bytes of each file, by its path inside the folder; a package is one file."""
    check: ExportCheck

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return sum(self.files.values())

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        check = {**asdict(self.check), "share_identical": self.check.share_identical, "worse": self.check.worse}
        paths = {"path": str(self.path), "checkpoint": str(self.checkpoint)}
        rest = {"to": self.to, "quantization": self.quantization, "step": self.step, "files": self.files}
        return {**paths, **rest, "bytes": self.size, "check": check}


def export(
    run: str | Path,
    out: str | Path | None = None,
    *,
    to: str,
    quantization: str | None = None,
    checkpoint: str = "best",
    licence: str | None = None,
    corpus: str | Path | None = None,
    overwrite: bool = False,
    overrides: Sequence[str] = (),
    progress: ProgressCallback = no_progress,
) -> ExportResult:
    """Write a run's checkpoint in the form of another program, and check it before it gets its name.

    `to` is ctranslate2, huggingface, argos or a format of your own as module:object. `checkpoint` is best, averaged,
    last or the path of one. Without `quantization` the format's usual one is taken; without `out`, a name in the
    current directory that says what it is. `corpus` is where the run's corpus has been moved to. The export searches
    for translations as the run does, unless `overrides` such as "search.beam=8" say otherwise.
    """
    opened = Run.open(Path(run), overrides)
    form = _format(to)
    chosen_quantization = _quantization(form, to, quantization)
    chosen = choose_checkpoint(opened, checkpoint)
    progress("load", 0, 1)
    trained = trained_model(opened, chosen)
    progress("load", 1, 1)
    place = _place(form, out, form.default_name(trained, opened.directory.resolve().name, chosen_quantization))
    text = check_text(opened, None if corpus is None else Path(corpus))
    with staged(place) as staging:
        check_place(place, overwrite, form.is_one)
        folder = staging / "made"
        progress("write", 0, 1)
        with explained_writing(place):
            folder.mkdir()
            form.write(trained, chosen_quantization, folder)
        progress("write", 1, 1)
        checked = check_export(trained, form.load(trained, folder), text, progress)
        refuse_if_different(checked, chosen_quantization, form.search_share, str(place))
        facts = CardFacts(
            to=to,
            quantization=chosen_quantization,
            usage=form.usage(trained, place.name),
            dev_bleu=chosen.bleu,
            corpus=_corpus_facts(opened, corpus),
            check=checked,
            licence=licence,
            origin=None if opened.origin is None else opened.origin.name,
        )
        with explained_writing(place):
            write_whole(folder / MODEL_CARD, model_card(trained, facts).encode())
            put_in_place(form.pack(trained, folder), place)
    return ExportResult(place, to, chosen_quantization, chosen.directory, trained.step, _sizes(place), checked)


def _place(form: ExportFormat, out: str | Path | None, default_name: str) -> Path:
    """Where the export goes; a file into a folder that is there, and always with its ending."""
    place = Path(out or default_name)
    if form.suffix and place.is_dir():
        return place / default_name
    return place if place.name.endswith(form.suffix) else place.with_name(f"{place.name}{form.suffix}")


def _format(to: str) -> ExportFormat:
    try:
        EXPORTS.check_name(to)
    except ValueError as error:
        raise TandemError(f"--to {to}: {str(error)[0].lower()}{str(error)[1:]}") from None
    form: ExportFormat = EXPORTS.get(to)
    missing = [name for name in form.packages if find_spec(name) is None]
    if missing:
        raise TandemError(f"--to {to}: {', '.join(missing)} is not installed; pip install 'tandem-nmt[export]'")
    return form


def _quantization(form: ExportFormat, to: str, asked: str | None) -> Quantization:
    if asked is None:
        return form.quantizations[0]
    for known in form.quantizations:
        if known == asked:
            return known
    raise TandemError(f"--quantization {asked}: --to {to} takes {', '.join(form.quantizations)}; choose one of these")


def trained_model(run: Run, checkpoint: Checkpoint) -> TrainedModel:
    """A checkpoint of a run, loaded to be written; the error for one that is no Transformer says so."""
    if foreign := foreign_name(run.languages()):
        raise TandemError(f"{run.directory / RUN_FILE}: languages become file names in an export, but {foreign}")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return TrainedModel(
        model=as_transformer(load_model(run, checkpoint, device)),
        tokenizer=run.tokenizer(),
        tokenizer_bytes=(run.directory / TOKENIZER_FILE).read_bytes(),
        config=run.config,
        languages=run.languages(),
        step=checkpoint.step,
    )


def _corpus_facts(run: Run, moved_to: str | Path | None) -> CorpusFacts | None:
    """What the corpus tells of itself, if it is still there."""
    try:
        return run.corpus(None if moved_to is None else Path(moved_to)).facts
    except TandemError:
        return None


def _sizes(path: Path) -> dict[str, int]:
    if path.is_file():
        return {path.name: path.stat().st_size}
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): file.stat().st_size for file in files}
