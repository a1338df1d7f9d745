"""Archives of every kind, honest, damaged and hostile: the members that were asked for, whole, or nothing."""

from __future__ import annotations

import bz2
import gzip
import lzma
import stat
import tarfile
from pathlib import Path

import pytest

from tandem.corpus.fetch.unpack import CAP, unpack
from tandem.errors import TandemError
from tests.corpus.fetch.archives import tarred, zipped
from tests.disks import small_disk

EN, DE = "training/a.de-en.en", "training/a.de-en.de"
FILES = {
    EN: b"".join(b"Sentence %d of the English side.\n" % line for line in range(20_000)),
    "training/other.fr": b"Autre chose.\n",
    DE: b"".join(b"Satz %d der deutschen Seite.\n" % line for line in range(20_000)),
}


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    return info


KINDS = {
    "tar": tarred(FILES),
    "tar.gz": gzip.compress(tarred(FILES)),
    "tar.bz2": bz2.compress(tarred(FILES)),
    "tar.xz": lzma.compress(tarred(FILES)),
    "zip": zipped(FILES),
    "tar of ./": tarred({f"./{name}": content for name, content in FILES.items()}),
}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"  # no ending: the content tells what it is


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return tmp_path / "text"


def refusal(archive: Path, members: dict[str, Path], cap: int = CAP) -> str:
    """The error, after which nothing is left behind."""
    with pytest.raises(TandemError) as caught:
        unpack(archive, members, cap=cap)
    for path in members.values():
        assert not path.parent.exists() or not list(path.parent.iterdir())
    assert str(caught.value).startswith(f"{archive}: ")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_members_become_files(kind: str, archive: Path, text: Path) -> None:
    archive.write_bytes(KINDS[kind])
    heard: list[tuple[str, int, int | None, str]] = []

    def hear(stage: str, done: int, total: int | None, unit: str = "") -> None:
        heard.append((stage, done, total, unit))

    unpack(archive, {EN: text / "train.en", DE: text / "deep" / "train.de"}, hear)
    assert (text / "train.en").read_bytes() == FILES[EN]
    assert (text / "deep" / "train.de").read_bytes() == FILES[DE]
    assert {path.name for path in text.rglob("*")} == {"deep", "train.en", "train.de"}
    size = len(KINDS[kind])
    assert heard[-1] == ("unpack archive", size, size, "B")
    assert [done for _, done, _, _ in heard] == sorted(done for _, done, _, _ in heard)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_a_single_file_has_one_member_without_a_name(pack: type[bytes], archive: Path, text: Path) -> None:
    archive.write_bytes(pack(FILES[EN]))
    unpack(archive, {"": text / "train.en"})
    assert (text / "train.en").read_bytes() == FILES[EN]
    assert f"not an archive of files, so it has no member {DE}" in refusal(archive, {DE: text / "new" / "train.de"})


def test_several_gzip_streams_in_a_row_are_one_file(archive: Path, text: Path) -> None:
    archive.write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    unpack(archive, {"": text / "a"})
    assert (text / "a").read_bytes() == b"one\ntwo\n"


def test_what_was_there_is_replaced(archive: Path, text: Path) -> None:
    text.mkdir()
    (text / "a").write_bytes(b"old")
    (text / ".a.writing").write_bytes(b"left by a killed process, and longer than what comes now")
    archive.write_bytes(b"new")
    unpack(archive, {"": text / "a"})
    assert [(path.name, path.read_bytes()) for path in text.iterdir()] == [("a", b"new")]


def test_a_dot_before_a_name_means_nothing(archive: Path, text: Path) -> None:
    archive.write_bytes(KINDS["tar.gz"])
    unpack(archive, {f"./{EN}": text / "train.en"})
    assert (text / "train.en").read_bytes() == FILES[EN]


def test_a_header_that_would_fill_the_memory_is_refused(archive: Path, text: Path) -> None:
    with tarfile.open(archive, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo(EN)
        info.pax_headers = {"comment": "x" * (2 << 20)}
        tar.addfile(info)
    assert "a header of 2,0" in refusal(archive, {EN: text / "a"})


@pytest.mark.parametrize("kind", KINDS)
def test_a_member_that_is_missing_is_named(kind: str, archive: Path, text: Path) -> None:
    archive.write_bytes(KINDS[kind])
    message = refusal(archive, {EN: text / "a", "training/a.de-en.cs": text / "b"})
    assert f"has no member training/a.de-en.cs; correct the name; there are training/other.fr, {DE}" in message
    assert "say which of its members" in refusal(archive, {"": text / "a"})


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "tar.bz2", "tar.xz", "zip"])
@pytest.mark.parametrize("part", [0.3, 0.97])
def test_an_archive_cut_short_is_named(kind: str, part: float, archive: Path, text: Path) -> None:
    packed = KINDS[kind]
    archive.write_bytes(packed[: int(part * len(packed))])
    message = refusal(archive, {EN: text / "a", DE: text / "b"})
    assert "damaged or cut short" in message
    assert message.endswith("get the file again")


@pytest.mark.parametrize("kind", ["tar.gz", "tar.bz2", "tar.xz", "zip"])
@pytest.mark.parametrize("part", [0.2, 0.6])
def test_a_damaged_archive_is_named(kind: str, part: float, archive: Path, text: Path) -> None:
    packed = bytearray(KINDS[kind])
    packed[int(part * len(packed))] ^= 0xFF
    archive.write_bytes(packed)
    assert "damaged or cut short" in refusal(archive, {EN: text / "a", DE: text / "b"})


def test_damage_behind_the_last_wanted_member_is_found(archive: Path, text: Path) -> None:
    packed = bytearray(gzip.compress(tarred({EN: b"text\n"})))
    packed[-5] ^= 0xFF  # in the checksum
    archive.write_bytes(packed)
    assert "damaged or cut short" in refusal(archive, {EN: text / "a"})


@pytest.mark.parametrize("content", [b"", None])
def test_an_archive_that_is_empty_or_not_there(content: bytes | None, archive: Path, text: Path) -> None:
    if content is not None:
        archive.write_bytes(content)
    message = refusal(archive, {"": text / "a"})
    assert ("No such file" if content is None else "the file is empty") in message


@pytest.mark.parametrize(
    "entry",
    [
        special("x", tarfile.SYMTYPE, "/etc/passwd"),
        special("x", tarfile.LNKTYPE, EN),
        special("x", tarfile.CHRTYPE),
        special("x", tarfile.FIFOTYPE),
        special("x", tarfile.DIRTYPE),
        special("x", tarfile.GNUTYPE_SPARSE),
    ],
)
def test_only_regular_files_of_a_tar_are_taken(entry: tarfile.TarInfo, archive: Path, text: Path) -> None:
    archive.write_bytes(tarred(FILES, entry))
    assert "the member x is not a regular file" in refusal(archive, {"x": text / "a", EN: text / "b"})
    unpack(archive, {EN: text / "b"})  # what nobody asked for does no harm


@pytest.mark.parametrize("mode", [stat.S_IFLNK | 0o777, stat.S_IFIFO | 0o600, stat.S_IFDIR | 0o700])
def test_only_regular_files_of_a_zip_are_taken(mode: int, archive: Path, text: Path) -> None:
    archive.write_bytes(zipped({"x": b"/etc/passwd"}, mode))
    assert "the member x is not a regular file" in refusal(archive, {"x": text / "a"})


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x"])
def test_a_name_outside_the_archive_is_refused_and_otherwise_without_effect(
    name: str, archive: Path, text: Path, tmp_path: Path
) -> None:
    archive.write_bytes(tarred({name: b"evil\n", EN: b"good\n"}))
    assert "would lie outside" in refusal(archive, {name: text / "a"})
    unpack(archive, {EN: text / "a"})
    assert {path.name for path in tmp_path.rglob("*")} == {"archive", "text", "a"}


def test_a_member_that_is_there_twice_is_refused(archive: Path, text: Path) -> None:
    archive.write_bytes(tarred({EN: b"one\n", f"./{EN}": b"two\n"}))
    assert "is there twice" in refusal(archive, {EN: text / "a"})
    archive.write_bytes(zipped({EN: b"one\n", f"./{EN}": b"two\n"}))
    assert "is there twice" in refusal(archive, {EN: text / "a"})


def test_an_encrypted_member_is_refused(archive: Path, text: Path) -> None:
    packed = bytearray(zipped({"x": b"secret\n"}))
    for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        packed[packed.index(header) + flags] |= 1
    archive.write_bytes(packed)
    assert "is encrypted" in refusal(archive, {"x": text / "a"})


@pytest.mark.parametrize("packed", [KINDS["tar.gz"], KINDS["zip"], gzip.compress(FILES[EN])], ids=["tar", "zip", "one"])
def test_no_more_than_the_cap_is_unpacked(packed: bytes, archive: Path, text: Path) -> None:
    archive.write_bytes(packed)
    name = "" if packed[:2] == b"\x1f\x8b" and packed != KINDS["tar.gz"] else EN
    assert "unpacks to more than 300,000 bytes" in refusal(archive, {name: text / "a"}, cap=300_000)


@pytest.mark.slow
@pytest.mark.parametrize("wants_it", [True, False])
def test_a_bomb_is_refused_while_it_goes_off(wants_it: bool, archive: Path, text: Path) -> None:
    # 80 MB of nothing in 80 kB, wanted or passed over on the way to another member.
    bomb = bytes(80 << 20)
    archive.write_bytes(gzip.compress(bomb if wants_it else tarred({"bomb": bomb, EN: b"text\n"})))
    largest = 0

    def watch(stage: str, done: int, total: int | None, unit: str = "") -> None:
        nonlocal largest
        largest = max([largest, *(path.stat().st_size for path in text.glob(".*"))])

    name = "" if wants_it else EN
    with pytest.raises(TandemError, match="unpacks to more than 67,108,864 bytes"):
        unpack(archive, {name: text / "a"}, watch)
    assert largest <= 64 << 20
    assert list(text.glob("*")) == []


def test_an_interrupt_leaves_nothing(archive: Path, text: Path) -> None:
    archive.write_bytes(KINDS["tar"])

    def interrupt(stage: str, done: int, total: int | None, unit: str = "") -> None:
        if done > len(KINDS["tar"]) // 2:
            assert list(text.iterdir())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unpack(archive, {EN: text / "a", DE: text / "b"}, interrupt)
    assert list(text.iterdir()) == []


def test_a_full_disk_is_named_and_left_empty(archive: Path, tmp_path: Path) -> None:
    archive.write_bytes(KINDS["tar.gz"])
    with small_disk(tmp_path / "disk", "700k") as disk:
        with pytest.raises(TandemError, match=r"b: cannot be written \(the disk is full\); make room"):
            unpack(archive, {EN: disk / "a", DE: disk / "b"})
        assert list(disk.iterdir()) == []
