"""The state of a training run: everything that a later process needs to go on as if it had never stopped."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from pydantic import TypeAdapter
from torch import Tensor

from tandem.cluster.exchange.exchange import FlatVectors
from tandem.config import Config
from tandem.layout import MODEL_FILE, OPTIMIZER_FILE, UNAVERAGED_FILE
from tandem.metrics import BY_DEV_BLEU, DEV
from tandem.model.flat_weights import FlatWeights, WorkingCopy
from tandem.model.translation_model import TranslationModel, build_model, frozen_names
from tandem.model.weight_average import WeightAverage
from tandem.training.checkpoints.merits import Merits
from tandem.training.faults.divergence import LossHistory
from tandem.training.loss_scale import LossScale
from tandem.training.parallel_micro_batches import count_parallel

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass
class TrainingProgress:
    """Steps and tokens so far, and the best evaluation."""

    step: int = 0
    target_tokens: int = 0
    best_bleu: float | None = None
    """Dev BLEU of the best evaluation."""
    best_step: int | None = None
    best_first_sentences: int | None = None
    """How many of the first dev sentences the best BLEU is of; None if it is of all."""
    best_by: str = str(BY_DEV_BLEU)
    """What made it the best: a metric on a dev set."""
    best_values: dict[str, float] = field(default_factory=dict)
    """All that was measured in it, by dev set and metric: `dev/bleu`."""
    best_partial: list[str] = field(default_factory=list)
    """Dev sets whose first sentences alone were translated for it."""
    start_bleu: float | None = None
    """BLEU before the first step of a run that begins with another one's model."""
    evaluations_without_gain: int = 0
    parts: int = 1
    """Parts that each micro-batch is split into; more than one if a GPU's memory has not sufficed."""
    skipped: list[list[int]] = field(default_factory=list)
    """Windows of batches that are skipped, because training has blown up on them."""
    unevaluated: bool = False
    """Whether the evaluation that is due at this step is yet to be made, because a stop or an emergency came first."""

    def __post_init__(self) -> None:
        # Older versions knew no other metric.
        if not self.best_values and self.best_bleu is not None:
            self.best_values = {str(BY_DEV_BLEU): self.best_bleu}
            self.best_partial = [] if self.best_first_sentences is None else [DEV]

    @property
    def best_value(self) -> float | None:
        """The metric that counts, of the best evaluation."""
        return self.best_values.get(self.best_by)

    def note_evaluation(self, merits: Merits, first_sentences: int | None = None) -> None:
        """Remember an evaluation at the current step, of so many first dev sentences or of all."""
        criterion = merits.best_by
        if self.best_by != str(criterion):
            # Another metric counts from now on. If the best evaluation so far has it, that stays the one to beat, as
            # its checkpoint does.
            self.best_by, self.evaluations_without_gain = str(criterion), 0
        best = Merits(self.best_values, criterion, tuple(self.best_partial))
        if self.best_step is None or merits.rank(criterion) > best.rank(criterion):
            self.best_bleu, self.best_step, self.evaluations_without_gain = merits.dev_bleu, self.step, 0
            self.best_values, self.best_partial = dict(merits.values), list(merits.partial)
            self.best_first_sentences = first_sentences
        else:
            self.evaluations_without_gain += 1

    def as_told(self) -> dict[str, Any]:
        """What the end of a session says of its evaluations, by the names of `Ended`."""
        names = ("best_bleu", "best_step", "best_first_sentences", "best_by", "best_value", "start_bleu")
        return {name: getattr(self, name) for name in names}


class WholeStep:
    """Guards a training's state while a step changes it; at all other times it is that of the last whole step."""

    def __init__(self) -> None:
        self._lock, self._whole = threading.Lock(), True

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Change the state; a change that fails half-way leaves it broken for good."""
        with self._lock:
            self._whole = False
            yield
            self._whole = True

    @contextmanager
    def kept(self, seconds: float) -> Iterator[bool]:
        """Keep other threads from changing the state; False if it is not whole, or not within so many seconds."""
        held = self._lock.acquire(timeout=seconds)
        try:
            yield held and self._whole
        finally:
            if held:
                self._lock.release()


_PROGRESS, _LOSSES = TypeAdapter(TrainingProgress), TypeAdapter(LossHistory)


@dataclass
class TrainState:
    """Weights, optimizer, loss scale and progress; random numbers follow from seed and step and need no state."""

    model: TranslationModel
    """In float32, and always in evaluation mode: the weights that steps change."""
    flat: FlatWeights
    working: WorkingCopy
    """The model that steps are computed with."""
    optimizer: torch.optim.Optimizer
    loss_scale: LossScale | None
    """None unless training is in float16."""
    average: WeightAverage | None = None
    """None unless train.ema_decay is set."""
    progress: TrainingProgress = field(default_factory=TrainingProgress)
    losses: LossHistory = field(default_factory=LossHistory)
    whole: WholeStep = field(default_factory=WholeStep)

    @classmethod
    def fresh(cls, config: Config, vocab_size: int, device: torch.device, *, processes: int = 1) -> TrainState:
        """The state before the first step: weights drawn from the seed.

        `processes` are those of this host, which share its memory.
        """
        model = first_model(config, vocab_size).to(device).eval()
        flat = FlatWeights(model, frozen_names(model, config.optimizer.freeze))
        assert config.train.precision != "auto", "resolved at the start"
        precision, settings = PRECISIONS[config.train.precision], config.optimizer
        optimizer = torch.optim.AdamW(
            [flat.vector],
            betas=(settings.beta1, settings.beta2),
            eps=settings.epsilon,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        working = WorkingCopy(model, flat, precision, count_parallel(config, vocab_size, device, processes))
        if config.model.compile == "on":
            working.models[0].compile_layers()
        loss_scale = LossScale(device) if precision == torch.float16 else None
        decay = config.train.ema_decay
        average = None if decay is None else WeightAverage(model, flat, decay)
        return cls(model, flat, working, optimizer, loss_scale, average)

    @property
    def evaluated(self) -> TranslationModel:
        """The model that is evaluated and saved for use: with the average of the weights, if there is one."""
        return self.model if self.average is None else self.average.model

    def flat_vectors(self) -> FlatVectors:
        """The vectors that an exchange between processes works on."""
        return FlatVectors(self.flat.vector.detach(), self.flat.gradient, self.working.leaves)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """All tensors by name, under the checkpoint's file that holds them."""
        files = {MODEL_FILE: self.evaluated.named_weights(), OPTIMIZER_FILE: self.optimizer_tensors()}
        return files if self.average is None else files | {UNAVERAGED_FILE: self.model.named_weights()}

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """Adam's means under the names of the weights they belong to, and the number of its steps under each."""
        tensors = {}
        for key, value in self.optimizer.state.get(self.flat.vector, {}).items():
            named = self.flat.named(value) if value.dim() else {name: value.clone() for name in self.flat.shapes}
            tensors.update({f"{name}.{key}": tensor for name, tensor in named.items()})
        return tensors

    def numbers(self) -> dict[str, Any]:
        """What is not a tensor, ready for JSON."""
        return {
            "progress": asdict(self.progress),
            "scaler": self.loss_scale.numbers() if self.loss_scale else {},
            "losses": asdict(self.losses),
        }

    def restore(self, tensors: Mapping[str, Mapping[str, Tensor]], numbers: Mapping[str, Any]) -> None:
        """Become the state that gave these `tensors()` and `numbers()`; a ValueError or KeyError if none gave them."""
        # Of a run that did without an average until now, or does from now on, there is only one kind of weights.
        self.model.load_weights(tensors.get(UNAVERAGED_FILE, tensors[MODEL_FILE]))
        if self.average is not None:
            self.average.model.load_weights(tensors[MODEL_FILE])
        self.restore_optimizer(tensors[OPTIMIZER_FILE])
        # A run that goes on in another precision has no loss scale to take over.
        if numbers["scaler"] and self.loss_scale is not None:
            self.loss_scale.restore(numbers["scaler"])
        self.progress = _PROGRESS.validate_json(json.dumps(numbers["progress"]), strict=True)
        self.working.refresh_frozen()
        # Older versions did not save them.
        self.losses = _LOSSES.validate_json(json.dumps(numbers.get("losses", {})), strict=True)

    def begin_again(self, config: Config, vocab_size: int) -> None:
        """Become the state before the first step."""
        weights = first_model(config, vocab_size).named_weights()
        scale = LossScale(torch.device("cpu")).numbers() if self.loss_scale else {}
        numbers = {"progress": asdict(TrainingProgress()), "scaler": scale}
        self.restore({MODEL_FILE: weights, OPTIMIZER_FILE: {}}, numbers)

    def restore_optimizer(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `optimizer_tensors` gave; nothing before the first step."""
        state, device = {}, self.flat.vector.device
        # Sorted, because processes broadcast them to each other one after the other.
        for key in sorted({name.rpartition(".")[2] for name in tensors}):
            values = [tensors[f"{name}.{key}"].to(device) for name in self.flat.shapes]
            state[key] = torch.cat([value.flatten() for value in values]) if values[0].dim() else values[0]
        self.optimizer.state.pop(self.flat.vector, None)
        if state:
            self.optimizer.state[self.flat.vector] = state


def first_model(config: Config, vocab_size: int) -> TranslationModel:
    """The model before the first step: weights drawn from the seed."""
    torch.manual_seed(config.train.seed)
    return build_model(config.model, vocab_size)
