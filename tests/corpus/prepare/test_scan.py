"""Reading files through: what ends a line, what is stripped, what is counted, where chunks begin."""

from __future__ import annotations

import gzip
import hashlib
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.corpus.prepare import scan as module
from tandem.corpus.prepare.scan import ScannedPair, ScannedText, Split, all_lines, pairs_at, scan
from tandem.corpus.text_files import LONGEST_LINE
from tandem.errors import TandemError


def scanned(path: Path) -> ScannedText:
    return scan(path, path.with_name("unpacked"), lambda count: None)


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"\n\na\n", [b"", b"", b"a"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\rb\n", [b"a\rb"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", [b"a", b"\xef\xbb\xbfb"]),
        ("a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\0h\n".encode(), ["a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\0h".encode()]),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_only_a_newline_ends_a_line(tmp_path: Path, content: bytes, lines: list[bytes], packed: bool) -> None:
    stored = gzip.compress(content) if packed else content
    path = tmp_path / ("text.en.gz" if packed else "text.en")
    path.write_bytes(stored)
    text = scanned(path)
    assert list(all_lines(text)) == lines
    assert (text.lines, text.text_bytes) == (len(lines), len(content))
    assert (text.bytes, text.sha256) == (len(stored), hashlib.sha256(stored).hexdigest())
    assert text.path == (tmp_path / "unpacked" if packed else path.resolve())


def test_a_pipe_is_read_only_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.en"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"a\nb\n",))
    writer.start()
    text = scanned(pipe)
    writer.join()
    assert list(all_lines(text)) == [b"a", b"b"]


def test_files_of_many_gzip_members_are_read_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"a\n") + gzip.compress(b"b\n"))
    assert list(all_lines(scanned(path))) == [b"a", b"b"]


def test_damage_inside_a_gzip_file_is_told_from_a_wrong_name(tmp_path: Path) -> None:
    path = tmp_path / "text.gz"
    packed = bytearray(gzip.compress(b"hello\n" * 100))
    packed[-6] ^= 0xFF  # the checksum
    path.write_bytes(packed)
    with pytest.raises(TandemError, match=r"text\.gz: the gzip file is damaged after line 100 .*again"):
        scanned(path)
    assert not (tmp_path / "unpacked").exists()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
@pytest.mark.parametrize(("extra", "expected"), [(0, LONGEST_LINE), (1, None), (3 * LONGEST_LINE, None)])
def test_a_line_that_is_too_long_is_passed_over_as_one(
    tmp_path: Path, end: bytes, extra: int, expected: int | None
) -> None:
    path = tmp_path / "text.en"
    path.write_bytes(b"before\n" + b"x" * (LONGEST_LINE + extra) + end + (b"after\n" if end else b""))
    before, long, *after = all_lines(scanned(path))
    assert before == b"before"
    assert (None if long is None else len(long)) == expected
    assert after == ([b"after"] if end else [])


@given(
    lines=st.lists(st.binary(max_size=5).map(lambda line: line.replace(b"\n", b"")), min_size=1, max_size=40),
    chunk_lines=st.integers(1, 9),
    block=st.integers(2, 20),
    ended=st.booleans(),
)
def test_chunks_are_the_lines_in_stretches(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], chunk_lines: int, block: int, ended: bool
) -> None:
    path = tmp_path_factory.mktemp("chunks") / "text.en"
    # A first byte, so that no line looks like a byte-order mark or a Windows line end.
    lines = [b"." + line + b"." for line in lines]
    path.write_bytes(b"\n".join(lines) + b"\n" * ended)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_LINES", chunk_lines)
        patch.setattr(module, "_BLOCK", block)
        text = scanned(path)
        pair = ScannedPair(text, text)
        assert list(all_lines(text)) == lines
        assert text.lines == len(lines)
        assert pair.chunks == len(text.starts) - 1 == -(-len(lines) // chunk_lines)
        some = range(0, len(lines), 3)
        assert pairs_at(pair, some) == [(lines[number], lines[number]) for number in some]
        split = Split("dev", [pair, pair])
        assert [here for chunk in split.chunks for here, _ in chunk.raw_pairs()] == lines * 2
        assert [len(numbers) for _, numbers in split.by_pair(split.chunks)] == [pair.chunks] * 2
