"""Reads parallel text: plain or gzipped UTF-8 files, a sentence a line, two files line by line together."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import zlib
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tandem.errors import TandemError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

Pair = tuple[str, str]

_BOM = b"\xef\xbb\xbf"
_GZIP_MAGIC = b"\x1f\x8b"


class _HashedFile(io.RawIOBase):
    """An open file that takes the checksum of what is read from it, so that each input is read only once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self.checksum = hashlib.sha256()
        self.size = os.fstat(self._file.fileno()).st_size
        self.read_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        count = self._file.readinto(buffer) or 0
        self.checksum.update(memoryview(buffer)[:count])
        self.read_bytes += count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


class TextFile:
    """One text file; iterating reads it and leaves its line count, size and checksum behind."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0
        """Lines read so far; a last line without its newline counts."""
        self.bytes = 0
        """Bytes of text read so far, unpacked and exactly as in the file: what `zcat FILE | wc -c` says."""
        self.file_bytes = 0
        """Bytes of the file as it lies on the disk, known after reading."""
        self.sha256 = ""
        """Checksum of the file as it lies on the disk (what `sha256sum FILE` says), known after reading."""
        self._file: _HashedFile | None = None

    def __iter__(self) -> Iterator[str]:
        """Yield the lines without their ends; only a newline ends a line, whatever Unicode says."""
        self.lines = self.bytes = 0
        try:
            self._file = _HashedFile(self.path)
            with self._file, io.BufferedReader(self._file, 1 << 20) as stored:
                yield from self._decode(self._unpack(stored) if self.path.suffix == ".gz" else stored)
                self.sha256 = self._file.checksum.hexdigest()
                self.file_bytes = self._file.read_bytes
        except (EOFError, zlib.error, OSError) as error:
            raise TandemError(self._trouble(error)) from error
        if not self.lines:
            raise TandemError(f"{self.path}: the file is empty; give a file with one sentence a line")

    def progress(self) -> tuple[int, int]:
        """Bytes of the stored file read so far, and its size."""
        return (self._file.read_bytes, self._file.size) if self._file else (0, 0)

    def _unpack(self, stored: io.BufferedReader[_HashedFile]) -> Iterable[bytes]:
        if stored.peek(2)[:2] not in (_GZIP_MAGIC, b""):
            raise TandemError(f"{self.path}: not a gzip file though its name ends in .gz; rename it or compress it")
        return gzip.GzipFile(fileobj=stored)

    def _decode(self, raw_lines: Iterable[bytes]) -> Iterator[str]:
        for raw in raw_lines:
            self.lines += 1
            self.bytes += len(raw)
            line = raw.removesuffix(b"\n").removesuffix(b"\r")
            if self.lines == 1:
                line = line.removeprefix(_BOM)
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise TandemError(self._not_utf8(line, error.start)) from None
            yield text

    def _not_utf8(self, line: bytes, position: int) -> str:
        if self.lines == 1 and line.startswith(_GZIP_MAGIC):
            return f"{self.path}: this is a gzip file; rename it to {self.path.name}.gz"
        return (
            f"{self.path}:{self.lines}: not UTF-8 (byte {position + 1} of the line is 0x{line[position]:02x}); "
            f"convert the file, for example: iconv -f LATIN1 -t UTF-8 {self.path}"
        )

    def _trouble(self, error: Exception) -> str:
        if isinstance(error, EOFError):
            return f"{self.path}: the gzip file is cut short after line {self.lines}; fetch or compress it again"
        if isinstance(error, gzip.BadGzipFile | zlib.error):
            return (
                f"{self.path}: the gzip file is damaged after line {self.lines} ({error}); fetch or compress it again"
            )
        return _unreadable(self.path, cast(OSError, error))


def check_file(path: Path) -> None:
    """Refuse a path that cannot be read, before any long work begins."""
    try:
        # Not opened here: a pipe, as in `--train <(zcat ...)`, can be opened only once.
        if stat.S_ISDIR(path.stat().st_mode):
            raise IsADirectoryError
        if not os.access(path, os.R_OK):
            raise PermissionError("no permission")
    except OSError as error:
        raise TandemError(_unreadable(path, error)) from None


def _unreadable(path: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{path}: no such file; check the path"
    if isinstance(error, IsADirectoryError):
        return f"{path}: this is a directory; give a text file"
    return f"{path}: cannot be read ({error.strerror or error}); check the file and its permissions"


def read_parallel(source: TextFile, target: TextFile) -> Iterator[Pair]:
    """Yield the lines of two files in step; different line counts are an error, found at the end."""
    for left, right in zip_longest(source, target):
        # After the shorter file ends the longer is still read through, so that the error can name both counts.
        if left is not None and right is not None:
            yield left, right
    if source.lines != target.lines:
        raise TandemError(
            f"{source.path} has {source.lines} lines but {target.path} has {target.lines}; "
            f"line N of one must translate line N of the other: check after line {min(source.lines, target.lines)}"
        )
