"""Files and streams, line by line: order, packing, progress, memory."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import os
import sys
from pathlib import Path

import pytest

from tandem.errors import TandemError
from tandem.translation.line_streams import output_file, translate_lines
from tandem.translation.translator import LINES_AT_ONCE, Translator

TEXT = "I see a cat.\n\n   \nThe dog sleeps.\r\nWhy?"
LINES = ["I see a cat.", "", "   ", "The dog sleeps.", "Why?"]


@pytest.fixture(scope="module")
def translator(trained: Path) -> Translator:
    return Translator.load(trained)


class Seen(list[tuple[int, int | None, str]]):
    """A progress callback that remembers."""

    def __call__(self, stage: str, done: int, total: int | None, unit: str = "") -> None:
        assert stage == "translate"
        self.append((done, total, unit))


@pytest.mark.parametrize("packed", [False, True])
def test_a_file(translator: Translator, tmp_path: Path, packed: bool) -> None:
    path = tmp_path / ("text.gz" if packed else "text")
    path.write_bytes(gzip.compress(TEXT.encode()) if packed else b"\xef\xbb\xbf" + TEXT.encode())
    progress = Seen()
    found = list(translate_lines(translator, path, progress))
    assert [source for source, _ in found] == LINES
    assert [translation for _, translation in found] == translator.translate(LINES)
    assert progress == [*((done, None if packed else 5, "lines") for done in range(1, 6)), (5, 5, "lines")]


def test_standard_input(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    progress = Seen()
    assert [source for source, _ in translate_lines(translator, None, progress)] == LINES
    assert progress[0] == (1, None, "lines")
    assert progress[-1] == (5, 5, "lines")


def test_an_endless_stream_is_translated_as_it_comes(translator: Translator) -> None:
    read = itertools.count()
    endless = (f"I see {next(read)} cats." for _ in itertools.repeat(None))
    stream = translator.translate_stream(endless, at_once=8)
    assert [next(stream)[0] for _ in range(20)][-1] == "I see 19 cats."
    assert next(read) == 24, "no more than one portion is read ahead"


def test_long_lines_make_small_portions(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandem.translation.translator.CHARACTERS_AT_ONCE", 100)
    read = itertools.count()
    endless = (f"{next(read)} " + "x" * 99 for _ in itertools.repeat(None))
    next(translator.translate_stream(endless, LINES_AT_ONCE))
    assert next(read) == 1


def test_a_line_longer_than_the_model_knows_is_translated_in_parts(translator: Translator) -> None:
    sentence = "The old man reads a book."
    longest = translator.engine.longest_source
    assert len(translator.tokenizer.encode([" ".join([sentence] * 40)])[0]) > longest
    [alone, together] = translator.translate([sentence, " ".join([sentence] * 40)])
    assert together == " ".join([alone] * 40)
    assert all(translator.fits(part.text) for part in translator.segments("x" * 5000))


def test_a_translation_stays_on_its_line(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(translator.tokenizer, "decode", lambda ids: ["two\nlines" for _ in ids])
    (tmp_path / "text").write_text("I see a cat.\n")
    assert list(translate_lines(translator, tmp_path / "text", Seen())) == [("I see a cat.", "two lines")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("text", b"fine\ncaf\xe9\n", r"text:2: not UTF-8 \(byte 4 of the line is 0xe9\)"),
        ("text", b"\xff\xfea\x00", r"text: not UTF-8 but UTF-16LE"),
        ("text", gzip.compress(b"fine", mtime=0), r"text: this is a gzip file; rename it to text\.gz"),
        ("text.gz", gzip.compress(b"fine\n" * 99, mtime=0)[:-9], r"text\.gz: cannot be read"),
        ("text.gz", b"fine\n", r"text\.gz: cannot be read"),
    ],
)
def test_files_that_cannot_be_read(
    translator: Translator, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TandemError, match=message):
        list(translate_lines(translator, tmp_path / name, Seen()))


def test_output_appears_when_it_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with contextlib.suppress(KeyboardInterrupt), output_file(out) as file:
        file.write(b"half\n")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with output_file(out) as file:
        file.write(b"whole\n")
    assert out.read_bytes() == b"whole\n"
    with pytest.raises(TandemError, match="cannot be written"):
        output_file(tmp_path / "nowhere" / "out").__enter__()


def test_output_goes_through_links_and_into_pipes_without_replacing_them(tmp_path: Path) -> None:
    disk, link = tmp_path / "disk", tmp_path / "link"
    disk.mkdir()
    link.symlink_to(disk / "out")
    with output_file(link) as file:
        file.write(b"whole\n")
    assert link.is_symlink()
    assert (disk / "out").read_bytes() == b"whole\n"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with output_file(pipe) as file:
        file.write(b"whole\n")
    assert os.read(reader, 99) == b"whole\n"
    os.close(reader)
    assert pipe.is_fifo()
    with pytest.raises(TandemError, match="cannot be written"):
        output_file(tmp_path).__enter__()
