"""One training step: the gradient of the global batch, a guard, and the optimizer."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from tandem.cluster.exchange import AllReduce
from tandem.cluster.world import World
from tandem.config import Config
from tandem.corpus.tokenizer import BOS, EOS
from tandem.errors import TandemError
from tandem.model.loss import TranslationLoss
from tandem.monitor.clock import Clock
from tandem.train.batches import Batches, GlobalBatch, random_seed
from tandem.train.schedule import learning_rate
from tandem.train.state import PRECISIONS, TrainState


class NonFiniteGradientError(TandemError):
    """Training has blown up: raised by every process alike, before the weights are touched."""


@dataclass(frozen=True)
class StepResult:
    """What a step showed on this process: sums over its own target tokens, and the norm of the whole gradient."""

    objective: float
    nll: float
    gradient_norm: float
    learning_rate: float


class Stepper:
    """Takes training steps on a state."""

    def __init__(self, config: Config, world: World, state: TrainState, batches: Batches, clock: Clock) -> None:
        self.config, self.world, self.state, self.batches, self.clock = config, world, state, batches, clock
        self.exchange = AllReduce(TranslationLoss(state.model, config.optimizer.label_smoothing), world)

        self._let_exchange_settle()

    def _let_exchange_settle(self) -> None:
        """Take a backward pass for nothing, after which DDP lays out its buckets for good.

        The order in which three or more processes add depends on that layout; were it to change after the first
        real step, a resumed run, whose first step comes later, would round differently from one left alone.
        """
        if self.world.size > 1:
            nothing = torch.tensor([[BOS, EOS]], device=self.world.device)
            objective, _ = self.exchange.module(nothing, nothing)
            objective.backward()
            self.state.optimizer.zero_grad()
            self.exchange.take_bytes()

    def take(self, batch: GlobalBatch) -> StepResult:
        """Learn from one global batch."""
        self.state.model.train()
        self.state.model.compute_dtype = PRECISIONS[self.config.train.precision]
        objective, nll = self._accumulate_gradients(batch)
        with self.clock.measure("optimizer"):
            rate = learning_rate(self.config, batch.step)
            norm = self._update(batch.step, rate)
        self.state.progress.step = batch.step
        self.state.progress.target_tokens += batch.target_tokens
        return StepResult(objective, nll, norm, rate)

    def _accumulate_gradients(self, batch: GlobalBatch) -> tuple[float, float]:
        """Sum the gradients of this process's micro-batches; the last backward pass exchanges the sum."""
        share = batch.share(self.world.rank, self.world.size)
        total = torch.zeros(2, device=self.world.device)
        for micro_batch in share:
            with self.clock.measure("data"):
                source_BS, target_BT = self.batches.tensors(micro_batch, self.world.device)
            last = micro_batch is share[-1]
            with self.clock.measure("compute"), self.exchange.only_when(last):
                torch.manual_seed(random_seed(self.config.train.seed, batch.step, micro_batch.number))
                objective, nll = self.exchange.module(source_BS, target_BT)
                # Divided by the tokens of all processes, not of this one: the sum over processes is then exact.
                self.state.scaler.scale(objective / batch.target_tokens).backward()
                total += torch.stack([objective.detach(), nll])
                backward_end = time.perf_counter()
            if last:
                self.clock.move(self.exchange.exposed_seconds(backward_end), "compute", "communication")
        objective_sum, nll_sum = total.tolist()
        return objective_sum, nll_sum

    def _update(self, step: int, rate: float) -> float:
        """Check, clip and apply the gradient; it is the same on every process, so all decide alike."""
        optimizer, scaler, clip = self.state.optimizer, self.state.scaler, self.config.optimizer.clip_norm
        parameters = list(self.state.model.parameters())
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        finite = bool(norm.isfinite())
        # A float16 gradient may overflow now and then: the scaler skips the step and halves the scale. Only at
        # a scale below one is it the model's own fault.
        if not finite and (not scaler.is_enabled() or scaler.get_scale() < 1):
            raise NonFiniteGradientError(
                f"step {step}: the gradient is not finite ({float(norm)}), nothing of this step was kept; continue "
                f"with --change and a lower learning rate (now {rate:.2e}), optimizer.clip_norm or another precision"
            )
        if clip is not None:
            torch.nn.utils.clip_grads_with_norm_(parameters, clip, norm)
        for group in optimizer.param_groups:
            group["lr"] = rate
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return float(norm)
