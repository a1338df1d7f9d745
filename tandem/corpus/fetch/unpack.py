"""Unpacks named members of an archive to plain files: only regular files, never too much, whole or not at all."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO, Protocol, Self, cast

from tandem.corpus.progress import ProgressCallback, no_progress
from tandem.errors import TandemError
from tandem.storage import explained_write_errors, whole_file

# The largest public corpora of one pair of languages unpack to less than half of this.
CAP = 200 * 10**9
# Text shrinks to a third or a tenth; an archive that grows more than this is made to fill a disk ...
_GROWTH = 200
# ... unless it is so small that a few lines over and over explain it, and no disk suffers.
_HARMLESS = 64 << 20
# Read in pieces that are cheap to handle and quick to report.
_PIECE = 1 << 18
_TAR_BLOCK = 512
# Headers of their own, with long names and other attributes; a megabyte of those is no archive's.
_HEADER_TYPES = (*tarfile.GNU_TYPES, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_LARGEST_HEADER = 1 << 20
_ZIPS = (b"PK\x03\x04", b"PK\x05\x06")
_COMPRESSIONS: dict[bytes, Callable[[IO[bytes]], object]] = {
    b"\x1f\x8b": lambda stored: gzip.GzipFile(fileobj=stored),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}
_LONGEST_MAGIC = 6

# What the readers of the standard library raise over bytes that are no archive, or only the beginning of one.
_DAMAGE = (
    EOFError,
    OSError,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    NotImplementedError,
    ValueError,
)
# Members that an error lists, for whoever has misspelt one.
_LISTED = 8


class MissingMemberError(TandemError):
    """The archive is sound but does not have a member that was asked for."""


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class _Counted:
    """Unpacked bytes, counted as they are read."""

    content: _Readable
    stored: IO[bytes]
    count: Callable[[int, int], None]

    def read(self, size: int, /) -> bytes:
        piece = self.content.read(size)
        self.count(len(piece), self.stored.tell())
        return piece


@dataclass(frozen=True)
class _Member:
    """A member of an archive."""

    name: str
    open: Callable[[], _Readable]
    is_regular: bool = True
    is_encrypted: bool = False


def unpack(
    archive: Path, members: Mapping[str, Path], progress: ProgressCallback = no_progress, cap: int = CAP
) -> None:
    """Write each named member of a .tar, .tar.gz, .tar.bz2, .tar.xz or .zip file to a plain file, all of them or none.

    The kind is told by content, not by name. A file that is none of these, compressed or not, has the one member "".
    The archive is read once; a tar to its end, so that damage anywhere is found. A wanted member that is there twice
    is refused: nobody can say which one is meant. No more than `cap` bytes are unpacked. The caller sees to it that
    no other process writes the same files.
    """
    for name in members:
        if name.startswith("/") or ".." in name.split("/"):
            raise TandemError(f"{archive}: the member {name} would lie outside of it; name a file in the archive")
    members = {name.removeprefix("./"): path for name, path in members.items()}
    unpacking = _Unpacking(archive, members, progress, cap)
    # Closing it gives all files their names; if anything goes wrong, an interrupt too, nothing is left behind.
    with ExitStack() as files:
        try:
            unpacking.run(files)
        except _DAMAGE as error:
            where = f" in the member {unpacking.at}" if unpacking.at else ""
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise TandemError(f"{archive}: damaged or cut short{where} ({why}); get the file again") from error
    unpacking.report(unpacking.size)


class _Unpacking:
    """An archive while it is read, the members wanted from it, and what they may amount to."""

    def __init__(self, archive: Path, wanted: Mapping[str, Path], progress: ProgressCallback, cap: int) -> None:
        self._archive, self._wanted, self._progress = archive, wanted, progress
        self.size = _size(archive)
        self.at = ""
        """The member that is being written."""
        self._cap = min(cap, max(_HARMLESS, _GROWTH * self.size))
        self._unpacked = 0

    def report(self, position: int) -> None:
        self._progress(f"unpack {self._archive.name}", min(position, self.size), self.size, "B")

    def run(self, files: ExitStack) -> None:
        """Write the wanted members to the disk; they get their names when `files` is closed."""
        written: set[str] = set()
        passed_over: list[str] = []
        with self._archive.open("rb") as stored:
            for member in self._members(stored):
                if member.name in self._wanted:
                    self._write(member, files, member.name in written)
                    written.add(member.name)
                elif len(passed_over) <= _LISTED:
                    passed_over.append(member.name)
        if missing := [name for name in self._wanted if name not in written]:
            there = ", ".join(passed_over[:_LISTED]) + (", ..." if len(passed_over) > _LISTED else "")
            raise MissingMemberError(
                f"{self._archive}: has no member {', '.join(missing)}; correct the name; there are {there or 'none'}"
            )

    def _members(self, stored: IO[bytes]) -> Iterator[_Member]:
        beginning = stored.read(_LONGEST_MAGIC)
        stored.seek(0)
        if beginning.startswith(_ZIPS):
            members = _zip_members(stored, self._count)
        else:
            is_tar = _is_tar(_decompressed(stored, beginning).read(_TAR_BLOCK))
            stored.seek(0)
            content = _Counted(_decompressed(stored, beginning), stored, self._count)
            if not is_tar:
                return self._single_member(content)
            members = _tar_members(content)
        if "" in self._wanted:
            raise TandemError(f"{self._archive}: an archive of files; say which of its members are wanted")
        return members

    def _single_member(self, content: _Counted) -> Iterator[_Member]:
        if named := [name for name in self._wanted if name]:
            _read_out(content)  # an archive whose beginning is damaged would look like this, too
            raise TandemError(
                f"{self._archive}: not an archive of files, so it has no member {', '.join(named)}; "
                "check that it is the right file"
            )
        yield _Member("", lambda: content)

    def _count(self, size: int, position: int) -> None:
        """Count unpacked bytes, written or passed over: a bomb costs time even where it is not written."""
        self._unpacked += size
        if self._unpacked > self._cap:
            raise TandemError(
                f"{self._archive}: unpacks to more than {self._cap:,} bytes, too much for text of its size; "
                "check where it came from"
            )
        self.report(position)

    def _write(self, member: _Member, files: ExitStack, again: bool) -> None:
        where = f"{self._archive}: the member {member.name}"
        if again:
            raise TandemError(f"{where} is there twice; get the archive from another source")
        if not member.is_regular:
            raise TandemError(f"{where} is not a regular file; name the file that it stands for")
        if member.is_encrypted:
            raise TandemError(f"{where} is encrypted; unpack the archive yourself")
        self.at = member.name
        path = self._wanted[member.name]
        file = files.enter_context(_new_file(path))
        content = member.open()
        while piece := content.read(_PIECE):
            with explained_write_errors(path):
                file.write(piece)
        with explained_write_errors(path):
            file.flush()
            os.fsync(file.fileno())  # a disk that is full says so here, before any file has its name
        self.at = ""


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    with explained_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            yield file


def _decompressed(stored: IO[bytes], beginning: bytes) -> _Readable:
    opened = (opener(stored) for magic, opener in _COMPRESSIONS.items() if beginning.startswith(magic))
    return cast(_Readable, next(opened, stored))


def _is_tar(head: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(head, tarfile.ENCODING, "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


class _TarInfo(tarfile.TarInfo):
    """A member of an archive whose header is no larger than headers are: it is read into memory as a whole."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        member = super().frombuf(buf, encoding, errors)
        if member.type in _HEADER_TYPES and member.size > _LARGEST_HEADER:
            raise tarfile.ReadError(f"a header of {member.size:,} bytes")
        return member


def _tar_members(content: _Counted) -> Iterator[_Member]:
    # The mode for streams: no member is read twice, and no link can be followed back.
    with tarfile.open(fileobj=cast(IO[bytes], content), mode="r|", bufsize=_PIECE, tarinfo=_TarInfo) as tar:
        for info in tar:
            opener = cast(Callable[[], _Readable], partial(tar.extractfile, info))
            yield _Member(info.name.removeprefix("./"), opener, info.isreg() and not info.issparse())
    _read_out(content)


def _read_out(content: _Counted) -> None:
    """Read the rest, at the end of which the checksum is."""
    while content.read(_PIECE):
        pass


def _zip_members(stored: IO[bytes], count: Callable[[int, int], None]) -> Iterator[_Member]:
    with zipfile.ZipFile(stored) as archive:
        for info in archive.infolist():

            def opener(info: zipfile.ZipInfo = info) -> _Readable:
                return _Counted(cast(_Readable, archive.open(info)), stored, count)

            is_regular = not info.is_dir() and stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG)
            yield _Member(info.filename.removeprefix("./"), opener, is_regular, bool(info.flag_bits & 1))


def _size(archive: Path) -> int:
    try:
        with archive.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise TandemError(f"{archive}: cannot be read ({error.strerror}); check the path") from error
    if not size:
        raise TandemError(f"{archive}: the file is empty; get it again")
    return size
