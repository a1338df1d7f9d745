"""One training step: the gradient of the global batch, a guard, and the optimizer.

On a GPU a step is a queue of kernels that the host fills and leaves: the guard against gradients that are not finite
stands on the device, where a bad step and all after it leave the weights alone, and the host reads a step's loss and
norm while the next one is under way. So a step costs one synchronisation, with work that is already done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tandem.cluster.devices import card_of, is_out_of_memory
from tandem.cluster.exchange import Exchange, Votes
from tandem.cluster.instants import Instant, now, wait_for
from tandem.cluster.world import World
from tandem.config import Config
from tandem.errors import TandemError
from tandem.model.batch import Batch
from tandem.model.loss import LossSums, TranslationLoss
from tandem.monitor.clock import Clock
from tandem.monitor.records import WORKED_IN_PARTS
from tandem.train.batches import GlobalBatch, random_seed
from tandem.train.feeder import Feeder, Portion
from tandem.train.schedule import learning_rate
from tandem.train.state import Progress, TrainState

# A micro-batch is halved at most so often for want of memory: a sixty-fourth of one is not worth a card.
MOST_PARTS = 64


class NonFiniteGradientError(TandemError):
    """Training has blown up: raised by every process alike, before the weights are touched."""


@dataclass(frozen=True)
class StepResult:
    """What a step showed on this process: sums over its own target tokens, and the norm of the whole gradient."""

    step: int
    target_tokens: int
    """Of all processes."""
    objective: float
    nll: float
    gradient_norm: float
    learning_rate: float


@dataclass(frozen=True)
class _Pending:
    """A step whose numbers are on their way from the device."""

    numbers: Tensor
    """Objective, negative log-likelihood, norm, and whether the guard has closed."""
    arrived: Instant
    batch: GlobalBatch
    learning_rate: float
    before: Progress


@dataclass(frozen=True)
class _Failure:
    """A step whose gradient was not finite."""

    error: NonFiniteGradientError
    before: Progress
    known_to_all: bool
    """Whether all processes shared that gradient and so find out alike; otherwise they must be told first."""


class Stepper:
    """Takes training steps on a state."""

    def __init__(
        self,
        config: Config,
        world: World,
        state: TrainState,
        feeder: Feeder,
        clock: Clock,
        exchange: Exchange,
        *,
        wish_to_stop: Callable[[], bool] = lambda: False,
        notice: Callable[[str], None] = lambda message: None,
    ) -> None:
        self.config, self.world, self.state, self.feeder, self.clock = config, world, state, feeder, clock
        self.exchange = exchange
        self.stop_asked = False
        """Whether any process wished to stop when all of them last voted."""
        self._wish_to_stop, self._notice = wish_to_stop, notice
        self._loss = TranslationLoss(state.working.model, config.optimizer.label_smoothing)
        self._guard = torch.zeros((), device=world.device)
        """One as soon as a gradient was not finite: from then on no update is applied."""
        self._pending: deque[_Pending] = deque()
        self._results: list[StepResult] = []
        self._failure: _Failure | None = None

    def take(self, batch: GlobalBatch) -> list[StepResult]:
        """Learn from one global batch; the results that have become known, of this step or of the one before."""
        state, before = self.state, replace(self.state.progress)
        self._loss.train()
        with self.clock.measure("compute"):
            state.working.refresh()
        sums = self._gradients(batch)
        with self.clock.measure("optimizer"):
            rate = learning_rate(self.config, batch.step)
            norm = self._update(rate)
        state.progress.step = batch.step
        state.progress.target_tokens += batch.target_tokens
        numbers = torch.cat([sums, norm.unsqueeze(0), self._guard.unsqueeze(0)]).to("cpu", non_blocking=True)
        self._pending.append(_Pending(numbers, now(self.world.device), batch, rate, before))
        self._agree_after_local_steps(batch.step)
        self.clock.exchanged(self.exchange.after_update(batch.step))
        # A processor has them already; a GPU is asked for those of the step before, which it has finished.
        return self._known(all_but=1 if self.world.device.type == "cuda" else 0)

    def settle(self) -> list[StepResult]:
        """Wait for the numbers of all steps taken so far."""
        return self._known(all_but=0)

    def _gradients(self, batch: GlobalBatch) -> Tensor:
        """The gradient that the update is to use, repeated in smaller parts where memory does not suffice.

        Returns the sums of objective and negative log-likelihood over this process's tokens.
        """
        while True:
            sums = self._accumulate(batch)
            votes = self._exchange_and_vote(batch.step, Votes(full=sums is None, stop=self._wish_to_stop()))
            if not votes.full:
                assert sums is not None
                # Where hosts take steps of their own, a wish waits until they meet.
                self.stop_asked = votes.stop > 0 and self.exchange.shares_gradients(batch.step)
                return sums
            self._make_room(batch.step, here=sums is None)

    def _accumulate(self, batch: GlobalBatch) -> Tensor | None:
        """Sum the gradients of this process's micro-batches; None if memory did not suffice."""
        # Divided by the tokens of all processes that sum up, not of this one: the sum is then an exact mean.
        together = self.exchange.shares_gradients(batch.step)
        tokens = batch.target_tokens if together else batch.host_tokens(self.world)
        sums: list[LossSums] = []
        portions = self.feeder.portions(batch, self.state.progress.parts)
        last, full = False, False
        try:
            while not last:
                with self.clock.measure("data"):
                    portion = next(portions)
                    inputs = portion.packed.to(self.world.device)
                last = portion.last
                with self.clock.measure("compute"):
                    sums.append(self._pass(portion, inputs, 1 / tokens))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            full = True
        if full:
            # Only out here has the exception let go of what the pass had allocated.
            torch.cuda.empty_cache()
            if not last:
                # The others wait for this process's part in the last pass, and throw it away as all do.
                self.exchange.before_backward(batch.step, first=True, last=True)
        return None if full else torch.stack([total for each in sums for total in each[1:]]).view(-1, 2).sum(0)

    def _pass(self, portion: Portion, inputs: Batch, factor: float) -> LossSums:
        """One forward and backward pass."""
        step, loss_scale = portion.batch.step, self.state.loss_scale
        self.exchange.before_backward(step, first=portion.first, last=portion.last)
        torch.manual_seed(
            random_seed(self.config.train.seed, step, portion.micro_batch.number, portion.micro_batch.part)
        )
        sums: LossSums = self._loss(inputs, factor, None if loss_scale is None else loss_scale.value)
        sums.scaled.backward()  # type: ignore[no-untyped-call]
        return sums

    def _exchange_and_vote(self, step: int, mine: Votes) -> Votes:
        """End the exchange of gradients; the votes of all that share them, in one small message."""
        with self.clock.measure("compute"):
            exchanged = self.exchange.after_backward(step, mine)
        for exposure in exchanged.exposures:
            self.clock.exchanged(exposure, inside="compute")
        if exchanged.votes is not None:
            return exchanged.votes
        with self.clock.measure("waiting"):
            return Votes(*self.exchange.vote(step, *mine))

    def _make_room(self, step: int, here: bool) -> None:
        """Work in smaller parts from now on, or say what to set; every process does the same."""
        settings, device = self.config.batch, self.world.device
        full = self.exchange.vote(step, *(here and rank == self.world.rank for rank in range(self.world.size)))
        rank = next(rank for rank, votes in enumerate(full) if votes)
        host = self.world.host_names[self.world.host_of(rank)]
        where = f"step {step}: the GPU of rank {rank}{f' on {host}' if host else ''} has too little memory"
        tokens = settings.tokens
        assert tokens != "auto", "the run has chosen by now"
        progress = self.state.progress
        if settings.split_when_full and progress.parts < MOST_PARTS:
            progress.parts *= 2
            self._notice(
                f"{where} for batch.tokens={tokens}; from here on {WORKED_IN_PARTS} {progress.parts} parts "
                f"(batch.tokens={tokens // progress.parts} would do from the start)"
            )
            return
        memory = f" ({card.memory_bytes / 1e9:.0f} GB, {card.name})" if (card := card_of(device)) else ""
        if settings.split_when_full:
            remedy = f"not even a {MOST_PARTS}th of a micro-batch fits: take a smaller model, or a larger card"
        elif tokens // 2 < self.config.model.max_length:
            remedy = "set batch.split_when_full=true, which works through micro-batches in parts"
        else:
            smaller = f"batch.tokens={tokens // 2} batch.micro_batches={2 * settings.micro_batches}"
            remedy = (
                f"{smaller} makes steps of the same size in half the memory, and so does batch.split_when_full=true"
            )
        raise self.world.refusal(f"{where}{memory}; {remedy}")

    def _update(self, rate: float) -> Tensor:
        """Check, clip and apply the gradient, all on the device; its norm.

        A float16 gradient may overflow now and then: the update is skipped and the loss scale halved. Only at a scale
        below one is it the model's own fault.
        """
        optimizer, loss_scale, clip = self.state.optimizer, self.state.loss_scale, self.config.optimizer.clip_norm
        norm: Tensor = torch.linalg.vector_norm(self.state.flat.gradient)
        if loss_scale is not None:
            norm = norm / loss_scale.value
        overflowed = norm.isfinite().logical_not_()
        hopeless = overflowed if loss_scale is None else overflowed & (loss_scale.value < 1)
        self._guard = torch.maximum(self._guard, hopeless.to(self._guard.dtype))
        # Divides by this, and does nothing at all if something was found not to be finite: what PyTorch's own
        # gradient scaler tells a fused optimizer.
        divisor = None if clip is None else (norm / clip).clamp_min_(1.0)
        if loss_scale is not None:
            divisor = loss_scale.value if divisor is None else divisor * loss_scale.value
        optimizer.grad_scale = divisor  # type: ignore[attr-defined]
        optimizer.found_inf = torch.maximum(self._guard, overflowed.to(self._guard.dtype))  # type: ignore[attr-defined]
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        if loss_scale is not None:
            loss_scale.update(overflowed)
        return norm

    def _agree_after_local_steps(self, step: int) -> None:
        """Where hosts take steps of their own, let all hear of a failure or a wish to stop when they meet."""
        if self.exchange.shares_gradients(step) or not self.exchange.settles(step):
            return
        with self.clock.measure("waiting"):
            self._look_at_pending(all_but=0)
            failed, votes_stop = self.world.total(self._failure is not None, self._wish_to_stop())
        self.stop_asked = votes_stop > 0
        if failed:
            if self._failure is not None:
                raise self._failed(self._failure)
            raise NonFiniteGradientError(
                f"step {step}: the gradient of another host was not finite; its journal says more"
            )

    def _known(self, all_but: int) -> list[StepResult]:
        """Results of all steps but the newest so many; a guard that has closed is an error.

        Where a gradient is shared, all processes find that alike; of a step that a host has taken by itself, the others
        must hear first.
        """
        self._look_at_pending(all_but)
        if self._failure is not None and self._failure.known_to_all:
            raise self._failed(self._failure)
        results, self._results = self._results, []
        return results

    def _failed(self, failure: _Failure) -> NonFiniteGradientError:
        """The error to raise; the run's progress is again that of the last good step, whose weights it has."""
        vars(self.state.progress).update(vars(failure.before))
        return failure.error

    def _look_at_pending(self, all_but: int) -> None:
        """Read the numbers of all steps but the newest so many."""
        while len(self._pending) > all_but:
            pending = self._pending.popleft()
            wait_for(pending.arrived)
            objective, nll, norm, guard = pending.numbers.tolist()
            step, rate = pending.batch.step, pending.learning_rate
            if guard and self._failure is None:
                error = NonFiniteGradientError(
                    f"step {step}: the gradient is not finite ({norm}), nothing of this step was kept; continue with "
                    f"--change and a lower learning rate (now {rate:.2e}), optimizer.clip_norm or another precision"
                )
                self._failure = _Failure(error, pending.before, self.exchange.shares_gradients(step))
            self._results.append(StepResult(step, pending.batch.target_tokens, objective, nll, norm, rate))
