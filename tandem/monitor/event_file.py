"""TensorBoard's event files, written in the process itself.

The writer that comes with TensorBoard leaves that to a thread, which dies with a traceback when the disk is full.
"""

from __future__ import annotations

import io
import itertools
import os
import socket
import time
from io import FileIO
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.summary.writer.record_writer import RecordWriter

from tandem.storage import append

VERSION = "brain.Event:2"
# Readers take the files of a directory in the order of their names, which begin with the time in seconds.
_number = itertools.count()


class EventFile:
    """One event file: every call appends whole events, or raises OSError."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        place = f"{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_number):06d}"
        self._path = directory / f"events.out.tfevents.{place}"
        self._file: FileIO = self._path.open("xb", buffering=0)
        self.append([Event(file_version=VERSION)])

    def append(self, events: list[Event]) -> None:
        """Append events, with the time of now."""
        packed = io.BytesIO()
        writer = RecordWriter(packed)
        for event in events:
            event.wall_time = time.time()
            writer.write(event.SerializeToString())
        try:
            append(self._file, packed.getvalue())
        except OSError as error:
            error.filename = str(self._path)
            raise

    def close(self) -> None:
        self._file.close()
