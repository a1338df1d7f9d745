"""Reading lines: what ends a line, what is stripped, what is counted."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest

from tandem.corpus.text import TextFile, read_parallel
from tandem.errors import TandemError


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"\n\na\n", ["", "", "a"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (
            "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei\0j\n".encode(),
            ["a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei\0j"],
        ),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_only_a_newline_ends_a_line(tmp_path: Path, content: bytes, lines: list[str], packed: bool) -> None:
    stored = gzip.compress(content) if packed else content
    path = tmp_path / ("text.en.gz" if packed else "text.en")
    path.write_bytes(stored)
    text = TextFile(path)
    assert list(text) == lines
    assert (text.lines, text.bytes) == (len(lines), len(content))
    assert (text.file_bytes, text.sha256) == (len(stored), hashlib.sha256(stored).hexdigest())
    assert text.progress() == (len(stored), len(stored))
    assert list(text) == lines
    assert text.lines == len(lines)


def test_files_of_many_gzip_members_are_read_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"a\n") + gzip.compress(b"b\n"))
    assert list(TextFile(path)) == ["a", "b"]


def test_lines_longer_than_any_buffer_stay_whole(tmp_path: Path) -> None:
    path = tmp_path / "text.en"
    path.write_text("x" * 3_000_000 + "\ny\n")
    assert [len(line) for line in TextFile(path)] == [3_000_000, 1]


def test_reading_together_names_both_counts(tmp_path: Path) -> None:
    one, two = tmp_path / "a.en", tmp_path / "a.de"
    one.write_text("1\n2\n3\n")
    two.write_text("1\n2\n")
    for source, target in ((one, two), (two, one)):
        reader = read_parallel(TextFile(source), TextFile(target))
        assert [next(reader), next(reader)] == [("1", "1"), ("2", "2")]
        with pytest.raises(TandemError, match=r"a\.\w\w has \d lines but .*a\.\w\w has \d;.*check after line 2"):
            next(reader)


def test_damage_inside_a_gzip_file_is_told_from_a_wrong_name(tmp_path: Path) -> None:
    path = tmp_path / "text.gz"
    packed = bytearray(gzip.compress(b"hello\n" * 100))
    packed[-6] ^= 0xFF  # the checksum
    path.write_bytes(packed)
    with pytest.raises(TandemError, match=r"text\.gz: the gzip file is damaged after line 100 .*again"):
        list(TextFile(path))
