"""Reads what W&B's library writes beside a run: blocks of a log, as LevelDB has them, of protobuf records.

The library reads its own files in a program that is not Python's.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

FILE_HEADER = 7
BLOCK = 32768
CHUNK_HEADER = struct.Struct("<IHB")
# A chunk is a whole record, or the last part of one.
FULL, LAST = 1, 4


@dataclass
class WandbSession:
    """One session's file: the rows of the history in order, the settings and how it ended."""

    run_id: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None


def read_sessions(run: Path) -> list[WandbSession]:
    """All sessions of a run of Tandem's, oldest first."""
    return [_read(file) for file in sorted(run.glob("wandb/*run-*/run-*.wandb"))
            if not file.parent.is_symlink()]  # fmt: skip


def _read(file: Path) -> WandbSession:
    session = WandbSession()
    for record in _records(file.read_bytes()):
        match record.WhichOneof("record_type"):
            case "run":
                session.run_id = record.run.run_id
                session.config.update(_values(record.run.config.update))
            case "config":
                session.config.update(_values(record.config.update))
            case "history":
                session.rows.append(_values(record.history.item))
            case "summary":
                session.summary.update(_values(record.summary.update))
            case "exit":
                session.exit_code = record.exit.exit_code
    return session


def _values(items: Any) -> dict[str, Any]:
    return {".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}


def _records(data: bytes) -> Iterator[Any]:
    # Its types are made when it is imported.
    make_record: Any = import_module("wandb.proto.wandb_internal_pb2").Record
    at, whole = FILE_HEADER, b""
    while at + CHUNK_HEADER.size <= len(data):
        left = BLOCK - at % BLOCK
        if left < CHUNK_HEADER.size:
            at += left
            continue
        _, length, kind = CHUNK_HEADER.unpack_from(data, at)
        at += CHUNK_HEADER.size
        whole += data[at : at + length]
        at += length
        if kind in (FULL, LAST):
            yield make_record.FromString(whole)
            whole = b""
