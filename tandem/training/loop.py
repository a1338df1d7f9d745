"""Starts or continues a run, and the training loop itself: fetch, step, log, evaluate, save, until a reason to stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console

from tandem.cluster.devices import configure_device, explain_out_of_memory
from tandem.cluster.join.launchers import unused_tasks_notice
from tandem.cluster.world import World, is_lost_peer, joined_world
from tandem.config import Config, dump
from tandem.corpus.prepared import PreparedCorpus
from tandem.errors import SaidElsewhereError, TandemError
from tandem.layout import RunPaths
from tandem.monitor.console_view import ConsoleView
from tandem.monitor.journal import Journal, Recorder
from tandem.monitor.records import Ended
from tandem.monitor.views import View, open_views
from tandem.registry import MODELS
from tandem.training.batches import Batches, check_everyone_has_work
from tandem.training.peer_watch import watching_peers
from tandem.training.run_directory import create_or_check, locked, save_settings
from tandem.training.startup.auto_settings import check_memory, resolve_auto_settings
from tandem.training.step import NonFiniteGradientError
from tandem.training.trainer import Trainer

# Steps are split where a pass does not fit; what else a training holds may not fit either.
SMALLER_RUN = "lower batch.tokens or take a smaller model, and see whether another program uses the card"


def loop(trainer: Trainer) -> Ended:
    """Train until the last step, the end of patience or a request to stop; by then the state is saved."""
    config, progress = trainer.config, trainer.state.progress
    trainer.begin()
    reason = trainer.reason_to_stop()
    while reason is None:
        batch = trainer.fetch(progress.step + 1)
        trainer.step(batch)
        if trainer.due(config.train.log_every):
            trainer.log()
        if trainer.due(config.evaluation.every_steps):
            trainer.evaluate()
        reason = trainer.reason_to_stop()
        if reason is not None or trainer.due(config.checkpoint.every_steps):
            trainer.save()
    return trainer.end(reason)


def train(
    config: Config, corpus: str | Path, run: str | Path, views: Sequence[View] | None = None, *, change: bool = False
) -> Ended:
    """Train on a prepared corpus in a run's directory; a run that is there already continues where it stopped.

    Called by every process of a run, under any launcher; one process alone is a run, too. `views` show it to people,
    from the first process only; by default lines on standard output. `change` allows settings to differ from those
    that the run was started with.
    """
    prepared, directory = PreparedCorpus.open(Path(corpus)), Path(run)
    views = [ConsoleView(Console())] if views is None else views
    # The corpus is what it is, whatever the preset wished for: record the truth.
    config = config.model_copy(update={"corpus": prepared.facts.settings})
    with ExitStack() as stack:
        world = stack.enter_context(joined_world(config.cluster, directory))
        configure_device(world.device, tf32=config.train.tf32, deterministic=config.train.deterministic)
        check_everyone_has_work(config, world)
        world.together(lambda: MODELS.get(config.model.kind))  # a plug-in may be missing on some hosts
        world.check_same("the corpus", prepared.digest)
        world.check_same("the configuration", dump(config))
        paths = RunPaths(directory)
        changed = _claim_run(stack, world, directory, config, prepared, change)
        vocab_size = prepared.tokenizer.vocab_size
        pairs = prepared.pairs("train")
        resolved = resolve_auto_settings(config, world, vocab_size, lambda tried: Batches.of_run(tried, pairs), paths)
        # An earlier session may have taken fewer micro-batches than there are processes now.
        check_everyone_has_work(resolved, world)
        check_memory(resolved, world, vocab_size)
        shown, notices = world.together(lambda: open_views(paths, resolved) if world.is_leader else ([], []))
        journal = world.together(lambda: Journal(paths.journals, world.rank))
        recorder = Recorder(journal, [*shown, *views] if world.is_leader else ())
        stack.callback(recorder.close)
        # Around the making of the trainer, and once more inside of what puts failures into its journal.
        stack.enter_context(explain_out_of_memory(SMALLER_RUN))
        trainer = Trainer(resolved, prepared, world, recorder, directory)
        # Only now that everything fits together do the settings become the run's.
        world.together(lambda: save_settings(directory, config) if world.is_leader else None)
        if alone := unused_tasks_notice():
            notices.append(alone)
        for notice in (*notices, *(f"changed setting: {setting}" for setting in changed)):
            trainer.notice(notice)
        stack.enter_context(_stopping_on_request(trainer))
        stack.enter_context(watching_peers(trainer, paths))
        stack.enter_context(_failures_recorded(trainer))
        stack.enter_context(explain_out_of_memory(SMALLER_RUN))
        stack.enter_context(trainer.host_monitor.sampling())
        return loop(trainer)


@contextmanager
def _failures_recorded(trainer: Trainer) -> Iterator[None]:
    """Record why a training failed, and tell the user which checkpoint is left of it."""
    try:
        yield
    except NonFiniteGradientError as error:
        trainer.end(f"failed: {error}")
        if not trainer.world.is_leader:
            # Only the first process is sure to see the checkpoints, and to be heard.
            raise SaidElsewhereError(str(error)) from error
        newest = trainer.store.newest_step()
        kept = "no checkpoint was saved yet" if newest is None else f"the checkpoint of step {newest:,} is untouched"
        raise NonFiniteGradientError(f"{error}; {kept}") from error
    except TandemError as error:
        trainer.end(f"failed: {error}")
        raise
    except RuntimeError as error:
        if not is_lost_peer(error):
            raise
        lost, left = trainer.world.lost_peer_error(), trainer.going_on()
        trainer.end(f"failed: {lost}", device_answers=False)
        raise type(lost)(f"{lost}; {left}") from error


def _claim_run(
    stack: ExitStack, world: World, directory: Path, config: Config, corpus: PreparedCorpus, change: bool
) -> list[str]:
    """Lock the run's directory, and create it or list its changed settings: the first process while the others wait."""

    def lock_and_check() -> list[str]:
        stack.enter_context(locked(directory))
        return create_or_check(directory, config, corpus, change)

    return world.together(lock_and_check if world.is_leader else list)


@contextmanager
def _stopping_on_request(trainer: Trainer) -> Iterator[None]:
    """Turn the first SIGINT or SIGTERM into a wish to save and stop after the step; the second one acts at once."""

    def wish(number: int, _frame: FrameType | None) -> None:
        # Only a flag: the signal may have come in the middle of writing a record.
        trainer.stop_signal = signal.Signals(number).name
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, wish) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is wish:
                signal.signal(number, handler)
