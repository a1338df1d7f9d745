"""The verbs of the training loop for one process: what it means to fetch, step, log, evaluate, save."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path

import torch

import tandem
from tandem.cluster.devices import gpu_of
from tandem.cluster.exchange.exchange import Exchange
from tandem.cluster.exchange.strategy import make_exchange
from tandem.cluster.exchange.traffic import BASELINE
from tandem.cluster.world import World
from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.layout import RunPaths
from tandem.monitor.journal import Recorder
from tandem.monitor.network_interfaces import TrafficMeter
from tandem.monitor.records import Ended, Noticed, Planned, Progressed, RolledBack, Saved, Started
from tandem.monitor.step_clock import StepClock
from tandem.training.batches import Batches, GlobalBatch
from tandem.training.checkpoints.broadcast_state import broadcast_state
from tandem.training.checkpoints.checkpoint_store import CheckpointStore, WritableCheckpointStore
from tandem.training.checkpoints.exchange_state import ExchangeState
from tandem.training.data_loader import make_loader
from tandem.training.divergence import DivergedError, LossExplosionError, plan_roll_back
from tandem.training.evaluate import evaluate
from tandem.training.host_monitor import HostMonitor
from tandem.training.startup.exchange_plan import plan_exchange
from tandem.training.step import Stepper
from tandem.training.step_result import StepResult, sum_over_processes
from tandem.training.train_state import TrainState

FINISHED = "finished"
OUT_OF_PATIENCE = "stopped early"
ASKED_TO_STOP = "stopped on request"


class Trainer:
    """What the training loop calls; other processes than the first have a checkpoint store that writes nothing."""

    def __init__(
        self, config: Config, corpus: PreparedCorpus, world: World, recorder: Recorder, directory: Path
    ) -> None:
        self.config, self.corpus, self.world, self.recorder = config, corpus, world, recorder
        self.store = CheckpointStore(directory)
        if world.is_leader:
            self.store = WritableCheckpointStore(directory, config.checkpoint)
        self.clock = StepClock(world.device)
        self.batches = Batches.of_run(config, corpus.pairs("train"))
        self.state = TrainState.fresh(config, corpus.tokenizer.vocab_size, world.device)
        self._resume()
        self.choice = plan_exchange(config, world, self.state, self.batches, RunPaths(directory))
        self.stop_signal: str | None = None
        """The signal by which this process was asked to stop."""
        self.loader = make_loader(self.batches, world)
        self.stepper = Stepper(
            config,
            world,
            self.state,
            self.loader,
            self.clock,
            self._make_exchange(),
            wish_to_stop=lambda: self.stop_signal is not None,
            notice=self.notice,
        )
        self.exchange_state = ExchangeState(
            directory, world, self.choice.plan, config.exchange, keep_last=config.checkpoint.keep_last
        )
        self._restore_exchange_state()
        self.meter = TrafficMeter(None if world.interface is None else world.interface.name)
        self.host_monitor = HostMonitor(world, recorder, lambda: self.state.progress.step)
        self._mine: list[StepResult] = []
        """Results of the newest steps, which have not been summed over all processes yet."""
        self._unlogged: list[StepResult] = []
        """Results of the steps since the last log line, over all processes."""
        self._exploded: LossExplosionError | None = None
        self._session_start, self._session_first_step = time.perf_counter(), self.state.progress.step

    def _resume(self) -> None:
        """Take up the newest whole checkpoint, if there is one: the first process reads it for all."""

        def read() -> None:
            checkpoint = self.store.newest_whole(self.notice) if self.world.is_leader else None
            if checkpoint is not None:
                checkpoint.restore(self.state)
                self.store.discard_after(self.state.progress.step)

        self.world.together(read)
        broadcast_state(self.world, self.state)
        self.batches.skipped = self.state.progress.skipped

    def _make_exchange(self) -> Exchange:
        return make_exchange(self.choice.plan, self.config, self.state.flat_vectors(), self.world)

    def _restore_exchange_state(self) -> None:
        """Restore the state of the exchange that each host keeps for itself."""
        missing = self.exchange_state.restore(self.state, self.stepper.exchange)
        if missing:
            self.notice(
                f"{missing} of {len(self.world.hosts)} hosts have no memory of {self.choice.plan} at this step; "
                "all of them begin with an empty one"
            )

    def begin(self) -> None:
        """Record what is about to happen."""
        order, interface, plan = self.batches.order, self.world.interface, self.choice.plan
        card = gpu_of(self.world.device)
        self.recorder.record(
            Started(
                step=self.state.progress.step,
                max_steps=self.config.train.max_steps,
                version=tandem.__version__,
                host=self.world.host_names[self.world.host],
                hosts=list(self.world.host_names),
                interface=None if interface is None else interface.name,
                address=None if interface is None else interface.address,
                process=os.getpid(),
                rank=self.world.rank,
                world_size=self.world.size,
                device=self.world.device.type,
                threads=torch.get_num_threads(),
                precision=self.config.train.precision,
                parameters=sum(parameter.numel() for parameter in self.state.model.parameters()),
                corpus_digest=self.corpus.digest,
                training_pairs=order.kept,
                pairs_left_out=order.left_out,
                padding_share=order.padding_share(),
                steps_per_epoch=self.batches.steps_per_epoch,
                startup_seconds=sum(self.clock.lap().values()),
                card=None if card is None else card.name,
                card_memory_bytes=None if card is None else card.memory_bytes,
                batch_tokens=self.batches.tokens,
                micro_batches=self.batches.micro_batches,
                compiled=self.config.model.compile == "on",
                deterministic=card is None or self.config.train.deterministic,
            )
        )
        if len(self.world.hosts) > 1:
            self.recorder.record(
                Planned(
                    step=self.state.progress.step,
                    exchange=plan.kind,
                    local_steps=plan.local_steps,
                    reason=self.choice.reason,
                    slow_downs=self.choice.slow_downs,
                    bytes_per_value=plan.strategy.sums_like(self.config.exchange).bytes_per_value,
                )
            )
        elif self.config.exchange.kind not in ("auto", BASELINE):
            self.notice(f"exchange.kind={self.config.exchange.kind} has no effect: all processes are on one host")
        if order.left_out:
            self.notice(f"{order.left_out:,} training pairs are longer than model.max_length and left out")
        if self.state.progress.step:
            self.notice(f"continuing after step {self.state.progress.step:,}")

    def fetch(self, step: int) -> GlobalBatch:
        with self.clock.measure("data"):
            return self.loader.fetch(step)

    def step(self, batch: GlobalBatch) -> None:
        self._mine += self.stepper.step(batch)
        self.recorder.stepped(batch.step)

    def flush(self) -> None:
        """Wait for the result of every step taken, before the weights or the numbers are used."""
        self._mine += self.stepper.flush()

    def due(self, every: int) -> bool:
        """Whether something done every so many steps is done now; at the last step everything is.

        It waits for a step after which all processes hold the same weights.
        """
        step, exchange = self.state.progress.step, self.stepper.exchange
        passed = step // every > exchange.last_sync_before(step) // every
        return exchange.in_sync_after(step) and (passed or step == self.config.train.max_steps)

    def log(self) -> None:
        """Record the steps since the last log line."""
        survey = self._sum_results()
        results, self._unlogged = self._unlogged, []
        seconds, traffic = self.clock.lap(), self.meter.lap()
        training_seconds = sum(seconds.values()) - seconds["evaluation"] - seconds["checkpoint"]
        target_tokens = sum(result.target_tokens for result in results)
        # A step that float16 skipped has no norm worth averaging.
        norms = [result.gradient_norm for result in results if math.isfinite(result.gradient_norm)]
        step, max_steps = self.state.progress.step, self.config.train.max_steps
        elapsed = time.perf_counter() - self._session_start
        self.recorder.record(
            Progressed(
                step=step,
                max_steps=max_steps,
                steps=len(results),
                epoch=self.batches.epoch_after(step),
                train_loss=sum(result.nll for result in results) / target_tokens,
                objective=sum(result.objective for result in results) / target_tokens,
                learning_rate=results[-1].learning_rate,
                gradient_norm=sum(norms) / max(len(norms), 1),
                target_tokens=target_tokens,
                tokens_per_second=target_tokens / training_seconds,
                step_seconds=training_seconds / len(results),
                seconds_left=elapsed / (step - self._session_first_step) * (max_steps - step),
                exchanged_bytes=self.stepper.exchange.pop_sent_bytes(),
                network_sent_bytes=traffic.sent,
                network_received_bytes=traffic.received,
                seconds=seconds,
            )
        )
        if survey:
            with self.clock.measure("waiting"):
                self.host_monitor.survey(step, seconds)
        self._stop_if_exploded()

    def _sum_results(self) -> bool:
        """Sum the newest results over all processes, and judge their losses; whether it is time for a survey."""
        self.flush()
        results, self._mine = self._mine, []
        if not results:
            # All processes have taken the same steps, so none of them waits for this one.
            return False
        with self.clock.measure("waiting"):
            summed, survey = sum_over_processes(self.world, results, self.host_monitor.survey_due)
        self._unlogged += summed
        self._judge(summed)
        return survey

    def _judge(self, results: Sequence[StepResult]) -> None:
        rise = self.config.divergence.loss_rise
        for result in results:
            if rise is None or self._exploded is not None:
                return
            if what := self.state.losses.add(result.step, result.loss, rise):
                self._exploded = LossExplosionError(result.step, what, result.learning_rate)

    def _stop_if_exploded(self) -> None:
        if self._exploded is not None:
            raise self._exploded

    def roll_back(self, diverged: DivergedError) -> None:
        """Go back to the newest checkpoint from before training diverged, and skip the data on which it did.

        The same way as a resume, in processes that go on; the second time the error is raised instead.
        """
        # Weights whose gradient is not finite have often exploded before, in steps that were not judged yet.
        results = [*self._mine, *self.stepper.results_before(diverged.step)]
        self._judge(sum_over_processes(self.world, results)[0])
        diverged = self._exploded or diverged
        plan = plan_roll_back(diverged, self.state.losses, self.state.progress.skipped, self.config.divergence)
        with self.clock.measure("checkpoint"):
            self.world.together(lambda: self._restore_before(plan.first_step, diverged))
            broadcast_state(self.world, self.state)
        progress = self.state.progress
        progress.skipped = self.batches.skipped = plan.skipped
        self._mine, self._unlogged, self._exploded = [], [], None
        self.stepper.restart(self._make_exchange)
        self._restore_exchange_state()
        self._session_start, self._session_first_step = time.perf_counter(), progress.step
        self.recorder.record(
            RolledBack(
                step=diverged.step,
                to_step=progress.step,
                reason=diverged.what,
                skipped_from=plan.first_step,
                skipped_steps=plan.skipped_steps,
            )
        )

    def _restore_before(self, step: int, diverged: DivergedError) -> None:
        """Restore the newest checkpoint from before a step; the beginning of the run, if none was due until then.

        The first process reads it for all.
        """
        if not self.world.is_leader:
            return
        checkpoint = self.store.newest_whole(self.notice, before=step)
        if checkpoint is not None:
            checkpoint.restore(self.state)
        elif step <= self.config.checkpoint.every_steps:
            self.state.begin_again(self.config, self.corpus.tokenizer.vocab_size)
        else:
            diverged.add(f"no checkpoint from before step {step:,} is left to go back to")
            raise diverged
        self.store.discard_after(self.state.progress.step, why="diverged")

    def evaluate(self) -> None:
        """Measure the model on the dev set, and save it if it is one of the best."""
        self.flush()
        progress = self.state.progress
        with self.clock.measure("evaluation"):
            evaluated = evaluate(
                self.state.model,
                self.corpus,
                self.config,
                self.world,
                split="dev",
                step=progress.step,
                progress=lambda done, total: self.recorder.working("evaluating: batch", done, total),
            )
        progress.note_bleu(evaluated.bleu)
        self.recorder.record(evaluated)
        with self.clock.measure("checkpoint"):
            self.world.together(lambda: self.store.save_if_best(self.state, evaluated.bleu))

    def reason_to_stop(self) -> str | None:
        """Why training should not go on; every process comes to the same answer."""
        progress, patience = self.state.progress, self.config.evaluation.patience
        if progress.step >= self.config.train.max_steps:
            return FINISHED
        if patience is not None and progress.evaluations_without_gain >= patience:
            return OUT_OF_PATIENCE
        if not (self.stepper.stop_asked and self.stepper.exchange.in_sync_after(progress.step)):
            return None
        if self.stop_signal is not None:
            self.notice(f"{self.stop_signal}: saving and stopping; once more to stop at once")
        return ASKED_TO_STOP

    def save(self) -> None:
        """Write a checkpoint, unless the loss has exploded."""
        self._sum_results()
        self._stop_if_exploded()
        start = time.perf_counter()
        with self.clock.measure("checkpoint"):
            self.world.together(lambda: self.exchange_state.save(self.state, self.stepper.exchange))
            saved = self.world.together(lambda: self.store.save(self.state))
        if saved is not None:
            seconds = time.perf_counter() - start
            self.recorder.record(Saved(step=saved.step, path=str(saved.directory), bytes=saved.size, seconds=seconds))

    def end(self, reason: str, *, device_answers: bool = True) -> Ended:
        """Record the end; a GPU that waits for a process that is gone cannot be asked how long it took."""
        progress = self.state.progress
        ended = Ended(
            step=progress.step,
            reason=reason,
            best_bleu=progress.best_bleu,
            best_step=progress.best_step,
            seconds=self.clock.lap(wait=device_answers),
        )
        self.recorder.record(ended)
        return ended

    def notice(self, message: str) -> None:
        self.recorder.record(Noticed(step=self.state.progress.step, message=message))
