"""One training step: the gradient of the global batch, a guard, and the optimizer.

A GPU never waits for the host: the guard against gradients that are not finite is on the device, where a bad step and
all after it leave the weights alone, and the host reads a step's loss and norm while the next one is under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import NoReturn

import torch
from torch import Tensor

from tandem.cluster.devices import gpu_of, is_out_of_memory
from tandem.cluster.exchange.exchange import Exchange, Votes
from tandem.cluster.world import World
from tandem.config import Config
from tandem.model.batch import Batch
from tandem.model.loss import LossSums, translation_loss
from tandem.model.parallel_passes import ParallelPasses
from tandem.model.translation_model import TranslationModel
from tandem.monitor.activity import ACTIVITY, EXCHANGE
from tandem.monitor.device_clock import Instant, now, wait_for
from tandem.monitor.records import NOT_FINITE, WORKED_IN_PARTS
from tandem.monitor.step_clock import StepClock
from tandem.schedules.schedule import learning_rate
from tandem.training.batches import GlobalBatch, random_seed
from tandem.training.data_loader import LoadedMicroBatch, MicroBatchLoader
from tandem.training.faults.divergence import NonFiniteGradientError
from tandem.training.step_result import StepResult
from tandem.training.train_state import TrainingProgress, TrainState

# A micro-batch is split into so many parts at most for want of memory.
MOST_PARTS = 64


@dataclass(frozen=True)
class _Pending:
    """A step whose numbers are on their way from the device: objective, nll, norm, and whether the guard has closed."""

    numbers: Tensor
    arrived: Instant
    batch: GlobalBatch
    learning_rate: float
    before: TrainingProgress

    def error(self) -> NonFiniteGradientError:
        step, norm = self.batch.step, float(self.numbers[2])
        what = f"step {step}: {NOT_FINITE} ({norm}), nothing of this step was kept"
        return NonFiniteGradientError(step, what, self.learning_rate)


class Stepper:
    """Takes training steps on a state."""

    def __init__(
        self,
        config: Config,
        world: World,
        state: TrainState,
        loader: MicroBatchLoader,
        clock: StepClock,
        exchange: Exchange,
        *,
        wish_to_stop: Callable[[], float] = lambda: 0.0,
        is_writing: Callable[[], bool] = lambda: False,
        notice: Callable[[str], None] = lambda message: None,
    ) -> None:
        self.config, self.world, self.state, self.loader, self.clock = config, world, state, loader, clock
        self.exchange = exchange
        self.stop_asked = 0.0
        """Sum of all processes' wishes to stop when they last voted."""
        self.all_written = False
        """Whether all processes have voted in the newest step that their parts of a checkpoint are written."""
        self._wish_to_stop, self._is_writing, self._notice = wish_to_stop, is_writing, notice
        self._parallel_passes = ParallelPasses(len(state.working.models))
        self._guard = torch.zeros((), device=world.device)
        """One as soon as a gradient was not finite: from then on no update is applied."""
        self._pending: deque[_Pending] = deque()
        self._results: list[StepResult] = []
        self._failed: _Pending | None = None
        """The first step whose gradient was not finite."""

    def step(self, batch: GlobalBatch) -> list[StepResult]:
        """Train on one global batch; the results that are known by now, of this step or of the one before."""
        state, before = self.state, replace(self.state.progress)
        with self.clock.measure("compute"):
            state.working.refresh()
        sums = self._gradients(batch)
        with state.whole.changing():
            with self.clock.measure("optimizer"):
                rate = learning_rate(self.config, batch.step)
                norm = self._update(rate)
            state.progress.step = batch.step
            state.progress.target_tokens += batch.target_tokens
            numbers = torch.cat([sums, norm.unsqueeze(0), self._guard.unsqueeze(0)]).to("cpu", non_blocking=True)
            self._pending.append(_Pending(numbers, now(self.world.device), batch, rate, before))
            self._agree_after_local_steps(batch.step)
            with ACTIVITY.doing(EXCHANGE):
                self.clock.exchanged(self.exchange.after_update(batch.step))
            self._average_weights(batch.step)
        # A processor is done; a GPU is asked for the numbers of the step before, which it has finished.
        return self.flush(all_but=1 if self.world.device.type == "cuda" else 0)

    def flush(self, all_but: int = 0) -> list[StepResult]:
        """Wait for the results of all steps but the newest so many; a gradient that was not finite is an error."""
        self._read_pending(all_but)
        # A step that a host has taken by itself fails when the hosts meet: the others must hear of it first.
        if self._failed is not None and self.exchange.shares_gradients(self._failed.batch.step):
            self._fail(self._failed)
        results, self._results = self._results, []
        return results

    def restart(self, make_exchange: Callable[[], Exchange]) -> None:
        """Go on from a state that was restored, with a fresh exchange, as if no step had been taken before."""
        # Two of them might not fit on a card.
        del self.exchange
        self.exchange = make_exchange()
        self._guard.zero_()
        self._pending.clear()
        self._results, self._failed = [], None

    def results_before(self, step: int) -> list[StepResult]:
        """The results before a step whose gradient was not finite, as far as they were not handed out yet."""
        self._read_pending(all_but=0)
        return [result for result in self._results if result.step < step]

    def sound(self) -> bool:
        """Whether the gradients of all steps so far were finite, those included whose results nobody has read yet."""
        return not float(self._guard)

    def _gradients(self, batch: GlobalBatch) -> Tensor:
        """Compute and exchange gradients, again in smaller parts where memory does not suffice.

        Returns the sums of objective and negative log-likelihood over this process's tokens.
        """
        while True:
            sums = self._accumulate(batch)
            mine = Votes(full=sums is None, stop=self._wish_to_stop(), writing=self._is_writing())
            votes = self._exchange_and_vote(batch.step, mine)
            if not votes.full:
                assert sums is not None
                # Where hosts take steps of their own, what they vote on waits until they meet.
                together = self.exchange.shares_gradients(batch.step)
                self.stop_asked, self.all_written = votes.stop if together else 0.0, together and not votes.writing
                return sums
            self._make_room(batch.step, here=sums is None)

    def _accumulate(self, batch: GlobalBatch) -> Tensor | None:
        """Sum the gradients of this process's micro-batches; None if memory did not suffice."""
        # Divided by the tokens of all processes that sum up, not of this one: the sum is then an exact mean.
        together = self.exchange.shares_gradients(batch.step)
        tokens = batch.target_tokens if together else batch.host_tokens(self.world)
        sums: list[LossSums] = []
        micro_batches = self.loader.micro_batches(batch, self.state.progress.parts)
        last, full = False, False
        try:
            while not last:
                with self.clock.measure("data"):
                    loaded = list(islice(micro_batches, len(self.state.working.models)))
                    inputs = [each.packed.to(self.world.device) for each in loaded]
                last = loaded[-1].last
                with self.clock.measure("compute"):
                    sums += self._passes(loaded, inputs, 1 / tokens)
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

    def _passes(self, loaded: Sequence[LoadedMicroBatch], inputs: Sequence[Batch], factor: float) -> Sequence[LossSums]:
        """Forward and backward passes in parallel."""
        step, first, last = loaded[0].batch.step, loaded[0].first, loaded[-1].last
        self.exchange.before_backward(step, first=first, last=last, passes=len(loaded))
        parts = [each.micro_batch for each in loaded]
        seeds = [random_seed(self.config.train.seed, step, part.number, part.part) for part in parts]
        models = self.state.working.models[: len(loaded)]
        passes = [partial(self._pass, model, each, factor) for model, each in zip(models, inputs, strict=True)]
        return self._parallel_passes.run(passes, seeds)

    def _pass(self, model: TranslationModel, inputs: Batch, factor: float) -> LossSums:
        """One forward and backward pass."""
        loss_scale = self.state.loss_scale
        smoothing, scale = self.config.optimizer.label_smoothing, None if loss_scale is None else loss_scale.value
        sums = translation_loss(model, inputs, smoothing, factor, scale)
        sums.scaled.backward()  # type: ignore[no-untyped-call]
        return sums

    def _exchange_and_vote(self, step: int, mine: Votes) -> Votes:
        """End the exchange of gradients; the sum of votes of the processes that share them."""
        with self.clock.measure("compute"), ACTIVITY.doing(EXCHANGE):
            exchanged = self.exchange.after_backward(step, mine)
        for exposure in exchanged.exposures:
            self.clock.exchanged(exposure, inside="compute")
        if exchanged.votes is not None:
            return exchanged.votes
        with self.clock.measure("waiting"):
            return Votes(*self.exchange.vote(step, *mine))

    def _make_room(self, step: int, here: bool) -> None:
        """Work in smaller parts from now on, or say what to set; every process does the same."""
        settings, progress = self.config.batch, self.state.progress
        full = self.exchange.vote(step, *(here and rank == self.world.rank for rank in range(self.world.size)))
        rank = next(rank for rank, votes in enumerate(full) if votes)
        host = self.world.host_names[self.world.host_of(rank)]
        where = f"step {step}: the GPU of rank {rank}{f' on {host}' if host else ''} has too little memory"
        tokens = settings.tokens
        assert tokens != "auto", "resolved at the start"
        if settings.split_when_full and progress.parts < MOST_PARTS:
            progress.parts *= 2
            self._notice(
                f"{where} for batch.tokens={tokens}; from here on {WORKED_IN_PARTS} {progress.parts} parts "
                f"(batch.tokens={tokens // progress.parts} would do from the start)"
            )
            return
        memory = f" ({card.memory_bytes / 1e9:.0f} GB, {card.name})" if (card := gpu_of(self.world.device)) else ""
        if settings.split_when_full:
            remedy = f"not even a {MOST_PARTS}th of a micro-batch fits: take a smaller model, or a larger card"
        elif tokens // 2 < self.config.model.max_length:
            remedy = "set batch.split_when_full=true, which works through micro-batches in parts"
        else:
            smaller = f"batch.tokens={tokens // 2} batch.micro_batches={2 * settings.micro_batches}"
            half = "makes steps of the same size in half the memory, and so does batch.split_when_full=true"
            remedy = f"{smaller} {half}"
        raise self.world.shared_error(f"{where}{memory}; {remedy}")

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
        # How PyTorch's own gradient scaler makes a fused optimizer divide gradients, or skip the update.
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

    def _average_weights(self, step: int) -> None:
        """Take the weights into their average as soon as all processes hold the same; steps of their own count, too.

        After a gradient that was not finite the average moves on, but nobody uses it: the run ends or goes back.
        """
        if self.state.average is not None and self.exchange.in_sync_after(step):
            with self.clock.measure("optimizer"):
                self.state.average.update(step, step - self.exchange.last_sync_before(step))

    def _agree_after_local_steps(self, step: int) -> None:
        """Share failures, and what else is voted on, when hosts meet that have taken steps of their own."""
        if self.exchange.shares_gradients(step) or not self.exchange.in_sync_after(step):
            return
        with self.clock.measure("waiting"):
            self._read_pending(all_but=0)
            failed, stop, writing = self.world.total(self._failed is not None, self._wish_to_stop(), self._is_writing())
        self.stop_asked, self.all_written = stop, not writing
        if failed:
            mine = self._failed
            # The first of all hosts' counts, so that all of them do the same about it.
            first = -int(self.world.largest(-float("inf") if mine is None else -mine.batch.step))
            if mine is not None and mine.batch.step == first:
                self._fail(mine)
            what = f"step {first}: {NOT_FINITE} on another host, whose journal says more"
            raise NonFiniteGradientError(first, what, learning_rate(self.config, first))

    def _read_pending(self, all_but: int) -> None:
        """Read the numbers of all steps but the newest so many."""
        while len(self._pending) > all_but:
            pending = self._pending.popleft()
            wait_for(pending.arrived)
            objective, nll, norm, guard = pending.numbers.tolist()
            if guard and self._failed is None:
                self._failed = pending
            batch, rate = pending.batch, pending.learning_rate
            self._results.append(StepResult(batch.step, batch.target_tokens, objective, nll, norm, rate))

    def _fail(self, failed: _Pending) -> NoReturn:
        """Go back to the progress of the last good step, whose weights the run still has."""
        vars(self.state.progress).update(vars(failed.before))
        raise failed.error()
