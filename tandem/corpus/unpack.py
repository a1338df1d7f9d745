"""Takes named members out of an archive into plain files: only regular files, never too much, whole or not at all."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, BinaryIO, Protocol, Self, cast

from tandem.corpus.disk import told_of_disk
from tandem.corpus.progress import Progress, unwatched
from tandem.errors import TandemError
from tandem.files import whole_file

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

_GZIP = b"\x1f\x8b"
_BZIP2 = b"BZh"
_XZ = b"\xfd7zXZ\x00"
_ZIPS = (b"PK\x03\x04", b"PK\x05\x06")

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
    """What gives bytes, a piece at a time."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end."""


def unpack(archive: Path, members: Mapping[str, Path], progress: Progress = unwatched, cap: int = CAP) -> None:
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
    writing = _Writing(archive, members, progress, cap)
    with writing.all_or_none():
        try:
            _read(archive, writing)
        except _DAMAGE as error:
            where = f" in the member {writing.at}" if writing.at else ""
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise TandemError(f"{archive}: damaged or cut short{where} ({why}); get the file again") from error
        writing.check_all_found()


class _Writing:
    """The members as they are written, and what they may amount to."""

    def __init__(self, archive: Path, members: Mapping[str, Path], progress: Progress, cap: int) -> None:
        self.archive = archive
        self.members = members
        self.at = ""
        """The member that is being written."""
        self.passed_over: list[str] = []
        """Members that nobody asked for, a few of them."""
        self._found: set[str] = set()
        self._files = ExitStack()
        self._stage = f"unpack {archive.name}"
        self._progress = progress
        self._size = _size(archive)
        self._cap = min(cap, max(_HARMLESS, _GROWTH * self._size))
        self._unpacked = 0

    def unpacked(self, count: int, position: int) -> None:
        """Count unpacked bytes, written or passed over: a bomb costs time even where it is not written."""
        self._unpacked += count
        if self._unpacked > self._cap:
            raise TandemError(
                f"{self.archive}: unpacks to more than {self._cap:,} bytes, too much for text of its size; "
                "check where it came from"
            )
        self._progress(self._stage, min(position, self._size), self._size, "B")

    def pass_over(self, name: str) -> None:
        if len(self.passed_over) <= _LISTED:
            self.passed_over.append(name)

    def refuse_unless_regular(self, name: str, regular: bool) -> None:
        if name in self._found:
            raise TandemError(f"{self.archive}: the member {name} is there twice; get the archive from another source")
        if not regular:
            raise TandemError(
                f"{self.archive}: the member {name} is not a regular file; name the file that it stands for"
            )

    def write(self, name: str, content: _Readable) -> None:
        """Write one member to the disk; it gets its name together with all others."""
        self.at = name
        path = self.members[name]
        file = self._files.enter_context(_whole_member(path))
        while piece := content.read(_PIECE):
            with told_of_disk(path):
                file.write(piece)
        with told_of_disk(path):
            file.flush()
            os.fsync(file.fileno())  # a disk that is full says so here, before any file has its name
        self._found.add(name)
        self.at = ""

    def check_all_found(self) -> None:
        if missing := [name for name in self.members if name not in self._found]:
            there = ", ".join(self.passed_over[:_LISTED]) + (", ..." if len(self.passed_over) > _LISTED else "")
            raise MissingMemberError(
                f"{self.archive}: has no member {', '.join(missing)}; correct the name; there are {there or 'none'}"
            )

    @contextmanager
    def all_or_none(self) -> Iterator[None]:
        """Give all files their names in the end; if anything goes wrong, an interrupt too, leave nothing behind."""
        with self._files:
            yield
        self._progress(self._stage, self._size, self._size, "B")


@contextmanager
def _whole_member(path: Path) -> Iterator[BinaryIO]:
    with told_of_disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            yield file


def _read(archive: Path, writing: _Writing) -> None:
    with archive.open("rb") as stored:
        beginning = stored.read(len(_XZ))
        stored.seek(0)
        if beginning.startswith(_ZIPS):
            _need_names(writing)
            _read_zip(stored, writing)
            return
        plain = _unpacked(stored, beginning)
        head = plain.read(_TAR_BLOCK)
        stored.seek(0)
        counted = _Counted(_unpacked(stored, beginning), stored, writing)
        if _is_tar(head):
            _need_names(writing)
            _read_tar(counted, writing)
        else:
            _read_single(counted, writing)


def _need_names(writing: _Writing) -> None:
    if "" in writing.members:
        raise TandemError(f"{writing.archive}: an archive of files; say which of its members are wanted")


class _Counted:
    """Unpacked bytes, counted as they are read."""

    def __init__(self, content: _Readable, stored: IO[bytes], writing: _Writing) -> None:
        self._content = content
        self._stored = stored
        self._writing = writing

    def read(self, size: int, /) -> bytes:
        piece = self._content.read(size)
        self._writing.unpacked(len(piece), self._stored.tell())
        return piece


def _unpacked(stored: IO[bytes], beginning: bytes) -> _Readable:
    if beginning.startswith(_GZIP):
        return cast(_Readable, gzip.GzipFile(fileobj=stored))
    if beginning.startswith(_BZIP2):
        return cast(_Readable, bz2.BZ2File(stored))
    if beginning.startswith(_XZ):
        return cast(_Readable, lzma.LZMAFile(stored))
    return cast(_Readable, stored)


def _is_tar(head: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(head, tarfile.ENCODING, "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


class _Member(tarfile.TarInfo):
    """A member of an archive whose header is no larger than headers are: it is read into memory as a whole."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        member = super().frombuf(buf, encoding, errors)
        if member.type in _HEADER_TYPES and member.size > _LARGEST_HEADER:
            raise tarfile.ReadError(f"a header of {member.size:,} bytes")
        return member


def _read_tar(content: _Counted, writing: _Writing) -> None:
    # The mode for streams: no member is read twice, and no link can be followed back.
    with tarfile.open(fileobj=cast(IO[bytes], content), mode="r|", bufsize=_PIECE, tarinfo=_Member) as tar:
        for info in tar:
            name = info.name.removeprefix("./")
            if name not in writing.members:
                writing.pass_over(name)
                continue
            writing.refuse_unless_regular(name, info.isreg() and not info.issparse())
            member = tar.extractfile(info)
            assert member is not None, "regular files have content"
            writing.write(name, cast(_Readable, member))
    _read_out(content)


def _read_out(content: _Counted) -> None:
    """Read the rest, at the end of which the checksum is."""
    while content.read(_PIECE):
        pass


def _read_zip(stored: IO[bytes], writing: _Writing) -> None:
    with zipfile.ZipFile(stored) as archive:
        for info in archive.infolist():
            name = info.filename.removeprefix("./")
            if name not in writing.members:
                writing.pass_over(name)
                continue
            kind = stat.S_IFMT(info.external_attr >> 16)
            writing.refuse_unless_regular(name, not info.is_dir() and kind in (0, stat.S_IFREG))
            if info.flag_bits & 1:
                raise TandemError(f"{writing.archive}: the member {name} is encrypted; unpack the archive yourself")
            with archive.open(info) as member:
                writing.write(name, _Counted(cast(_Readable, member), stored, writing))


def _read_single(content: _Counted, writing: _Writing) -> None:
    if named := [name for name in writing.members if name]:
        _read_out(content)  # an archive whose beginning is damaged would look like this, too
        raise TandemError(
            f"{writing.archive}: not an archive of files, so it has no member {', '.join(named)}; "
            "check that it is the right file"
        )
    writing.write("", content)


def _size(archive: Path) -> int:
    try:
        with archive.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise TandemError(f"{archive}: cannot be read ({error.strerror}); check the path") from error
    if not size:
        raise TandemError(f"{archive}: the file is empty; get it again")
    return size
