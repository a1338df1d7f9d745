"""What is compared: runs, their checkpoints, exported models, and files of translations."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tandem.config import Config, SearchConfig
from tandem.errors import TandemError
from tandem.layout import MODEL_FILE, TOKENIZER_FILE
from tandem.storage import sha256_of
from tandem.training.checkpoint_place import NAMED, CheckpointPlace, checkpoint_place
from tandem.training.run_directory import Run
from tandem.translation.exported_folder import is_export, read_export
from tandem.translation.translator import no_model

Kind = Literal["run", "export", "translations"]

BEST = "best"


@dataclass(frozen=True, kw_only=True)
class System:
    """Something that gives a translation of every sentence of a test set."""

    name: str
    """The end of its path, as far as it takes to tell it from the others."""
    kind: Kind
    directory: Path
    """The run's directory, the exported folder, or the file of translations."""
    languages: tuple[str, str] | None = None
    """Source and target language; not known of a file."""
    weights: str = ""
    """Digest of weights and vocabulary: all that decides what is translated how, beside the search."""
    search: SearchConfig | None = None
    max_length: int | None = None
    """Pieces a sentence may have before it is translated in parts."""
    run: Run | None = None
    checkpoint: Path | None = None
    """The run's checkpoint that translates."""
    choice: str = ""
    """How the checkpoint was chosen: best, last, averaged, or its step."""
    step: int | None = None
    quantization: str | None = None

    @property
    def config(self) -> Config | None:
        return None if self.run is None else self.run.config

    @property
    def seed(self) -> int | None:
        return None if self.config is None else self.config.train.seed


def find_systems(places: Sequence[Path], overrides: Sequence[str] = ()) -> list[System]:
    """What the paths name, each told from the others; the search of all models may be changed by overrides."""
    if len(places) < 2:
        raise TandemError("one model alone cannot be compared; name two or more (`tandem score` looks at one)")
    found = [_find(place, name, overrides) for place, name in zip(places, _names(places), strict=True)]
    _refuse_the_same(found)
    _refuse_other_languages(found)
    return found


def _find(place: Path, name: str, overrides: Sequence[str]) -> System:
    if within := checkpoint_place(place):
        return _run_system(within, name, overrides)
    if is_export(place):
        facts = read_export(place)
        files = "".join(f"{file.sha256}  {path}\n" for path, file in sorted(facts.files.items()))
        return System(
            name=name,
            kind="export",
            directory=place,
            languages=(facts.source_language, facts.target_language),
            weights=hashlib.sha256(files.encode()).hexdigest(),
            search=facts.search_with(overrides),
            max_length=facts.max_length,
            step=facts.step,
            quantization=facts.quantization,
        )
    if place.is_file():
        return System(name=name, kind="translations", directory=place)
    raise no_model(place)


def _run_system(within: CheckpointPlace, name: str, overrides: Sequence[str]) -> System:
    from tandem.training.checkpoints.restore import choose_checkpoint

    run, choice = Run.open(within.run, overrides), within.choice or BEST
    checkpoint = choose_checkpoint(run, choice)
    return System(
        name=name,
        kind="run",
        directory=within.run,
        languages=run.languages(),
        weights=run_weights(str(checkpoint.state["files"][MODEL_FILE]["sha256"]), within.run),
        search=run.config.search,
        max_length=run.config.model.max_length,
        run=run,
        checkpoint=checkpoint.directory,
        choice=choice if choice in NAMED else f"step {checkpoint.step:,}",
        step=checkpoint.step,
        quantization="float32",
    )


def run_weights(weights_sha256: str, run: Path) -> str:
    """Digest of a checkpoint's weights together with the vocabulary of its run, without which they mean nothing."""
    return hashlib.sha256(f"{weights_sha256} {sha256_of(run / TOKENIZER_FILE)}".encode()).hexdigest()


def _refuse_the_same(systems: Sequence[System]) -> None:
    seen: dict[object, System] = {}
    for system in systems:
        identity: object = (system.weights, str(system.search)) if system.weights else system.directory.resolve()
        if (other := seen.setdefault(identity, system)) is not system:
            same = "the same model" if system.weights else "the same file"
            raise TandemError(f"{other.name} and {system.name}: {same} twice; name different ones to compare")


def _refuse_other_languages(systems: Sequence[System]) -> None:
    known: Mapping[str, tuple[str, str]] = {system.name: system.languages for system in systems if system.languages}
    if len(set(known.values())) > 1:
        (first, (source, target)), *others = known.items()
        name, (other_source, other_target) = next((name, pair) for name, pair in others if pair != (source, target))
        raise TandemError(
            f"{first} translates {source} to {target}, {name} {other_source} to {other_target}; compare models of the "
            "same languages"
        )


def _names(places: Sequence[Path]) -> list[str]:
    """The end of each path; more of it where two would be called the same, or where it names a part of a run."""
    parts = [place.resolve().parts for place in places]
    lengths = []
    for place, names in zip(places, parts, strict=True):
        within = checkpoint_place(place)
        run = names if within is None or within.choice is None else within.run.resolve().parts
        # Many runs are called `run`: their directory tells them apart.
        lengths.append(1 + len(names) - len(run) + (run[-1:] == ("run",)))
    while True:
        found = [str(Path(*names[-length:])) for names, length in zip(parts, lengths, strict=True)]
        doubled = [
            index for index, name in enumerate(found) if found.count(name) > 1 and lengths[index] < len(parts[index])
        ]
        if not doubled:
            return found
        for index in doubled:
            lengths[index] += 1
