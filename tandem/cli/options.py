"""What the commands share: options, and where answers go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem.cluster.join.launchers import process_rank, started_by_launcher

if TYPE_CHECKING:
    from rich.console import Console

Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[key.path=value]...", help="Settings to change, e.g. search.beam=5.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="key.path=value", help="A setting to change, as the arguments key.path=value do."),
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a run made by `tandem train`.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON on standard output.")]
CheckpointChoice = Annotated[str, typer.Option(help="best, last, averaged, or a checkpoint directory.")]


def all_settings(overrides: list[str] | None, setting: list[str] | None) -> list[str]:
    """Settings given as arguments and with --set."""
    return [*(overrides or ()), *(setting or ())]


def open_console(stderr: bool = False) -> Console:
    """Where people's lines go; of many processes only the first speaks."""
    from rich.console import Console

    # mpirun and srun may give a process a terminal at which nobody sits: no live lines, no colours.
    terminal = False if started_by_launcher() else None
    return Console(stderr=stderr, quiet=not process_rank().is_leader, force_terminal=terminal)


def print_json(answer: dict[str, Any]) -> None:
    if process_rank().is_leader:
        print(json.dumps(answer, indent=2, ensure_ascii=False))
