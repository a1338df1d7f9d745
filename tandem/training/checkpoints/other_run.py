"""A checkpoint of another run as the beginning of a new one: found by its place, checked, and made to fit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from tandem.config import Config, differences
from tandem.corpus.prepared import PreparedCorpus
from tandem.corpus.tokenizer import Tokenizer
from tandem.errors import TandemError
from tandem.layout import EXPORT_FILE, MODEL_FILE, OPTIMIZER_FILE
from tandem.model.translation_model import build_model
from tandem.training.checkpoint_place import checkpoint_place
from tandem.training.checkpoints.checkpoint import Checkpoint, DamagedCheckpointError
from tandem.training.checkpoints.restore import choose_checkpoint
from tandem.training.faults.divergence import LossHistory
from tandem.training.loss_scale import LossScale
from tandem.training.origin import Origin
from tandem.training.run_directory import SHAPE, Run
from tandem.training.starting_point import StartingPoint
from tandem.training.train_state import TrainingProgress


@dataclass(frozen=True)
class OtherRun:
    """What `--from` names: a run, or one of its checkpoints; with or without the optimizer and the step."""

    place: Path
    with_optimizer: bool = False

    def read(self, config: Config, corpus: PreparedCorpus) -> StartingPoint:
        """The state that a run with these settings on this corpus begins with, if the other model fits them."""
        run, choice = self._locate()
        self._check_shape(run, config)
        tokenizer = run.tokenizer()
        if not corpus.tokenizer.extends(tokenizer):
            raise TandemError(
                f"{corpus.directory}: its vocabulary is not the one that {run.directory} was trained with; prepare "
                f"the corpus with --vocabulary {run.directory}"
            )
        checkpoint = choose_checkpoint(run, choice)
        self._check_optimizer(run, checkpoint, config)
        origin = Origin(
            place=str(self.place.resolve()),
            run=str(run.directory.resolve()),
            # Without following links: a run's checkpoints may lie on another disk.
            checkpoint=os.path.relpath(checkpoint.directory, run.directory),
            step=checkpoint.step,
            bleu=checkpoint.bleu,
            with_optimizer=self.with_optimizer,
            corpus_digest=run.corpus_digest,
            new_pieces=corpus.tokenizer.vocab_size - tokenizer.vocab_size,
        )
        files = _fitting_files(self._tensors(checkpoint), config, tokenizer, corpus.tokenizer, checkpoint)
        return StartingPoint(origin, files, self._numbers(checkpoint), list(_remarks(run, corpus)))

    def _locate(self) -> tuple[Run, str]:
        """The run, and which of its checkpoints: a name or a path."""
        place = self.place
        if found := checkpoint_place(place):
            # The best ones are for use, without an optimizer.
            return Run.open(found.run), found.choice or ("last" if self.with_optimizer else "best")
        if (place / EXPORT_FILE).is_file():
            raise TandemError(f"--from {place}: an exported model, which is not trained any more; name its run")
        raise TandemError(
            f"--from {place}: neither a run nor a checkpoint of one; name RUN, RUN/best, RUN/last, RUN/averaged or a "
            "directory in RUN/checkpoints"
        )

    def _check_shape(self, run: Run, config: Config) -> None:
        other = [difference for difference in differences(run.config, config) if difference.key in SHAPE]
        if other:
            listed = "; ".join(map(str, other))
            remedy = " ".join(f"{difference.key}={difference.old}" for difference in other)
            raise TandemError(f"--from {self.place}: has a model of another shape ({listed}); add {remedy}")

    def _check_optimizer(self, run: Run, checkpoint: Checkpoint, config: Config) -> None:
        """Refuse to take over an optimizer that is not there, or not for the weights that are trained now."""
        if not self.with_optimizer:
            return
        if OPTIMIZER_FILE not in checkpoint.state["files"]:
            raise TandemError(
                f"--with-optimizer: {checkpoint.directory} holds weights alone; name {run.directory}/last or one of "
                f"{run.checkpoints}"
            )
        if checkpoint.resume_damage:
            raise DamagedCheckpointError(f"--with-optimizer: {checkpoint.resume_damage}; leave it out, or name another")
        thawed = [part for part in run.config.optimizer.freeze if part not in config.optimizer.freeze]
        if thawed:
            raise TandemError(
                f"--with-optimizer: {run.directory} froze {', '.join(thawed)}, of which there are no means to take "
                "over; leave --with-optimizer out, or freeze the same parts"
            )
        if checkpoint.step >= config.train.max_steps:
            raise TandemError(
                f"--with-optimizer: goes on after step {checkpoint.step:,}, but train.max_steps is "
                f"{config.train.max_steps:,}; raise it, or leave --with-optimizer out to begin at step 0"
            )

    def _tensors(self, checkpoint: Checkpoint) -> dict[str, dict[str, Tensor]]:
        return checkpoint.tensors() if self.with_optimizer else {MODEL_FILE: checkpoint.model(), OPTIMIZER_FILE: {}}

    def _numbers(self, checkpoint: Checkpoint) -> dict[str, object]:
        """Progress and loss scale before the first step, which an evaluation comes before."""
        scale, step = LossScale(torch.device("cpu")).numbers(), 0
        if self.with_optimizer:
            step, scale = checkpoint.step, checkpoint.state["numbers"]["scaler"] or scale
        progress = TrainingProgress(step=step, unevaluated=True)
        return {"progress": asdict(progress), "scaler": scale, "losses": asdict(LossHistory())}


def _remarks(run: Run, corpus: PreparedCorpus) -> Iterator[str]:
    before, now = run.languages(), (corpus.facts.source_language, corpus.facts.target_language)
    if before != now:
        yield f"{run.directory} translated {' to '.join(before)}, and this corpus is {' to '.join(now)}"


def _fitting_files(
    files: Mapping[str, Mapping[str, Tensor]], config: Config, old: Tokenizer, new: Tokenizer, checkpoint: Checkpoint
) -> dict[str, dict[str, Tensor]]:
    """A checkpoint's tensors with rows for the pieces that the vocabulary has gained."""
    with torch.device("meta"):
        model = build_model(config.model, new.vocab_size)
    shapes = {name: weights.shape for name, weights in model.named_weights().items()}
    fitting = {file: dict(tensors) for file, tensors in files.items()}
    if new.vocab_size > old.vocab_size:
        split = old.split(new.pieces()[old.vocab_size :])
        for name in model.piece_rows():
            # Adam's means of a weight lie under its name, too, beside the number of its steps.
            for tensors in fitting.values():
                for key, rows in tensors.items():
                    if (key == name or key.startswith(f"{name}.")) and rows.dim():
                        tensors[key] = _with_new_rows(rows, old.vocab_size, split, shapes[name][0])
    if {name: weights.shape for name, weights in fitting[MODEL_FILE].items()} != shapes:
        raise TandemError(f"{checkpoint.directory}: not the weights of the model in its run's settings; name another")
    return fitting


def _with_new_rows(rows: Tensor, pieces: int, split: Sequence[Sequence[int]], length: int) -> Tensor:
    """Old rows as they are, then for each new piece the mean of the rows of the pieces that it was split into.

    Rows that only pad the vocabulary are zero.
    """
    more = [rows[torch.tensor(parts)].mean(0) for parts in split]
    padding = rows.new_zeros(length - pieces - len(more), *rows.shape[1:])
    return torch.cat([rows[:pieces], torch.stack(more), padding])
