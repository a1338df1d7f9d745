"""One training step: the gradient of the global batch, a guard, and the optimizer."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tandem.cluster.exchange import Exchange
from tandem.cluster.world import World
from tandem.config import Config
from tandem.corpus.tokenizer import BOS, EOS
from tandem.errors import TandemError
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

    def __init__(
        self,
        config: Config,
        world: World,
        state: TrainState,
        batches: Batches,
        clock: Clock,
        exchange: Exchange,
    ) -> None:
        self.config, self.world, self.state, self.batches, self.clock = config, world, state, batches, clock
        self.exchange = exchange
        self._failure: NonFiniteGradientError | None = None
        """Of a step that this host has taken by itself; told when all hosts meet."""
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
        with self.clock.measure("waiting"):
            self._stop_if_any_host_failed(batch.step)
        self.clock.exchanged(self.exchange.after_update(batch.step))
        self.state.progress.step = batch.step
        self.state.progress.target_tokens += batch.target_tokens
        return StepResult(objective, nll, norm, rate)

    def _accumulate_gradients(self, batch: GlobalBatch) -> tuple[float, float]:
        """Sum the gradients of this process's micro-batches, and exchange the sum after the last."""
        share = batch.share(self.world.rank, self.world.size)
        # Divided by the tokens of all processes that sum up, not of this one: the sum is then an exact mean.
        together = self.exchange.shares_gradients(batch.step)
        tokens = batch.target_tokens if together else batch.host_tokens(self.world)
        total = torch.zeros(2, device=self.world.device)
        for micro_batch in share:
            with self.clock.measure("data"):
                source_BS, target_BT = self.batches.tensors(micro_batch, self.world.device)
            last = micro_batch is share[-1]
            with self.clock.measure("compute"):
                with self.exchange.only_when(batch.step, last):
                    torch.manual_seed(random_seed(self.config.train.seed, batch.step, micro_batch.number))
                    objective, nll = self.exchange.module(source_BS, target_BT)
                    self.state.scaler.scale(objective / tokens).backward()
                total += torch.stack([objective.detach(), nll])
                exposures = self.exchange.after_backward(batch.step) if last else []
            for exposure in exposures:
                self.clock.exchanged(exposure, inside="compute")
        objective_sum, nll_sum = total.tolist()
        return objective_sum, nll_sum

    def _update(self, step: int, rate: float) -> float:
        """Check, clip and apply the gradient; where it is the same on every process, all decide alike."""
        optimizer, scaler, clip = self.state.optimizer, self.state.scaler, self.config.optimizer.clip_norm
        parameters = list(self.state.model.parameters())
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        finite = bool(norm.isfinite())
        # A float16 gradient may overflow now and then: the scaler skips the step and halves the scale. Only at
        # a scale below one is it the model's own fault.
        if not finite and (not scaler.is_enabled() or scaler.get_scale() < 1):
            self._failure = NonFiniteGradientError(
                f"step {step}: the gradient is not finite ({float(norm)}), nothing of this step was kept; continue "
                f"with --change and a lower learning rate (now {rate:.2e}), optimizer.clip_norm or another precision"
            )
        if self._failure is not None:
            optimizer.zero_grad()
            return float(norm)
        if clip is not None:
            torch.nn.utils.clip_grads_with_norm_(parameters, clip, norm)
        for group in optimizer.param_groups:
            group["lr"] = rate
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return float(norm)

    def _stop_if_any_host_failed(self, step: int) -> None:
        """Raise on every process what went wrong on any of them, at a step where all of them ask."""
        if self.exchange.shares_gradients(step):
            failed = self._failure is not None
        else:
            failed = self.exchange.settles(step) and self.world.agree(self._failure is not None)
        if failed:
            elsewhere = "the gradient of another host was not finite; its journal says more"
            raise self._failure or NonFiniteGradientError(f"step {step}: {elsewhere}")
