"""A training run at work in one process: the verbs that the loop is made of."""

from __future__ import annotations

import math
import os
import socket
import time
from dataclasses import dataclass

import torch

import tandem
from tandem.cluster.world import World
from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.errors import TandemError
from tandem.monitor.clock import Clock
from tandem.monitor.journal import Recorder
from tandem.monitor.records import Ended, Noticed, Progressed, Saved, Started
from tandem.train.batches import Batches, GlobalBatch
from tandem.train.evaluate import evaluate
from tandem.train.shelf import Shelf
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

    def add(self, result: StepResult, target_tokens: int) -> None:
        self.steps += 1
        self.target_tokens += target_tokens
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
        self, *, config: Config, corpus: PreparedCorpus, world: World, recorder: Recorder, shelf: Shelf
    ) -> None:
        self.config, self.corpus, self.world, self.recorder, self.shelf = config, corpus, world, recorder, shelf
        self.clock = Clock()
        self.batches = Batches.of_run(config, corpus)
        self.state = TrainState.fresh(config, corpus.tokenizer.vocab_size, world.device)
        self._resume()
        self.stepper = Stepper(config, world, self.state, self.batches, self.clock)
        self.tally = Tally()
        self.stop_signal: str | None = None
        """The signal by which somebody has asked this process to stop."""
        self._session_start, self._session_first_step = time.perf_counter(), self.state.progress.step

    def _resume(self) -> None:
        """Take up the newest whole checkpoint, if there is one; all processes must find the same."""
        checkpoint = self.shelf.newest_whole(self.notice)
        if checkpoint is not None:
            checkpoint.restore(self.state)
        step = self.state.progress.step
        if self.world.agree(self.world.total(float(step))[0] != step * self.world.size):
            raise TandemError(
                f"{self.shelf.last_directory}: this process found step {step}, others another one; "
                "all processes must see the same run directory"
            )
        self.world.together(lambda: self.shelf.go_back_to(step))

    def begin(self) -> None:
        """Say what is about to happen."""
        order = self.batches.order
        self.recorder.record(
            Started(
                step=self.state.progress.step,
                max_steps=self.config.train.max_steps,
                version=tandem.__version__,
                host=socket.gethostname(),
                process=os.getpid(),
                rank=self.world.rank,
                world_size=self.world.size,
                device=self.world.device.type,
                threads=torch.get_num_threads(),
                precision=self.config.train.precision,
                parameters=sum(parameter.numel() for parameter in self.state.model.parameters()),
                corpus_digest=self.corpus.digest,
                training_pairs=len(order.rows),
                pairs_left_out=order.left_out,
                padding_share=order.padding_share(),
                steps_per_epoch=self.batches.steps_per_epoch,
                startup_seconds=sum(self.clock.lap().values()),
            )
        )
        if order.left_out:
            self.notice(f"{order.left_out:,} training pairs are longer than model.max_length and left out")
        if self.state.progress.step:
            self.notice(f"continuing after step {self.state.progress.step:,}")

    def fetch(self, step: int) -> GlobalBatch:
        with self.clock.measure("data"):
            return self.batches.at(step)

    def learn(self, batch: GlobalBatch) -> None:
        self.tally.add(self.stepper.take(batch), batch.target_tokens)
        self.recorder.stepped(batch.step)

    def due(self, every: int) -> bool:
        """Whether something done every so many steps is done now; at the last step everything is."""
        step = self.state.progress.step
        return step % every == 0 or step == self.config.train.max_steps

    def log(self) -> None:
        """Record the steps since the last time."""
        with self.clock.measure("communication"):
            objective, nll = self.world.total(self.tally.objective, self.tally.nll)
        seconds = self.clock.lap()
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
                seconds=seconds,
            )
        )

    def evaluate(self) -> None:
        """Measure the model on the dev set, and keep it if it is one of the best."""
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
        wish = self.stop_signal
        with self.clock.measure("communication"):
            asked = self.world.agree(wish is not None)
        if wish is not None:
            self.notice(f"{wish}: saving and stopping; once more to stop at once")
        return ASKED_TO_STOP if asked else None

    def save(self) -> None:
        """Make the work so far safe."""
        start = time.perf_counter()
        with self.clock.measure("checkpoint"):
            saved = self.world.together(lambda: self.shelf.keep(self.state))
        if saved is not None:
            seconds = time.perf_counter() - start
            self.recorder.record(Saved(step=saved.step, path=str(saved.directory), bytes=saved.size, seconds=seconds))

    def end(self, reason: str) -> Ended:
        """Say how it went."""
        progress = self.state.progress
        ended = Ended(
            step=progress.step,
            reason=reason,
            best_bleu=progress.best_bleu,
            best_step=progress.best_step,
            seconds=self.clock.lap(),
        )
        self.recorder.record(ended)
        return ended

    def notice(self, message: str) -> None:
        self.recorder.record(Noticed(step=self.state.progress.step, message=message))
