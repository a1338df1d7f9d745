"""The command line as a whole: run, and what becomes of errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

import tandem
from tandem.cli import corpus_commands, inspection_commands, model_commands, training_commands
from tandem.cluster.join.launchers import ProcessRank, process_rank
from tandem.errors import JoinError, LostPeerError, SaidElsewhereError, TandemError
from tandem.process_exit import LOST_PEER_CODE, end_process, say, stop_code
from tandem.process_signals import heard_signal, listen, lost_peer_code, say_stopped
from tandem.storage import error_in_words

# Commands whose processes join each other; the others find the same faults each by itself.
JOINING = {"train", "doctor", "evaluate"}

app = typer.Typer(
    help="Train Transformer translators on however many machines you have.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
config_app = typer.Typer(help="Look at settings.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(config_app, name="config")


def main() -> None:
    """Run the command line; a fault of the user's becomes one message and exit code 2."""
    # PyTorch's network layer warns at length of what Tandem says in a line, or what is no fault at all.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    # The cores that Slurm gave this process, which not every cluster binds it to; OpenMP reads it at torch's import.
    if cores := os.environ.get("SLURM_CPUS_PER_TASK"):
        os.environ.setdefault("OMP_NUM_THREADS", cores)
    try:
        # A parser of its own would let every process print what is wrong with the command line.
        sys.exit(command_group()(standalone_mode=_rank().size == 1))
    except SaidElsewhereError as error:
        sys.exit(LOST_PEER_CODE if isinstance(error, LostPeerError) else 2)
    except (TandemError, OSError, typer.TyperException) as error:
        if (words := _said_once(error)) is not None:
            say(words)
        sys.exit(LOST_PEER_CODE if isinstance(error, LostPeerError) else 2)


def _said_once(error: Exception) -> str | None:
    """What to print for an error; None if another process prints it."""
    words = error.format_message() if isinstance(error, typer.TyperException) else str(error) or type(error).__name__
    if isinstance(error, OSError):
        words = error_in_words(error)
    if _rank().size == 1 or isinstance(error, JoinError):
        return words
    if not JOINING.intersection(sys.argv[1:]):
        return words if _rank().is_leader else None
    from tandem.cluster.join.roll_call import share_fault

    return share_fault(words)


def _rank() -> ProcessRank:
    try:
        return process_rank()
    except TandemError:  # half a launcher's variables: a command that joins others says so
        return ProcessRank(0, 1, 0)


def command_group() -> typer.core.TyperGroup:
    """The command line; an option that takes several values again and again is more than typer can be told in types."""
    command = typer.main.get_command(app)
    assert isinstance(command, typer.core.TyperGroup)
    for parameter in command.commands["prepare"].params:
        parameter.nargs = {"train": 2, "dev_set": 3}.get(parameter.name or "", parameter.nargs)
    return command


def stopped_by_signals(command: Callable[..., None]) -> Callable[..., None]:
    """A command that a signal ends with one sentence, unless it has one of its own, and the signal's exit code."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt:
            say_stopped()
            raise typer.Exit(stop_code(heard_signal())) from None

    return run


def program() -> None:
    """Run the command line and end the process; a KeyboardInterrupt is left to whoever called."""
    listener = listen()
    try:
        # Of the processes on a host, one says that they were stopped.
        listener.speaks = not _rank().local_rank
        try:
            main()
        finally:
            # From here on it ends anyway, with the code that it has earned.
            interrupted = listener.stop_interrupting()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:
        if not interrupted:
            raise
        # PyTorch's C code takes an interrupt while NumPy is imported for a NumPy that is missing.
        code = 1
    stopped = stop_code(heard_signal())
    if interrupted and code not in (0, stopped):
        # typer, too, has a code of its own for an interrupt before a command has begun.
        say_stopped()
        code = stopped
    elif code == LOST_PEER_CODE:
        code = lost_peer_code()
    if "torch" not in sys.modules and not interrupted:
        sys.exit(code)
    # (After an interrupt inside of an `exec`, as dataclasses have it, Python would end itself by SIGINT.)
    end_process(code)


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if show:
        print(f"tandem {tandem.__version__}")
        raise typer.Exit


for command in (
    corpus_commands.prepare,
    corpus_commands.corpora,
    inspection_commands.doctor,
    training_commands.train,
    inspection_commands.report,
    inspection_commands.watch,
    model_commands.evaluate,
    model_commands.average,
    model_commands.translate,
    model_commands.score,
    model_commands.compare,
    model_commands.export,
    model_commands.serve,
    training_commands.demo,
):
    app.command()(stopped_by_signals(command))
# What comes after `--` is another command with options of its own.
app.command(context_settings={"ignore_unknown_options": True})(stopped_by_signals(training_commands.launch))
config_app.command()(inspection_commands.show)
config_app.command(name="list")(inspection_commands.list_presets)
