"""The training loop: fetch, step, log, evaluate, save, until there is a reason to stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from tandem.cluster.devices import configure_device, memory_explained
from tandem.cluster.world import World, is_lost_peer, joined_world
from tandem.config import Config, dump
from tandem.corpus.prepared import PreparedCorpus
from tandem.errors import SaidElsewhereError, TandemError
from tandem.monitor.journal import Journal, Recorder, View
from tandem.monitor.records import Ended
from tandem.monitor.tensorboard import TensorBoardView
from tandem.train.batches import Batches, check_everyone_has_work
from tandem.train.choices import check_memory, settle_choices
from tandem.train.job import Job
from tandem.train.run import RunPaths, adopt, locked, start
from tandem.train.step import NonFiniteGradientError

# Steps are split where a pass does not fit; what else a training holds may not fit either.
SMALLER_RUN = "lower batch.tokens or take a smaller model, and see whether another program uses the card"


def train(job: Job) -> Ended:
    """Train until the steps are used up, patience ends or somebody asks to stop; by then the state is saved."""
    config, progress = job.config, job.state.progress
    job.begin()
    reason = job.reason_to_stop()
    while reason is None:
        batch = job.fetch(progress.step + 1)
        job.learn(batch)
        if job.due(config.train.log_every):
            job.log()
        if job.due(config.evaluation.every_steps):
            job.evaluate()
        reason = job.reason_to_stop()
        if reason is not None or job.due(config.checkpoint.every_steps):
            job.save()
    return job.end(reason)


def run_training(
    config: Config, corpus_directory: Path, run_directory: Path, views: Sequence[View] = (), change: bool = False
) -> Ended:
    """Start a run, or continue it where it stopped; `views` show it to people, from its first process alone."""
    corpus = PreparedCorpus.open(corpus_directory)
    # The corpus is what it is, whatever the preset wished for: record the truth.
    config = config.model_copy(update={"corpus": corpus.facts.settings})
    with ExitStack() as stack:
        world = stack.enter_context(joined_world(config.cluster))
        configure_device(world.device, tf32=config.train.tf32, deterministic=config.train.deterministic)
        check_everyone_has_work(config, world)
        world.check_same("the corpus", corpus.digest)
        world.check_same("the configuration", dump(config))
        run = RunPaths(run_directory)
        changed = stack.enter_context(_shared_run(world, run_directory, config, corpus, change))
        settled = settle_choices(
            config, world, corpus.tokenizer.vocab_size, lambda tried: Batches.of_run(tried, corpus), run
        )
        # An earlier session may have settled on fewer micro-batches than there are processes now.
        check_everyone_has_work(settled, world)
        check_memory(settled, world, corpus.tokenizer.vocab_size)
        shown = [TensorBoardView(run.tensorboard_directory), *views] if world.leads else []
        recorder = Recorder([Journal(run.journal_directory, world.rank), *shown])
        stack.callback(recorder.close)
        # Around the making of the job, and once more inside of what puts failures into its journal.
        stack.enter_context(memory_explained(SMALLER_RUN))
        job = Job(config=settled, corpus=corpus, world=world, recorder=recorder, directory=run_directory)
        # Only now that everything fits together do the settings become the run's.
        world.together(lambda: adopt(run_directory, config) if world.leads else None)
        for setting in changed:
            job.notice(f"changed setting: {setting}")
        stack.enter_context(_stopping_on_request(job))
        stack.enter_context(_failures_recorded(job))
        stack.enter_context(memory_explained(SMALLER_RUN))
        stack.enter_context(job.survey.under_way())
        return train(job)


@contextmanager
def _failures_recorded(job: Job) -> Iterator[None]:
    """Put into the journal why a training failed, and tell the user what is left of it."""
    try:
        yield
    except NonFiniteGradientError as error:
        job.end(f"failed: {error}")
        if not job.world.leads:
            # Only the first process is sure to see the checkpoints, and to be heard.
            raise SaidElsewhereError(str(error)) from error
        newest = job.shelf.newest_step()
        kept = "no checkpoint was saved yet" if newest is None else f"the checkpoint of step {newest:,} is untouched"
        raise NonFiniteGradientError(f"{error}; {kept}") from error
    except TandemError as error:
        job.end(f"failed: {error}")
        raise
    except RuntimeError as error:
        if is_lost_peer(error):
            job.end(f"failed: lost the connection to another process ({error})", device_answers=False)
        raise


@contextmanager
def _shared_run(
    world: World, directory: Path, config: Config, corpus: PreparedCorpus, change: bool
) -> Iterator[list[str]]:
    """Hold the run's directory, made or checked by the first process while the others wait; the changed settings."""
    with ExitStack() as stack:

        def make_or_check() -> list[str]:
            if not world.leads:
                return []
            stack.enter_context(locked(directory))
            return start(directory, config, corpus, change)

        yield world.together(make_or_check)


@contextmanager
def _stopping_on_request(job: Job) -> Iterator[None]:
    """Turn the first SIGINT or SIGTERM into a wish to save and stop after the step; the second one acts at once."""

    def wish(number: int, _frame: FrameType | None) -> None:
        # Only a flag: the signal may have come in the middle of writing a record.
        job.stop_signal = signal.Signals(number).name
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, wish) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
