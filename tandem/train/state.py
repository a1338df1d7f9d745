"""The one state of a training run: everything that a later process needs to go on as if nothing had happened."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from tandem.cluster.exchange import Trained
from tandem.config import Config
from tandem.model.flat_weights import FlatWeights, WorkingCopy
from tandem.model.transformer import Transformer
from tandem.train.loss_scale import LossScale

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass
class Progress:
    """How far the run is, and what its evaluations have shown so far."""

    step: int = 0
    target_tokens: int = 0
    best_bleu: float | None = None
    best_step: int | None = None
    evaluations_without_gain: int = 0
    parts: int = 1
    """Each micro-batch is worked through in so many; more than one if a GPU's memory has not sufficed."""

    def note_bleu(self, bleu: float) -> None:
        """Remember an evaluation at the current step."""
        if self.best_bleu is None or bleu > self.best_bleu:
            self.best_bleu, self.best_step, self.evaluations_without_gain = bleu, self.step, 0
        else:
            self.evaluations_without_gain += 1


@dataclass
class TrainState:
    """Weights, optimizer, loss scale and progress; randomness needs no state, it follows from seed and step."""

    model: Transformer
    """In float32: what is evaluated and saved."""
    flat: FlatWeights
    working: WorkingCopy
    """What steps are computed with."""
    optimizer: torch.optim.Optimizer
    loss_scale: LossScale | None
    """For float16 alone."""
    progress: Progress = field(default_factory=Progress)

    @classmethod
    def fresh(cls, config: Config, vocab_size: int, device: torch.device) -> TrainState:
        """The state before the first step: weights drawn from the seed."""
        torch.manual_seed(config.train.seed)
        model = Transformer(config.model, vocab_size).to(device)
        flat = FlatWeights(model)
        assert config.train.precision != "auto", "the run has chosen by now"
        precision, settings = PRECISIONS[config.train.precision], config.optimizer
        optimizer = torch.optim.AdamW(
            [flat.vector],
            betas=(settings.beta1, settings.beta2),
            eps=settings.epsilon,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        working = WorkingCopy(model, flat, precision)
        if config.model.compile == "on":
            working.compile()
        return cls(
            model=model,
            flat=flat,
            working=working,
            optimizer=optimizer,
            loss_scale=LossScale(device) if precision == torch.float16 else None,
        )

    def trained(self) -> Trained:
        """What is trained, as an exchange between processes sees it."""
        return Trained(self.flat.vector.detach(), self.flat.gradient, self.working.leaves)

    def model_tensors(self) -> dict[str, Tensor]:
        return self.model.state_dict()

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """Adam's means under the names of the weights they belong to, and the number of its steps under each."""
        tensors = {}
        for key, value in self.optimizer.state.get(self.flat.vector, {}).items():
            named = self.flat.named(value) if value.dim() else {name: value.clone() for name in self.flat.shapes}
            tensors.update({f"{name}.{key}": tensor for name, tensor in named.items()})
        return tensors

    def numbers(self) -> dict[str, Any]:
        """What is not a tensor, ready for JSON."""
        return {"progress": asdict(self.progress), "scaler": self.loss_scale.numbers() if self.loss_scale else {}}

    def restore(self, model: dict[str, Tensor], optimizer: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Become the state that was saved."""
        self.model.load_state_dict(model)
        self.restore_optimizer(optimizer)
        # A run that goes on in another precision has no loss scale to take over.
        if numbers["scaler"] and self.loss_scale is not None:
            self.loss_scale.restore(numbers["scaler"])
        self.progress = Progress(**numbers["progress"])

    def restore_optimizer(self, optimizer: dict[str, Tensor]) -> None:
        """Take up Adam's means."""
        if not optimizer:
            return
        by_key: dict[str, dict[str, Tensor]] = {}
        for full_name, value in optimizer.items():
            name, key = full_name.rsplit(".", 1)
            by_key.setdefault(key, {})[name] = value
        state: dict[str, Tensor] = {}
        for key, values in by_key.items():
            example = next(iter(values.values()))
            if example.dim():
                state[key] = torch.empty_like(self.flat.vector.detach())
                self.flat.fill(state[key], values)
            else:
                state[key] = example.to(self.flat.vector.device)
        self.optimizer.state[self.flat.vector] = state
