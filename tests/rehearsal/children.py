"""Runs the cases of a module in a child process, because the rehearsal device changes PyTorch as a whole.

A case is a function `case_...` of a module `cases_....py`; the child runs all of them. One that takes a rehearsal gets
two cards of 100 MB, the others begin their own.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]


def names(module: str) -> list[str]:
    """The cases of a module, which is read and not imported."""
    tree = ast.parse((HERE / f"{module}.py").read_text())
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")]


def run(module: str) -> dict[str, str]:
    """Run a module's cases in a child; the traceback of each, or nothing for those that passed."""
    arguments = [sys.executable, "-W", "ignore", "-m", "tests.rehearsal.children", module]
    child = subprocess.run(arguments, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False)
    assert child.returncode == 0, child.stderr
    outcomes: dict[str, str] = json.loads(child.stdout.splitlines()[-1])
    return outcomes


def start(program: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start a program of this directory as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", f"tests.rehearsal.{program}", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _main(module: str) -> None:
    from rehearsal.device import rehearsed_cuda

    cases: Any = importlib.import_module(f"tests.rehearsal.{module}")
    outcomes = {}
    for name in names(module):
        case = getattr(cases, name)
        try:
            if inspect.signature(case).parameters:
                with rehearsed_cuda(cards=2, memory_bytes=1e8, package=HERE) as rehearsal:
                    case(rehearsal)
            else:
                case()
            outcomes[name] = ""
        except BaseException:
            outcomes[name] = traceback.format_exc()
    print(json.dumps(outcomes), flush=True)
    os._exit(0)


if __name__ == "__main__":
    _main(sys.argv[1])
