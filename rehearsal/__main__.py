"""python -m rehearsal [options] -- ARGS: run the tandem command line, or a module, on the rehearsal device."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rehearsal.device import Rehearsal, rehearsed_cuda

GIGABYTE = 1e9


def main() -> None:
    """Run the command in this process, so that its environment (RANK, WORLD_SIZE, TANDEM_HOST, ...) is this one's."""
    options = _parser().parse_args()
    capability = tuple(int(part) for part in options.capability.split("."))
    arguments = options.arguments[1:] if options.arguments[:1] == ["--"] else options.arguments
    with rehearsed_cuda(
        cards=options.cards,
        name=options.name,
        capability=(capability[0], capability[1]),
        memory_bytes=options.memory_gb * GIGABYTE,
    ) as rehearsal:
        write = _writer(rehearsal, options.counts)
        leave = os._exit

        def leave_counted(code: int) -> Any:
            write()
            leave(code)

        # Tandem ends its processes by os._exit, which runs no `finally`.
        with patch.object(os, "_exit", leave_counted):
            try:
                _run(options.module, arguments)
            finally:
                write()


def _run(module: str | None, arguments: list[str]) -> None:
    if module is not None:
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return
    sys.argv = ["tandem", *arguments]
    # Only here: importing tandem is part of what is rehearsed.
    from tandem.cli.command_line import program

    program()


def _writer(rehearsal: Rehearsal, path: Path | None) -> Any:
    """A function that writes the counts."""

    def write() -> None:
        if path is not None:
            path.write_text(rehearsal.counts.to_json())

    return write


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rehearsal", description=__doc__)
    parser.add_argument("--cards", type=int, default=1, help="cards of this host")
    parser.add_argument("--name", default="NVIDIA A100-SXM4-80GB", help="of the cards")
    parser.add_argument("--capability", default="8.0", help="compute capability, such as 7.0 for a V100")
    parser.add_argument("--memory-gb", type=float, default=80.0, help="of a card, in 10^9 bytes")
    parser.add_argument("--counts", type=Path, help="JSON file for what was counted, written even if the command fails")
    parser.add_argument("--module", help="run this module instead of tandem's command line")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the command or module, after --")
    return parser


if __name__ == "__main__":
    main()
