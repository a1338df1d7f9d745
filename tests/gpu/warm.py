"""Starts processes on the rehearsal device from one that has imported everything already: two seconds less for each.

    python -m tests.gpu.warm

Each line of standard input is a request in JSON, each line of standard output its answer: {"start": arguments of
`python -m rehearsal`, "environment": ..., "out": file, "err": file} -> process id; {"wait": process id} -> exit code.
A process that is started is a fork: no rehearsal has begun and no thread runs before it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from rehearsal.__main__ import main as rehearse

IMPORTED = (
    "tandem.cli.command_line",
    "tandem.training.loop",
    "tandem.training.checkpoints.average",
    "tandem.translation.translator",
    "tandem.doctor.examination",
)


def serve() -> None:
    """Answer requests until there are no more."""
    for name in IMPORTED:
        importlib.import_module(name)
    assert threading.active_count() == 1
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        if "wait" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        else:
            answer = os.fork()
            if not answer:
                _become(request["start"], request["environment"], request["out"], request["err"])
        print(answer, flush=True)


def _become(arguments: Sequence[str], environment: Mapping[str, str], out: str, err: str) -> NoReturn:
    """In the fork: run `python -m rehearsal` with these arguments."""
    os.environ.clear()
    os.environ.update(environment)
    for path, descriptor in ((os.devnull, 0), (out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), descriptor)
    sys.argv = ["rehearsal", *arguments]
    code = 1
    try:
        rehearse()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
