"""Writes TensorBoard event files without a framework, at moments of the test's choice."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util.tensor_util import make_tensor_proto

Value = tuple[str, int, float, float]
"""Tag, step, value, moment."""


def write_events(directory: Path, values: Iterable[Value], *, as_tensors: bool = False) -> Path:
    """One event file; `as_tensors` is how newer TensorFlow writes scalars."""
    writer = EventFileWriter(str(directory))
    for tag, step, value, moment in values:
        given = {"tensor": make_tensor_proto(value)} if as_tensors else {"simple_value": value}
        summary = Summary(value=[Summary.Value(tag=tag, **given)])
        writer.add_event(Event(step=step, wall_time=moment, summary=summary))
    writer.close()
    (path,) = directory.glob("*tfevents*")
    return path
