"""The one state of a training run: everything that a later process needs to go on as if nothing had happened."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from tandem.config import Config
from tandem.model.transformer import Transformer

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass
class Progress:
    """How far the run is, and what its evaluations have shown so far."""

    step: int = 0
    target_tokens: int = 0
    best_bleu: float | None = None
    best_step: int | None = None
    evaluations_without_gain: int = 0

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
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    progress: Progress = field(default_factory=Progress)

    @classmethod
    def fresh(cls, config: Config, vocab_size: int, device: torch.device) -> TrainState:
        """The state before the first step: weights drawn from the seed."""
        torch.manual_seed(config.train.seed)
        model = Transformer(config.model, vocab_size).to(device)
        settings = config.optimizer
        optimizer = torch.optim.AdamW(
            model.parameters(),
            betas=(settings.beta1, settings.beta2),
            eps=settings.epsilon,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        scaler = torch.amp.GradScaler(device.type, enabled=config.train.precision == "float16")
        return cls(model, optimizer, scaler)

    def model_tensors(self) -> dict[str, Tensor]:
        return self.model.state_dict()

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """Adam's means under the names of the weights they belong to."""
        return {
            f"{name}.{key}": value
            for name, parameter in self.model.named_parameters()
            for key, value in self.optimizer.state.get(parameter, {}).items()
        }

    def numbers(self) -> dict[str, Any]:
        """What is not a tensor, ready for JSON."""
        return {"progress": asdict(self.progress), "scaler": self.scaler.state_dict()}

    def restore(self, model: dict[str, Tensor], optimizer: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Become the state that was saved."""
        self.model.load_state_dict(model)
        self.restore_optimizer(optimizer)
        # A run that goes on in another precision has no loss scale to take over.
        if numbers["scaler"] and self.scaler.is_enabled():
            self.scaler.load_state_dict(numbers["scaler"])
        self.progress = Progress(**numbers["progress"])

    def restore_optimizer(self, optimizer: dict[str, Tensor]) -> None:
        """Take up Adam's means."""
        by_parameter: dict[str, dict[str, Tensor]] = {}
        for full_name, value in optimizer.items():
            name, key = full_name.rsplit(".", 1)
            by_parameter.setdefault(name, {})[key] = value
        for name, parameter in self.model.named_parameters():
            if name in by_parameter:
                self.optimizer.state[parameter] = {
                    key: value.to(parameter.device) for key, value in by_parameter[name].items()
                }
