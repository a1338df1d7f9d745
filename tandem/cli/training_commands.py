"""Commands that train: train, launch, demo."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import tandem
from tandem.cli.options import AsJson, Overrides, SetOption, all_settings, open_console, print_json
from tandem.errors import TandemError
from tandem.process_exit import stop_code
from tandem.process_signals import heard_signal


def train(
    config: Annotated[str, typer.Argument(metavar="PRESET_OR_FILE", help="A preset's name or a YAML file.")],
    corpus: Annotated[Path, typer.Option(help="Directory made by `tandem prepare`.")],
    run: Annotated[
        Path,
        typer.Option(
            help="Directory of the run; one that exists is continued. Under torchrun, put `--` before `train`, "
            "or torchrun takes --run for an option of its own."
        ),
    ],
    overrides: Overrides = None,
    setting: SetOption = None,
    change: Annotated[bool, typer.Option("--change", help="Continue a run with changed settings.")] = False,
    start_from: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="RUN[/best|...]", help="Begin with the weights of another run, or of a checkpoint of one."
        ),
    ] = None,
    with_optimizer: Annotated[
        bool, typer.Option("--with-optimizer", help="Take over the optimizer and the step of --from, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train a model; started again, the run continues where it stopped."""
    settings = tandem.Config.load(config, all_settings(overrides, setting))
    from tandem.monitor.console_view import ConsoleView

    views = [ConsoleView(open_console(stderr=as_json))]
    ended = tandem.train(
        settings, corpus, run, views, change=change, start_from=start_from, with_optimizer=with_optimizer
    )
    if as_json:
        print_json({"run": str(run), **ended.as_dict()})
    if ended.signal is not None:
        # What comes after `&&` wants a finished model.
        raise typer.Exit(stop_code(signal.Signals[ended.signal]))


def launch(
    arguments: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="A tandem command, e.g. train ...")],
    hosts: Annotated[str, typer.Option("--hosts", "-H", help="Hosts and processes on each, e.g. vm1:2,vm2:2.")],
    ssh: Annotated[str, typer.Option(help="How the hosts are reached, e.g. 'ssh -p 4444'.")] = "ssh",
    port: Annotated[int | None, typer.Option(help="Port on the first host to meet at; by default a free one.")] = None,
    address: Annotated[
        str | None, typer.Option(help="Address at which the others reach the first host, if not the one ssh uses.")
    ] = None,
    join_seconds: Annotated[int, typer.Option(help="Longest wait for a host's answer before the start.")] = 120,
    restarts: Annotated[
        int, typer.Option(min=0, help="Start again after a lost process, host or connection, so many times in a row.")
    ] = 0,
    min_hosts: Annotated[
        int | None,
        typer.Option(min=1, help="Fewest hosts to go on with while others are lost; by default all are needed."),
    ] = None,
) -> None:
    """Run a command on several hosts at once, over ssh; Ctrl-C or the end of one ends all."""
    import shlex

    from tandem.cluster.join.launchers import parse_hosts
    from tandem.cluster.launch.launch_order import LaunchHost, LaunchOrder
    from tandem.cluster.launch.supervisor import launch as launch_on_hosts

    named = [LaunchHost(name, processes) for name, processes in parse_hosts(hosts)]
    if min_hosts is not None and (min_hosts > len(named) or not restarts):
        raise TandemError(f"--min-hosts {min_hosts}: needs --restarts, and as many hosts in -H {hosts}")
    given, settings = _check_command(arguments)
    order = LaunchOrder(
        hosts=named,
        arguments=arguments,
        corpus=given.get("corpus"),
        run=None if settings is None else given["run"],
        mirrored=settings is not None and settings.checkpoint.mirror is not None,
        as_json=given.get("as_json", False),
        ssh=shlex.split(ssh),
        port=port,
        address=address,
        join_seconds=join_seconds,
        stop_seconds=(settings or tandem.Config()).train.stop_seconds,
        restarts=restarts,
        min_hosts=min_hosts or len(named),
    )
    raise typer.Exit(launch_on_hosts(order))


def demo(
    directory: Annotated[Path, typer.Option("--dir", help="Where corpus and run are put.")] = Path("demo"),
    as_json: AsJson = False,
) -> None:
    """Watch a small Transformer learn to translate a toy grammar, in about a minute."""
    from tandem.demo.run_demo import run_demo
    from tandem.training.faults.stopping import ASKED_TO_STOP

    # As it was called, which may be a path into a virtual environment, so that the line it shows can be copied.
    program = sys.argv[0] if Path(sys.argv[0]).name == "tandem" else "python -m tandem"
    answer = run_demo(directory, open_console(stderr=as_json), program)
    if as_json:
        print_json(answer)
    if answer["reason"] == ASKED_TO_STOP:
        raise typer.Exit(stop_code(heard_signal()))


def _check_command(arguments: list[str]) -> tuple[dict[str, Any], tandem.Config | None]:
    """Find here, and once, what every process would find wrong with its command line; its parameters and settings."""
    from tandem.cli.command_line import command_group

    group = command_group()
    context = group.make_context("tandem", list(arguments))
    name, command, rest = group.resolve_command(context, list(arguments))
    assert command is not None, "resolving fails otherwise"
    given = command.make_context(name, rest, parent=context).params
    if name != "train":
        return given, None
    return given, tandem.Config.load(given["config"], all_settings(given["overrides"], given["setting"]))
