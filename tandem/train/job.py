"""A training run at work in one process: the verbs that the loop is made of."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

import tandem
from tandem.cluster.devices import card_of
from tandem.cluster.network import TrafficMeter
from tandem.cluster.strategies import make_exchange
from tandem.cluster.world import World
from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.monitor.clock import Clock
from tandem.monitor.journal import Recorder
from tandem.monitor.records import Ended, Noticed, Planned, Progressed, Saved, Started
from tandem.monitor.survey import Survey
from tandem.train.batches import Batches, GlobalBatch
from tandem.train.evaluate import evaluate
from tandem.train.feeder import make_feeder
from tandem.train.memory import HostMemory
from tandem.train.plan import plan_exchange
from tandem.train.run import RunPaths
from tandem.train.sharing import share_state
from tandem.train.shelf import Shelf, WritableShelf
from tandem.train.state import TrainState
from tandem.train.step import Stepper, StepResult

FINISHED = "finished"
OUT_OF_PATIENCE = "stopped early"
ASKED_TO_STOP = "stopped on request"


@dataclass
class Tally:
    """What the steps since the last log line add up to on this process."""

    steps: int = 0
    finite_steps: int = 0
    target_tokens: int = 0
    objective: float = 0.0
    nll: float = 0.0
    gradient_norm: float = 0.0
    learning_rate: float = 0.0

    def add(self, result: StepResult) -> None:
        self.steps += 1
        self.target_tokens += result.target_tokens
        self.objective += result.objective
        self.nll += result.nll
        # A step that float16 skipped has no norm worth averaging.
        if math.isfinite(result.gradient_norm):
            self.finite_steps += 1
            self.gradient_norm += result.gradient_norm
        self.learning_rate = result.learning_rate


class Job:
    """One process's part in a run."""

    def __init__(
        self,
        *,
        config: Config,
        corpus: PreparedCorpus,
        world: World,
        recorder: Recorder,
        directory: Path,
    ) -> None:
        self.config, self.corpus, self.world, self.recorder = config, corpus, world, recorder
        self.shelf = WritableShelf(directory, config.checkpoint) if world.leads else Shelf(directory)
        self.clock = Clock(world.device)
        self.batches = Batches.of_run(config, corpus)
        self.state = TrainState.fresh(config, corpus.tokenizer.vocab_size, world.device)
        self._resume()
        self.choice = plan_exchange(config, world, self.state, self.batches, RunPaths(directory))
        self.stop_signal: str | None = None
        """The signal by which somebody has asked this process to stop."""
        self.feeder = make_feeder(self.batches, world)
        self.stepper = Stepper(
            config,
            world,
            self.state,
            self.feeder,
            self.clock,
            make_exchange(self.choice.plan, config, self.state.trained(), world),
            wish_to_stop=lambda: self.stop_signal is not None,
            notice=self.notice,
        )
        self.memory = HostMemory(
            directory, world, self.choice.plan, config.exchange, keep_last=config.checkpoint.keep_last
        )
        self._recall()
        self.meter = TrafficMeter(None if world.interface is None else world.interface.name)
        self.survey = Survey(world, recorder, lambda: self.state.progress.step)
        self.tally = Tally()
        self._session_start, self._session_first_step = time.perf_counter(), self.state.progress.step

    def _resume(self) -> None:
        """Take up the newest whole checkpoint, if there is one: the first process reads it for all."""

        def read() -> None:
            checkpoint = self.shelf.newest_whole(self.notice) if self.world.leads else None
            if checkpoint is not None:
                checkpoint.restore(self.state)
                self.shelf.go_back_to(self.state.progress.step)

        self.world.together(read)
        share_state(self.world, self.state)

    def _recall(self) -> None:
        """Take up what each host remembers for itself."""
        missing = self.memory.recall(self.state, self.stepper.exchange)
        if missing:
            self.notice(
                f"{missing} of {len(self.world.hosts)} hosts have no memory of {self.choice.plan} at this step; "
                "all of them begin with an empty one"
            )

    def begin(self) -> None:
        """Say what is about to happen."""
        order, interface, plan = self.batches.order, self.world.interface, self.choice.plan
        card = card_of(self.world.device)
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
                )
            )
        elif self.config.exchange.kind not in ("auto", "allreduce"):
            self.notice(f"exchange.kind={self.config.exchange.kind} has no effect: all processes are on one host")
        if order.left_out:
            self.notice(f"{order.left_out:,} training pairs are longer than model.max_length and left out")
        if self.state.progress.step:
            self.notice(f"continuing after step {self.state.progress.step:,}")

    def fetch(self, step: int) -> GlobalBatch:
        with self.clock.measure("data"):
            return self.feeder.fetch(step)

    def learn(self, batch: GlobalBatch) -> None:
        self._count(self.stepper.take(batch))
        self.recorder.stepped(batch.step)

    def settle(self) -> None:
        """Know the result of every step taken, before anything is made of the weights or the numbers."""
        self._count(self.stepper.settle())

    def _count(self, results: Sequence[StepResult]) -> None:
        for result in results:
            self.tally.add(result)

    def due(self, every: int) -> bool:
        """Whether something done every so many steps is done now; at the last step everything is.

        It waits for a step after which all processes hold the same weights.
        """
        step, exchange = self.state.progress.step, self.stepper.exchange
        passed = step // every > exchange.round_start(step) // every
        return exchange.settles(step) and (passed or step == self.config.train.max_steps)

    def log(self) -> None:
        """Record the steps since the last time."""
        self.settle()
        with self.clock.measure("waiting"):
            objective, nll, survey = self.world.total(self.tally.objective, self.tally.nll, self.survey.due)
        seconds, traffic = self.clock.lap(), self.meter.lap()
        training_seconds = sum(seconds.values()) - seconds["evaluation"] - seconds["checkpoint"]
        tally, self.tally = self.tally, Tally()
        step, max_steps = self.state.progress.step, self.config.train.max_steps
        elapsed = time.perf_counter() - self._session_start
        self.recorder.record(
            Progressed(
                step=step,
                max_steps=max_steps,
                steps=tally.steps,
                epoch=step / self.batches.steps_per_epoch,
                train_loss=nll / tally.target_tokens,
                objective=objective / tally.target_tokens,
                learning_rate=tally.learning_rate,
                gradient_norm=tally.gradient_norm / max(tally.finite_steps, 1),
                target_tokens=tally.target_tokens,
                tokens_per_second=tally.target_tokens / training_seconds,
                step_seconds=training_seconds / tally.steps,
                seconds_left=elapsed / (step - self._session_first_step) * (max_steps - step),
                exchanged_bytes=self.stepper.exchange.take_bytes(),
                network_sent_bytes=traffic.sent,
                network_received_bytes=traffic.received,
                seconds=seconds,
            )
        )
        if survey:
            with self.clock.measure("waiting"):
                self.survey.take(step, seconds)

    def evaluate(self) -> None:
        """Measure the model on the dev set, and keep it if it is one of the best."""
        self.settle()
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
            self.world.together(lambda: self.shelf.keep_if_best(self.state, evaluated.bleu))

    def reason_to_stop(self) -> str | None:
        """Why training should not go on; every process comes to the same answer."""
        progress, patience = self.state.progress, self.config.evaluation.patience
        if progress.step >= self.config.train.max_steps:
            return FINISHED
        if patience is not None and progress.evaluations_without_gain >= patience:
            return OUT_OF_PATIENCE
        if not self.stepper.exchange.settles(progress.step):
            return None
        if not self.stepper.stop_asked:
            return None
        if self.stop_signal is not None:
            self.notice(f"{self.stop_signal}: saving and stopping; once more to stop at once")
        return ASKED_TO_STOP

    def save(self) -> None:
        """Make the work so far safe."""
        self.settle()
        start = time.perf_counter()
        with self.clock.measure("checkpoint"):
            self.world.together(lambda: self.memory.keep(self.state, self.stepper.exchange))
            saved = self.world.together(lambda: self.shelf.keep(self.state))
        if saved is not None:
            seconds = time.perf_counter() - start
            self.recorder.record(Saved(step=saved.step, path=str(saved.directory), bytes=saved.size, seconds=seconds))

    def end(self, reason: str, *, device_answers: bool = True) -> Ended:
        """Say how it went; a GPU that waits for a process that is gone will not tell how long it took."""
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
