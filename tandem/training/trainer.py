"""The verbs of the training loop for one process: what it means to fetch, step, log, evaluate, save."""

from __future__ import annotations

import math
import secrets
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tandem.cluster.exchange.exchange import Exchange
from tandem.cluster.exchange.strategy import make_exchange
from tandem.cluster.exchange.traffic import BASELINE
from tandem.cluster.world import World
from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.layout import RunPaths, checkpoint_directories
from tandem.monitor.activity import ACTIVITY
from tandem.monitor.journal import Recorder
from tandem.monitor.network_interfaces import TrafficMeter
from tandem.monitor.records import FINISHED, Ended, Noticed, Progressed, RolledBack
from tandem.monitor.step_clock import StepClock
from tandem.training.batches import Batches, GlobalBatch
from tandem.training.checkpoints.background_saves import BackgroundSaves
from tandem.training.checkpoints.broadcast_state import broadcast_state
from tandem.training.checkpoints.checkpoint import DIVERGED, Checkpoint
from tandem.training.checkpoints.checkpoint_store import CheckpointStore, WritableCheckpointStore
from tandem.training.checkpoints.exchange_state import ExchangeState
from tandem.training.checkpoints.merits import Merits, dev_evaluation
from tandem.training.checkpoints.mirror import Mirror
from tandem.training.checkpoints.resume import find_checkpoint
from tandem.training.data_loader import make_loader
from tandem.training.evaluate import EvaluationStoppedError, StopWish, evaluate_dev_sets
from tandem.training.faults.divergence import DivergedError, LossExplosionError, plan_roll_back
from tandem.training.faults.emergency import EmergencySaver
from tandem.training.faults.stopping import ASKED_TO_STOP, vote_for, voted_name, voted_signal, who_was_asked
from tandem.training.host_monitor import HostMonitor
from tandem.training.origin import Origin
from tandem.training.run_directory import Run
from tandem.training.start_records import planned, started
from tandem.training.starting_point import read_start
from tandem.training.startup.exchange_plan import plan_exchange
from tandem.training.step import Stepper
from tandem.training.step_result import StepResult, sum_over_processes
from tandem.training.train_state import TrainingProgress, TrainState

OUT_OF_PATIENCE = "stopped early"


class Trainer:
    """What the training loop calls; other processes than the first have a checkpoint store that writes nothing."""

    def __init__(
        self, config: Config, corpus: PreparedCorpus, world: World, recorder: Recorder, directory: Path
    ) -> None:
        self.config, self.corpus, self.world, self.recorder = config, corpus, world, recorder
        mirror = Mirror(directory, config.checkpoint, world)
        self.store = CheckpointStore(directory)
        if world.is_leader:
            self.store = WritableCheckpointStore(directory, config.checkpoint, mirror)
        self.clock = StepClock(world.device)
        self.batches = Batches.of_run(config, corpus.pairs("train"))
        here = len(world.hosts[world.host])
        self.state = TrainState.fresh(config, corpus.tokenizer.vocab_size, world.device, processes=here)
        self._paths = RunPaths(directory)
        origin = world.together(lambda: self._read_origin() if world.is_leader else None)
        # The other processes get the weights themselves, and need to know no more than this.
        known = None if origin is None else (str(origin), origin.first_step)
        self.origin: str | None
        """The model of another run that the run began with, in words."""
        self.first_step: int
        """The step that the run began after."""
        self.origin, self.first_step = world.broadcast(known) or (None, 0)
        self.choice = plan_exchange(config, world, self.state, self.batches, self._paths)
        self.exchange_state = ExchangeState(
            directory, world, self.choice.plan, config.exchange, config.checkpoint.keep_last, mirror
        )
        self._resume()
        self.stop_signal: int | None = None
        """The signal by which this process was asked to stop, or, once all have voted, any of them."""
        self._asked: list[bool] = []
        """For each rank, whether a signal had reached it when all agreed to stop."""
        self.stop_by: float | None = None
        """The instant of time.monotonic() by which a process that was asked to stop ends, alone if need be."""
        self.loader = make_loader(self.batches, world)
        self.stepper = Stepper(
            config,
            world,
            self.state,
            self.loader,
            self.clock,
            self._make_exchange(),
            wish_to_stop=lambda: vote_for(self.stop_signal),
            is_writing=lambda: self.saves.writing,
            notice=self.notice,
        )
        self._restore_exchange_state()
        self.saves = BackgroundSaves(world, self.store, self.exchange_state, mirror, recorder, self._resumed_step)
        self._before_evaluation: TrainingProgress | None = None
        """Progress before the newest evaluation began."""
        self._evaluated_step = self._last_evaluated()
        self._emergency = EmergencySaver(
            directory,
            world,
            self.stepper,
            self.store,
            self.exchange_state,
            settled=self._settled_progress,
            session=self._session(directory),
        )
        self.meter = TrafficMeter(None if world.interface is None else world.interface.name)
        self.host_monitor = HostMonitor(world, recorder, lambda: self.state.progress.step)
        self._mine: list[StepResult] = []
        """Results of the newest steps, which have not been summed over all processes yet."""
        self._unlogged: list[StepResult] = []
        """Results of the steps since the last log line, over all processes."""
        self._exploded: LossExplosionError | None = None
        self._session_start, self._session_first_step = time.perf_counter(), self.state.progress.step

    def _read_origin(self) -> Origin | None:
        return Run.open(self._paths.directory).origin if self._paths.run_file.is_file() else None

    def _resume(self) -> None:
        """Take up the newest checkpoint that all hosts can resume, if any: the first process reads it for all."""
        # By its name, because it may take long: it comes from a disk or a mirror, and every byte of it is checked.
        with ACTIVITY.doing("checkpoint"):
            passed_over: list[str] = []
            checkpoint = find_checkpoint(self.world, self.store, self.exchange_state.can_resume, passed_over.append)
            # Weights of its own a run has from the start, and all processes alike.
            begins = checkpoint is not None or (self.world.is_leader and self.origin is not None)
            self.world.together(lambda: self._restore_or_begin(checkpoint) if begins else None)
        self._resumed_step: int = self.world.broadcast(0 if checkpoint is None else checkpoint.step)
        """The step of the checkpoint that this session goes on from; 0 if it begins the run."""
        broadcast_state(self.world, self.state)
        self.batches.skipped = self.state.progress.skipped
        # Only now, because a notice is recorded at the step that the run has come to.
        for message in passed_over:
            self.notice(message)

    def _restore_or_begin(self, checkpoint: Checkpoint | None) -> None:
        """Become the state of a checkpoint, or without one the state before the first step."""
        if checkpoint is not None:
            checkpoint.restore(self.state)
        elif self.origin is not None:
            read_start(self._paths).restore(self.state)
        else:
            self.state.begin_again(self.config, self.corpus.tokenizer.vocab_size)

    def _make_exchange(self) -> Exchange:
        return make_exchange(self.choice.plan, self.config, self.state.flat_vectors(), self.world)

    def _restore_exchange_state(self) -> None:
        """Restore the state of the exchange that each host keeps for itself."""
        with ACTIVITY.doing("checkpoint"):
            missing = self.exchange_state.restore(self.state, self.stepper.exchange)
        if missing:
            self.notice(
                f"{missing} of {len(self.world.hosts)} hosts have no memory of {self.choice.plan} at this step; "
                "all of them begin with an empty one"
            )

    def _session(self, directory: Path) -> str:
        """A name for this session, which the run's lock shows to all processes that see its directory."""
        session: str = self.world.broadcast(secrets.token_hex(8))
        self.world.together(lambda: RunPaths(directory).lock_file.write_text(session) if self.world.is_leader else None)
        return session

    def begin(self) -> None:
        """Record what is about to happen."""
        self.recorder.record(started(self))
        if len(self.world.hosts) > 1:
            self.recorder.record(planned(self))
        elif self.config.exchange.kind not in ("auto", BASELINE):
            self.notice(f"exchange.kind={self.config.exchange.kind} has no effect: all processes are on one host")
        if left_out := self.batches.order.left_out:
            self.notice(f"{left_out:,} training pairs are longer than model.max_length and left out")
        if self.state.progress.step:
            self.notice(f"continuing after step {self.state.progress.step:,}")

    def fetch(self, step: int) -> GlobalBatch:
        with self.clock.measure("data"):
            return self.loader.fetch(step)

    def step(self, batch: GlobalBatch) -> None:
        self._mine += self.stepper.step(batch)
        self.recorder.stepped(batch.step)
        self.saves.tell_failures()
        if self.stepper.all_written and self.saves.unsettled:
            with self.clock.measure("checkpoint"):
                self.saves.settle(goes_on=True)

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
        survey, troubles = self._sum_results(self.host_monitor.survey_due, self.recorder.has_troubles)
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
        if troubles:
            self._tell_troubles()
        if survey:
            with self.clock.measure("waiting"):
                self.host_monitor.survey(step, seconds)
        self._stop_if_exploded()

    def _sum_results(self, *flags: bool) -> list[bool]:
        """Sum the newest results over all processes, and judge their losses; for each flag, whether any raised it."""
        self.flush()
        results, self._mine = self._mine, []
        if not results:
            # All processes have taken the same steps, so none of them waits for this one.
            return [False] * len(flags)
        with self.clock.measure("waiting"):
            summed, raised = sum_over_processes(self.world, results, *flags)
        self._unlogged += summed
        self._judge(summed)
        return raised

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
            self.saves.settle(goes_on=True)
            with self.state.whole.changing():
                self._restore_before(plan.first_step, diverged)
                self.state.progress.skipped = self.batches.skipped = plan.skipped
        progress = self.state.progress
        self.saves.went_back_to(progress.step)
        self._evaluated_step, self._before_evaluation = self._last_evaluated(), None
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
        """Restore the newest checkpoint from before a step that all hosts can resume.

        If none was due until then, the beginning of the run.
        """
        found = find_checkpoint(
            self.world, self.store, self.exchange_state.can_resume, self.notice, before=step, newer=DIVERGED
        )
        every = self.config.checkpoint.every_steps
        first_due = (self.first_step // every + 1) * every

        def restore() -> None:
            if not self.world.is_leader:
                return
            if found is None and step > first_due:
                diverged.add(f"no checkpoint from before step {step:,} is left to go back to")
                raise diverged
            self._restore_or_begin(found)
            if found is None:
                self.store.go_back_to(self.first_step, (), DIVERGED)

        self.world.together(restore)
        broadcast_state(self.world, self.state)

    def _last_evaluated(self) -> int:
        """The step that a restored state has been evaluated at, or need not be; -1 if its evaluation is yet to come."""
        return -1 if self.state.progress.unevaluated else self.state.progress.step

    def _tell_troubles(self) -> None:
        """Have the first process show what other processes cannot write to their journals."""
        for said in self.world.gather(self.recorder.pop_troubles()):
            for message in said if self.world.is_leader else ():
                self.notice(message)

    def evaluate(self) -> None:
        """Measure the model on its dev sets, and save it if it is one of the best.

        One that is broken off by a request to stop is made when the run continues.
        """
        self.flush()
        progress = self.state.progress
        self._before_evaluation = replace(progress, unevaluated=True)
        try:
            with self.clock.measure("evaluation"):
                evaluations = evaluate_dev_sets(
                    self.state.evaluated,
                    self.corpus,
                    self.config,
                    self.world,
                    step=progress.step,
                    progress=self._evaluated_batch,
                    stop=StopWish(lambda: vote_for(self.stop_signal), self._tell_of_stop),
                )
        except EvaluationStoppedError as stopped:
            self.stepper.stop_asked, progress.unevaluated = stopped.votes, True
            return
        progress.unevaluated = False
        merits, dev = Merits.of(evaluations, self.config.checkpoint.criterion), dev_evaluation(evaluations)
        if self.origin is not None and progress.step == self.first_step:
            progress.start_bleu = dev.bleu
        progress.note_evaluation(merits, dev.first_sentences)
        for evaluated in evaluations:
            self.recorder.record(evaluated)
        with self.clock.measure("checkpoint"):
            self.saves.save_if_best(self.state, merits)
        self._evaluated_step = progress.step

    def _evaluated_batch(self, done: int, total: int) -> None:
        ACTIVITY.progressed()
        self.recorder.working("evaluating: batch", done, total)

    def _tell_of_stop(self, votes: float) -> None:
        self.notice(f"stopping ({voted_name(votes)}): this evaluation is broken off, and made when the run continues")

    def reason_to_stop(self) -> str | None:
        """Why training should not go on; every process comes to the same answer."""
        progress, patience = self.state.progress, self.config.evaluation.patience
        if progress.step >= self.config.train.max_steps and not progress.unevaluated:
            return FINISHED
        if patience is not None and progress.evaluations_without_gain >= patience:
            return OUT_OF_PATIENCE
        # Where an evaluation was broken off, all processes have the same weights and are at the same step.
        together = progress.unevaluated or self.stepper.exchange.in_sync_after(progress.step)
        if not (self.stepper.stop_asked and together):
            return None
        self._asked = self._asked or self.world.gather(self.stop_signal is not None)
        self.stop_signal = voted_signal(self.stepper.stop_asked)
        # A process that no signal has reached was asked by the others' votes.
        self.stop_by = self.stop_by or time.monotonic() + self.config.train.stop_seconds
        return ASKED_TO_STOP

    def save(self, *, last: bool = False) -> None:
        """Copy the state for a checkpoint, which is written while training goes on; the last one is waited for.

        A loss that has exploded is not saved.
        """
        self._sum_results()
        self._stop_if_exploded()
        with self.clock.measure("checkpoint"):
            self.saves.save(self.state, self.stepper.exchange, last=last, stop_by=self.stop_by)

    def catch_up(self) -> None:
        """Evaluate first, if the run begins with another one's model, or goes on from a checkpoint whose step was to be
        evaluated."""
        if self.state.progress.unevaluated:
            self.evaluate()
            self.save(last=self.reason_to_stop() is not None)

    def emergency_save(self) -> str:
        """Save the last whole step without asking any other process, from any thread; what is left of the run."""
        # The best checkpoint of the newest evaluation may not be written yet.
        self.saves.finish()
        self._emergency.save()
        self.saves.copy_in_emergency(checkpoints=self._emergency.newest_step() is not None)
        return self.checkpoint_left()

    def checkpoint_left(self) -> str:
        """What a user finds of a run that ends without the other processes' agreement."""
        newest = self._emergency.newest_step()
        if newest is None:
            where = "" if self.world.is_leader else f" here; {self.world.host_names[0]} may have one"
            return f"there is no checkpoint yet{where}"
        return f"the state after step {newest:,} is saved, and the same command goes on from there"

    def _settled_progress(self) -> TrainingProgress | None:
        """The progress that belongs to the weights as they are, for another thread that saves them; None if unknown."""
        progress, before, best = self.state.progress, self._before_evaluation, self.saves.best_under_way
        if (
            best is not None
            and not self.world.is_leader
            and best not in checkpoint_directories(self.store.best_directory)
        ):
            # The first process may have ended before it wrote the weights of this evaluation: it has to be made again.
            return before if best == progress.step else None
        if self._evaluated_step == progress.step:
            return replace(progress)
        # The evaluation of this step is not finished, or yet to be made.
        if before is not None and before.step == progress.step:
            return before
        return (
            replace(progress, unevaluated=True) if self.due(self.config.evaluation.every_steps) else replace(progress)
        )

    def end(self, reason: str, *, device_answers: bool = True) -> Ended:
        """Record the end; a GPU that waits for a process that is gone cannot be asked how long it took."""
        progress = self.state.progress
        # Only now, because the saving comes first.
        if not all(self._asked):
            self.notice(who_was_asked(self.world, self._asked))
        ended = Ended(
            step=progress.step,
            reason=reason,
            **progress.as_told(),
            seconds=self.clock.lap(wait=device_answers),
            signal=signal.Signals(self.stop_signal).name if reason == ASKED_TO_STOP and self.stop_signal else None,
        )
        self.recorder.record(ended)
        return ended

    def notice(self, message: str) -> None:
        """Record something that all processes know, or the first one alone."""
        self.recorder.record(Noticed(step=self.state.progress.step, message=message))

    def notice_of_this_process(self, message: str) -> None:
        """Record something that only this process knows; the first one shows it to the user."""
        self.notice(message)
        if not self.world.is_leader:
            self.recorder.relay(f"rank {self.world.rank} on {self.world.host_names[self.world.host]}: {message}")
