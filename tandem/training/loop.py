"""Starts or continues a run, and the training loop itself: fetch, step, log, evaluate, save, until a reason to stop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console

from tandem.cluster.devices import configure_device, explain_out_of_memory
from tandem.cluster.join.launchers import started_by_launcher, unused_tasks_notice
from tandem.cluster.world import World, is_lost_peer, joined_world
from tandem.config import Config, dump
from tandem.corpus.prepared import PreparedCorpus
from tandem.errors import SaidElsewhereError, TandemError
from tandem.layout import RunPaths
from tandem.monitor.activity import ACTIVITY
from tandem.monitor.background_view import open_views
from tandem.monitor.console_view import ConsoleView
from tandem.monitor.journal import Journal, Recorder
from tandem.monitor.records import FAILED, Ended
from tandem.monitor.views import View
from tandem.process_signals import answering
from tandem.registry import MODELS, VIEWS
from tandem.training.batches import Batches, check_everyone_has_work
from tandem.training.checkpoints.mirror import (
    check_apart,
    check_mirror,
    check_writable,
    fetched_run,
    mirror_has_run,
    restore_run,
)
from tandem.training.checkpoints.other_run import OtherRun
from tandem.training.evaluate import check_measures
from tandem.training.faults.divergence import DivergedError
from tandem.training.faults.peer_watch import watching_peers
from tandem.training.faults.preemption_notice import preemption_command, stopping_on_notice
from tandem.training.faults.stopping import ASKED_TO_STOP, SaveAndStop
from tandem.training.run_directory import check_mirrored, create_or_check, locked, save_settings
from tandem.training.startup.auto_settings import check_memory, resolve_auto_settings
from tandem.training.startup.exchange_plan import gradient_shapes
from tandem.training.trainer import Trainer

# Steps are split where a pass does not fit; what else a training holds may not fit either.
SMALLER_RUN = "lower batch.tokens or take a smaller model, and see whether another program uses the card"


def loop(trainer: Trainer) -> Ended:
    """Train until the last step, the end of patience or a request to stop; by then the state is saved."""
    config = trainer.config
    trainer.begin()
    trainer.catch_up()
    reason = trainer.reason_to_stop()
    if reason is not None:
        # Nothing is left to do but what the session before could not copy any more.
        trainer.saves.finish_mirror(trainer.state.progress.step)
    while reason is None:
        try:
            batch = trainer.fetch(trainer.state.progress.step + 1)
            trainer.step(batch)
            if trainer.due(config.train.log_every):
                trainer.log()
            if trainer.due(config.evaluation.every_steps):
                trainer.evaluate()
            reason = trainer.reason_to_stop()
            if reason is not None or trainer.due(config.checkpoint.every_steps):
                trainer.save(last=reason is not None)
        except DivergedError as diverged:
            trainer.roll_back(diverged)
            trainer.catch_up()
            # Asked to stop in the evaluation that is made up for, it goes on with that one the next time.
            reason = trainer.reason_to_stop() if trainer.state.progress.unevaluated else None
    return trainer.end(reason)


def train(
    config: Config,
    corpus: str | Path,
    run: str | Path,
    views: Sequence[View] | None = None,
    *,
    change: bool = False,
    start_from: str | Path | None = None,
    with_optimizer: bool = False,
) -> Ended:
    """Train on a prepared corpus in a run's directory; a run that is there already continues where it stopped.

    Called by every process of a run, under any launcher; one process alone is a run, too. `views` show it to people,
    from the first process only; by default lines on standard output. `change` allows settings to differ from those
    that the run was started with. `start_from` is another run, or a checkpoint of one, whose weights a new run begins
    with, and with `with_optimizer` whose optimizer and step.
    """
    start = _other_run(start_from, with_optimizer)
    prepared, directory = PreparedCorpus.open(Path(corpus)), Path(run)
    views = [ConsoleView(Console(force_terminal=False if started_by_launcher() else None))] if views is None else views
    # The corpus is what it is, whatever the preset wished for: record the truth.
    config = config.model_copy(update={"corpus": prepared.facts.settings})
    with ExitStack() as stack:
        world = stack.enter_context(joined_world(config.cluster, directory))
        configure_device(world.device, tf32=config.train.tf32, deterministic=config.train.deterministic)
        check_everyone_has_work(config, world)
        world.together(lambda: MODELS.get(config.model.kind))  # a plug-in may be missing on some hosts
        # Before the directory becomes the run's: the library of a view may be missing.
        world.together(lambda: [VIEWS.get(name) for name in config.monitor.views] if world.is_leader else [])
        notice_command = world.together(lambda: preemption_command(config.train.on_preemption_notice))
        world.check_same("the corpus", prepared.digest)
        world.check_same("the configuration", dump(config))
        world.together(lambda: check_measures(config, prepared))
        paths = RunPaths(directory)
        vocab_size = prepared.tokenizer.vocab_size
        if config.optimizer.freeze:
            world.together(lambda: gradient_shapes(config, vocab_size))  # a part that is not there is named
        claimed = _claim_run(stack, world, directory, config, prepared, change, start)
        pairs = prepared.pairs("train")
        resolved = resolve_auto_settings(config, world, vocab_size, lambda tried: Batches.of_run(tried, pairs), paths)
        # An earlier session may have taken fewer micro-batches than there are processes now.
        check_everyone_has_work(resolved, world)
        check_memory(resolved, world, vocab_size)
        shown = world.together(lambda: open_views(paths, resolved) if world.is_leader else [])
        journal = world.together(lambda: Journal(paths.journals, world.rank))
        recorder = Recorder(journal, [*shown, *views] if world.is_leader else ())
        stack.callback(recorder.close)
        # Around the making of the trainer, and once more inside of what puts failures into its journal.
        stack.enter_context(explain_out_of_memory(SMALLER_RUN))
        trainer = Trainer(resolved, prepared, world, recorder, directory)
        # Only now that everything fits together do the settings become the run's.
        world.together(lambda: save_settings(directory, config) if world.is_leader else None)
        alone = unused_tasks_notice()
        for notice in filter(None, (alone, *claimed)):
            trainer.notice(notice)
        stack.enter_context(answering(SaveAndStop(trainer)))
        own_command = notice_command if world.is_host_leader else None
        stack.enter_context(stopping_on_notice(own_command, trainer.notice_of_this_process))
        stack.enter_context(watching_peers(trainer, paths))
        stack.enter_context(_failures_recorded(trainer))
        stack.enter_context(explain_out_of_memory(SMALLER_RUN))
        stack.enter_context(trainer.host_monitor.sampling())
        # However the training ends, what it has begun to write becomes whole.
        stack.callback(trainer.saves.finish)
        return _loop_until_stopped(trainer)


def _other_run(place: str | Path | None, with_optimizer: bool) -> OtherRun | None:
    if place is not None:
        return OtherRun(Path(place), with_optimizer)
    if with_optimizer:
        raise TandemError("--with-optimizer: takes over the optimizer of the run that --from names; name one, too")
    return None


def _loop_until_stopped(trainer: Trainer) -> Ended:
    """The training loop; where others have stopped first, what they were told to save is saved without them."""
    try:
        return loop(trainer)
    except RuntimeError as error:
        if trainer.stop_signal is None or not is_lost_peer(error):
            raise
        trainer.world.lost_peer_error()  # asked for, so that the heartbeats leave the telling to this thread
        trainer.emergency_save()
        return trainer.end(ASKED_TO_STOP, device_answers=False)


@contextmanager
def _failures_recorded(trainer: Trainer) -> Iterator[None]:
    """Record why a training failed, and tell the user which checkpoint is left of it."""
    try:
        yield
    except DivergedError as error:
        trainer.end(f"{FAILED}{error}")
        if not trainer.world.is_leader:
            # Only the first process is sure to see the checkpoints, and to be heard.
            raise SaidElsewhereError(str(error)) from error
        newest = trainer.store.newest_step()
        kept = "no checkpoint was saved yet" if newest is None else f"the checkpoint of step {newest:,} is untouched"
        error.args = (f"{error}; {kept}",)
        raise
    except TandemError as error:
        trainer.end(f"{FAILED}{error}")
        raise
    except RuntimeError as error:
        if not is_lost_peer(error):
            raise
        lost = trainer.world.lost_peer_error()
        left = trainer.emergency_save()
        trainer.end(f"{FAILED}{lost}", device_answers=False)
        raise type(lost)(f"{lost}; {left}") from error


def _claim_run(
    stack: ExitStack,
    world: World,
    directory: Path,
    config: Config,
    corpus: PreparedCorpus,
    change: bool,
    start: OtherRun | None,
) -> list[str]:
    """Lock the run's directory, and create, restore or check it: the first process while the others wait.

    What the user should know of it: where it comes from, which settings have changed.
    """

    def lock_and_check() -> list[str]:
        notices = []
        mirror = config.checkpoint.mirror
        if mirror is not None:
            check_apart(mirror, directory)
        if mirror is None or RunPaths(directory).run_file.is_file():
            stack.enter_context(locked(directory))
        elif mirror_has_run(mirror):
            with ACTIVITY.doing("checkpoint"), fetched_run(mirror) as fetched:
                # First, so that a run that is refused leaves nothing here.
                check_mirrored(fetched, mirror, config, corpus, change, start)
                stack.enter_context(locked(directory, restorable=True))
                restore_run(mirror, fetched, directory)
            notices.append(f"the run was not here, and comes from its mirror, {mirror}")
        else:
            check_writable(mirror)
            stack.enter_context(locked(directory))
            notices.append(f"the mirror {mirror} holds no run: a new run begins")
        notices += create_or_check(directory, config, corpus, change, start)
        if mirror is not None:
            check_mirror(mirror, directory)
        return notices

    return world.together(lock_and_check if world.is_leader else list)
