"""Starts processes of Python from one that has imported PyTorch and Tandem already: seconds less for each.

    python -m tests.warm_server DESCRIPTOR MODULE

The module is imported before all others, as the rehearsal of a card has to be imported before PyTorch. Requests come
through the socket of that descriptor, in JSON, each with four descriptors: the new process' standard input, output and
error, and a socket that takes its process id and, once it has ended, its exit code. A process that is started is a
fork: no thread runs before it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import selectors
import socket
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import NoReturn

IMPORTED = (
    "tandem.cli.command_line",
    "tandem.training.loop",
    "tandem.training.checkpoints.average",
    "tandem.monitor.tensorboard_view",
    "tandem.translation.translator",
    "tandem.doctor.examination",
    "tandem.serving.run_server",
    "tandem.reporting.examine_run",
    "tandem.model.transformer",
    "tandem.cluster.exchange.strategies.allreduce",
    "tandem.schedules.cosine",
    # What PyTorch imports with the first step, which takes a second.
    "torch._dynamo",
    "torch.distributed.fsdp",
    "sentencepiece",
    "sacrebleu.tokenizers.tokenizer_13a",
)
LARGEST_REQUEST = 1 << 20
UNCAUGHT = 1


def _named(environment: Mapping[str, str]) -> list[str]:
    return list(filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)))


OWN = _named(os.environ)
"""Places of modules that this process was given, and that its forks may not be."""


def serve(requests: socket.socket, first: str) -> None:
    """Answer requests until there are no more."""
    for name in (first, *IMPORTED):
        importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a fork has but one thread of this process"
    gc.freeze()
    events = selectors.DefaultSelector()
    events.register(requests, selectors.EVENT_READ)
    while True:
        for key, _ in events.select():
            if key.fileobj is requests:
                message, descriptors, _, _ = socket.recv_fds(requests, LARGEST_REQUEST, 4)
                if not message:
                    return
                _start(json.loads(message), descriptors, events)
            else:
                process, answers = key.data
                answers.send(str(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])).encode())
                answers.close()
                events.unregister(key.fd)
                os.close(key.fd)


def _start(request: Mapping[str, object], descriptors: Sequence[int], events: selectors.BaseSelector) -> None:
    *standard, answering = descriptors
    process = os.fork()
    if not process:
        _become(standard=standard, **request)  # type: ignore[arg-type]
    for descriptor in standard:
        os.close(descriptor)
    answers = socket.socket(fileno=answering)
    answers.send(str(process).encode())
    events.register(os.pidfd_open(process), selectors.EVENT_READ, (process, answers))


def _become(
    *, arguments: Sequence[str], environment: Mapping[str, str], directory: str, standard: Sequence[int]
) -> NoReturn:
    """In the fork: do what `python` does with these arguments."""
    code = UNCAUGHT
    try:
        for number, descriptor in enumerate(standard):
            os.dup2(descriptor, number)
        # Whoever waits for the end of a pipe waits for all who have it.
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        # As a new process has it: where it is, what the environment names, and the rest.
        sys.path[:] = [directory, *_named(environment), *(place for place in sys.path[1:] if place not in OWN)]
        if threads := environment.get("OMP_NUM_THREADS"):
            # OpenMP has read the variable when PyTorch was imported.
            import torch

            torch.set_num_threads(int(threads))
        _run(arguments)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        # Whatever happened, this process must never go on in its parent's place.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(arguments: Sequence[str]) -> None:
    if arguments[:2] == ["-W", "ignore"]:
        warnings.simplefilter("ignore")
        arguments = arguments[2:]
    kind, what, *rest = arguments
    sys.argv = [what, *rest]
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        assert kind == "-c", arguments
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
