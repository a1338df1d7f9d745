"""Turns an entry of the catalog into text files on this disk: fetched or given, unpacked once, split in three."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tandem.corpus.catalog import CorpusFile, Entry, PairSource, SplitSource, Text
from tandem.corpus.disk import alone
from tandem.corpus.download import Wanted, fetch, find_fault, take_offline
from tandem.corpus.holdout import Share, Undivided, hold_out
from tandem.corpus.progress import Progress, unwatched
from tandem.corpus.testsets import SacrebleuSet, find_test_set
from tandem.corpus.text import Files
from tandem.corpus.unpack import MissingMemberError, unpack
from tandem.errors import TandemError
from tandem.files import write_whole

# Written last: where it is and fits, the text is whole.
_MARKER = "whole.json"
# Of a SHA-256, in hexadecimal digits: 48 bits tell apart all corpora that one person will ever have.
_DIGEST_DIGITS = 12


@dataclass(frozen=True)
class Obtained:
    """The texts of a corpus, ready to prepare."""

    languages: tuple[str, str]
    train: list[Files]
    dev: Files
    test: Files | None
    origins: Mapping[Path, str]
    """Where each of these texts came from: the file, and its member after a colon if it is an archive."""


def default_cache() -> Path:
    """Where downloads and unpacked texts are kept: $XDG_CACHE_HOME/tandem, or ~/.cache/tandem."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "tandem"


def obtain(
    name: str, entry: Entry, cache: Path, *, offline: Path | None = None, progress: Progress = unwatched
) -> Obtained:
    """The texts of a corpus: as unpacked before, or from its archives, which are fetched or taken from `offline`.

    Archives are kept in `cache`/archives, each in a directory of its checksum or its urls, so that entries share them;
    texts in `cache`/text in a directory of the corpus' name and a digest of what it holds, so that an entry that
    changed never meets the texts of the old one. Once the text is whole, the archives are not needed any more.
    """
    test_sets = {
        split: find_test_set(found.sacrebleu, entry.source, entry.target)
        for split, found in _splits(entry).items()
        if found.sacrebleu
    }
    text = cache / "text" / f"{name}-{_digest(entry, 'source', 'target', 'files', 'train', 'dev', 'test')}"
    downloads = cache / "archives"

    def waiting(over: bool) -> None:
        progress("wait for another process that unpacks the same", int(over), 1 if over else None)

    try:
        archives = {key: _local(key, file, progress) for key, file in entry.files.items() if file.path}
        if offline is not None or not _is_whole(text, _identities(entry, test_sets.values(), archives)):
            archives |= _bring(entry, test_sets.values(), downloads, offline, progress)
            identities = _identities(entry, test_sets.values(), archives)
            text.parent.mkdir(parents=True, exist_ok=True)
            with alone(text.with_name(f"{text.name}.lock"), waiting):
                if not _is_whole(text, identities):
                    with _empty(text):
                        _make(text, entry, test_sets, _Archives(archives, downloads), progress)
                        _mark_whole(text, identities)
    except OSError as error:
        why = f"cannot be used ({error.strerror or error}); check space and permissions, or give another directory"
        raise TandemError(f"{error.filename or cache}: {why} with --cache DIR") from error
    return _obtained(entry, text)


def _obtained(entry: Entry, text: Path) -> Obtained:
    in_place = not _held_out(entry)
    places = {stem: _files(entry, pair if in_place else None, stem, text) for stem, pair in _training(entry)}
    places |= {name: _files(entry, split.texts, name, text) for name, split in _splits(entry).items()}
    origins = _origins(entry)
    return Obtained(
        languages=(entry.source, entry.target),
        train=[places[stem] for stem, _ in _training(entry)],
        dev=places["dev"],
        test=places.get("test"),
        origins={path: name for stem in places for path, name in zip(places[stem], origins[stem], strict=True)},
    )


# Where the text lies, and whether it is whole.


def _folder(what: str) -> str:
    return hashlib.sha256(what.encode()).hexdigest()[:_DIGEST_DIGITS]


def _digest(entry: Entry, *parts: str) -> str:
    content = entry.model_dump_json(include=set(parts))
    return hashlib.sha256(content.encode()).hexdigest()[:_DIGEST_DIGITS]


def _training(entry: Entry) -> Iterator[tuple[str, PairSource]]:
    """The training texts, each with the name of its files."""
    for number, pair in enumerate(entry.train, start=1):
        yield f"train-{number}", pair


def _splits(entry: Entry) -> dict[str, SplitSource]:
    """What to measure with, by the name of its files."""
    return {"dev": entry.dev} | ({"test": entry.test} if entry.test else {})


def _held_out(entry: Entry) -> dict[str, int]:
    """How many pairs each split takes from the training text."""
    return {name: split.held_out for name, split in _splits(entry).items() if split.held_out}


def _origins(entry: Entry) -> dict[str, tuple[str, str]]:
    """Where the texts come from, by the name of their files."""
    names = {stem: _names(entry, pair) for stem, pair in _training(entry)}
    rest = " without held-out pairs" if _held_out(entry) else ""
    origins = {stem: (source + rest, target + rest) for stem, (source, target) in names.items()}
    sources, targets = (", ".join(side) for side in zip(*names.values(), strict=True))
    for name, split in _splits(entry).items():
        if split.texts:
            origins[name] = _names(entry, split.texts)
        elif split.sacrebleu:
            origins[name] = (f"sacrebleu {split.sacrebleu}", f"sacrebleu {split.sacrebleu}")
        else:
            origins[name] = (f"held out of {sources}", f"held out of {targets}")
    return origins


def _names(entry: Entry, pair: PairSource) -> tuple[str, str]:
    """What people know two texts by: the name of the file, and of the member that is meant if it is an archive."""

    def name(text: Text) -> str:
        path = entry.files[text.file].path
        return ":".join(filter(None, (Path(path).name if path else text.file, text.member)))

    return name(pair.source), name(pair.target)


def _files(entry: Entry, pair: PairSource | None, stem: str, directory: Path) -> Files:
    """Where two texts are: text files of the user in their place, all others in our directory."""
    source, target = directory / f"{stem}.{entry.source}", directory / f"{stem}.{entry.target}"
    if pair is None:
        return source, target
    return _in_place(entry, pair.source) or source, _in_place(entry, pair.target) or target


def _in_place(entry: Entry, text: Text) -> Path | None:
    """The file on the user's disk that is this very text, so that nothing needs to be unpacked or checked."""
    path = entry.files[text.file].path
    return None if path is None or text.member or text.bytes or text.sha256 else Path(path)


def _identities(
    entry: Entry, test_sets: Collection[SacrebleuSet], archives: Mapping[str, Path]
) -> dict[str, str | list[int]]:
    """What tells each archive from another of its name: the checksum, or size and time where none is known."""
    checksums = {name: archive.md5 for found in test_sets for name, archive in found.archives.items()}
    checksums |= {name: file.sha256 for name, file in entry.files.items() if file.sha256}
    times = {name: path.stat() for name, path in archives.items()}
    return {name: checksums.get(name) or [time.st_size, time.st_mtime_ns] for name, time in times.items()}


def _is_whole(text: Path, identities: Mapping[str, str | list[int]]) -> bool:
    """Whether the directory holds all texts, made from these archives as far as they are known."""
    try:
        marker = json.loads((text / _MARKER).read_bytes())
        sizes = {name: (text / name).stat().st_size for name in marker["texts"]}
        return bool(sizes == marker["texts"] and identities.items() <= marker["archives"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _mark_whole(text: Path, identities: Mapping[str, str | list[int]]) -> None:
    sizes = {path.name: path.stat().st_size for path in sorted(text.iterdir())}
    marker = {"archives": identities, "texts": sizes}
    write_whole(text / _MARKER, json.dumps(marker, indent=2).encode())


@contextmanager
def _empty(directory: Path) -> Iterator[None]:
    """An empty directory to fill; after a failure nothing of it is left, least of all on a disk that is full."""
    shutil.rmtree(directory, ignore_errors=True)  # what a killed process left
    try:
        directory.mkdir()
        yield
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


# Archives.


@dataclass(frozen=True)
class _Archives:
    """The archives at hand, and the directory of those that were fetched."""

    paths: Mapping[str, Path]
    downloads: Path

    def refuse(self, name: str, why: str) -> TandemError:
        """The error for an archive whose content is wrong; a fetched one is removed, or it would be used again."""
        path = self.paths[name]
        if not path.is_relative_to(self.downloads):
            return TandemError(f"{path}: {why}; put the right file there")
        path.unlink(missing_ok=True)
        return TandemError(f"{name}: {why}; it was removed: try again, or give the right file with --offline DIR")


def _local(name: str, file: CorpusFile, progress: Progress) -> Path:
    """A file that the user's YAML file says is on this disk."""
    path = Path(file.path or "")
    if not path.is_file():
        raise TandemError(f"{path}: no such file; check the path of {name} in the YAML file")
    if fault := find_fault(path, file, name, progress):
        raise TandemError(f"{path}: {fault}; correct the file, or what the YAML file says of {name}")
    return path


def _bring(
    entry: Entry, test_sets: Collection[SacrebleuSet], downloads: Path, offline: Path | None, progress: Progress
) -> dict[str, Path]:
    """All archives that are not on the user's disk by the YAML file's word."""
    kept = {name: path for found in test_sets for name, path in found.kept().items()}
    wanted = [
        Wanted(name, tuple(file.urls), file.bytes, file.sha256, _folder(file.sha256 or " ".join(file.urls)))
        for name, file in entry.files.items()
        if file.urls
    ]
    urls = {name: archive.url for found in test_sets for name, archive in found.archives.items()}
    wanted += [Wanted(name, (url,), folder=_folder(url)) for name, url in urls.items() if name not in kept]
    if not wanted:
        return kept
    return kept | (take_offline(wanted, offline, progress) if offline else fetch(wanted, downloads, progress))


def _make(
    text: Path, entry: Entry, test_sets: Mapping[str, SacrebleuSet], archives: _Archives, progress: Progress
) -> None:
    """Fill the directory with all texts that are not used in place."""
    held_out = _held_out(entry)
    undivided = text / "undivided"
    wanted: list[tuple[Text, Path]] = []
    for stem, pair in _training(entry):
        wanted += _to_unpack(entry, pair, _files(entry, None, stem, undivided if held_out else text), bool(held_out))
    for name, split in _splits(entry).items():
        if split.texts:
            wanted += _to_unpack(entry, split.texts, _files(entry, None, name, text), False)
    for name, test_set in test_sets.items():
        for key, archive in test_set.archives.items():
            if fault := archive.fault(archives.paths[key]):
                raise archives.refuse(key, fault)
        test_set.write(archives.paths, _files(entry, None, name, text), text / "sacrebleu")
    _unpack_all(entry, wanted, archives, progress)
    if held_out:
        training = [
            Undivided(_files(entry, None, stem, undivided), _names(entry, pair), _files(entry, None, stem, text))
            for stem, pair in _training(entry)
        ]
        shares = {name: Share(pairs, _files(entry, None, name, text)) for name, pairs in held_out.items()}
        hold_out(training, shares, progress)
        shutil.rmtree(undivided)


def _to_unpack(entry: Entry, pair: PairSource, files: Files, divided: bool) -> Iterator[tuple[Text, Path]]:
    """The texts that cannot be used where they are, because they are packed, unchecked or about to be divided."""
    for text, path in zip((pair.source, pair.target), files, strict=True):
        if divided or _in_place(entry, text) is None:
            yield text, path


def _unpack_all(entry: Entry, wanted: Sequence[tuple[Text, Path]], archives: _Archives, progress: Progress) -> None:
    """Unpack each archive once, and check the texts that something is known of."""
    for name in dict.fromkeys(text.file for text, _ in wanted):
        texts = [(text, path) for text, path in wanted if text.file == name]
        try:
            unpack(archives.paths[name], {text.member: path for text, path in texts}, progress)
        except MissingMemberError:
            raise  # the description asks for what there is not
        except TandemError as error:
            # A full disk is no fault of the archive, and one with the right checksum has none.
            of_the_disk = isinstance(error.__cause__, OSError) and error.__cause__.errno is not None
            if of_the_disk or entry.files[name].sha256:
                raise
            raise archives.refuse(name, f"does not hold what it should ({error})") from error
        for text, path in texts:
            known = text.bytes or text.sha256
            if known and (fault := find_fault(path, text, path.name, progress)):
                raise archives.refuse(name, f"{text.member or 'the text in it'} {fault}")
