"""Turns an entry of the catalog into text files on this disk: fetched or given, unpacked once, split in three."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tandem.corpus.fetch.catalog import CatalogEntry, PairSource, TextSource, find_corpus
from tandem.corpus.fetch.download import RemoteFile, fetch, find_fault, find_offline
from tandem.corpus.fetch.holdout import HeldOut, UndividedText, hold_out
from tandem.corpus.fetch.test_sets import SacrebleuSet
from tandem.corpus.fetch.unpack import MissingMemberError, unpack
from tandem.corpus.progress import ProgressCallback, no_progress
from tandem.corpus.text_files import CorpusTexts, FilePair, check_dev_set
from tandem.errors import TandemError
from tandem.storage import waiting_lock, write_whole

# Written last: where it is and fits, the text is whole.
_MARKER = "whole.json"
# In hexadecimal digits: 48 bits tell apart all corpora that one person will ever have.
_DIGEST_DIGITS = 12


def default_cache() -> Path:
    """Where downloads and unpacked texts are kept: $XDG_CACHE_HOME/tandem, or ~/.cache/tandem."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "tandem"


def select_texts(
    train: Sequence[FilePair] = (),
    dev: FilePair | None = None,
    test: FilePair | None = None,
    languages: tuple[str, str] | None = None,
    dev_sets: Mapping[str, FilePair] | None = None,
    *,
    known: str | None = None,
    cache: Path | None = None,
    offline: Path | None = None,
    progress: ProgressCallback = no_progress,
) -> CorpusTexts:
    """The text files that the user names, or those of a known corpus, fetched if they are not here.

    Dev sets of the user's own may stand beside those of a known corpus.
    """
    more = dict(dev_sets or {})
    if known is None:
        if offline or cache:
            raise TandemError("--offline and --cache are for a known corpus; name it with --from")
        if not train or dev is None:
            missing = "--train" if not train else "--dev"
            raise TandemError(f"{missing} is missing; give --train and --dev, or a known corpus with --from")
        return CorpusTexts(train, dev, test, languages, dev_sets=more)
    if train or dev or test or languages:
        raise TandemError("--from: the corpus has its own texts; leave out --train, --dev, --test and --languages")
    name, entry = find_corpus(known)
    if taken := [each for each in more if each in entry.dev_sets]:
        raise TandemError(f"--dev-set {taken[0]}: {name} has a dev set of that name; give yours another")
    for each in more:
        check_dev_set(each)  # before a corpus of gigabytes is fetched
    texts = fetch_corpus(name, entry, cache or default_cache(), offline=offline, progress=progress)
    return replace(texts, dev_sets={**texts.dev_sets, **more})


def fetch_corpus(
    name: str,
    entry: CatalogEntry,
    cache: Path,
    *,
    offline: Path | None = None,
    progress: ProgressCallback = no_progress,
) -> CorpusTexts:
    """The texts of a corpus: as unpacked before, or from its archives, which are fetched or taken from `offline`.

    Archives are kept in `cache`/archives, each in a directory of its checksum or its urls, so that entries share them;
    texts in `cache`/text in a directory of the corpus' name and a digest of what it holds, so that an entry that
    changed never meets the texts of the old one. Once the text is whole, the archives are not needed any more.
    """
    corpus = _KnownCorpus(name, entry, cache, progress)
    try:
        corpus.make(offline)
    except OSError as error:
        why = f"cannot be used ({error.strerror or error}); check space and permissions, or give another directory"
        raise TandemError(f"{error.filename or cache}: {why} with --cache DIR") from error
    return corpus.texts()


class _KnownCorpus:
    """An entry of the catalog with its places on this disk."""

    def __init__(self, name: str, entry: CatalogEntry, cache: Path, progress: ProgressCallback) -> None:
        self._name, self._entry, self._progress = name, entry, progress
        self._train = {f"train-{number}": pair for number, pair in enumerate(entry.train, start=1)}
        self._splits = entry.held_apart
        self._pairs = self._train | {stem: split.texts for stem, split in self._splits.items() if split.texts}
        self._held_out = {stem: split.held_out for stem, split in self._splits.items() if split.held_out}
        self._test_sets = {
            stem: SacrebleuSet(split.sacrebleu, entry.source, entry.target)
            for stem, split in self._splits.items()
            if split.sacrebleu
        }
        self._set_archives = {key: file for found in self._test_sets.values() for key, file in found.archives.items()}
        parts = {"source", "target", "files", "train", "dev", "test"}
        # Left out where there are none: the texts of older versions are still found.
        content = entry.model_dump_json(include=parts | ({"dev_sets"} if entry.dev_sets else set()))
        self._directory = cache / "text" / f"{name}-{_digest(content)}"
        self._downloads = cache / "archives"
        self._archives: dict[str, Path] = {}

    def make(self, offline: Path | None) -> None:
        """Unpack all texts, unless that was done before from the same archives."""
        self._archives = {key: self._local(key) for key, file in self._entry.files.items() if file.path}
        if offline is None and self._is_whole():
            return
        self._archives |= self._obtain_archives(offline)
        self._directory.parent.mkdir(parents=True, exist_ok=True)

        def waiting(over: bool) -> None:
            self._progress("wait for another process that unpacks the same", int(over), 1 if over else None)

        with waiting_lock(self._directory.with_name(f"{self._directory.name}.lock"), waiting):
            if not self._is_whole():
                with _filled(self._directory):
                    self._write_texts()
                    sizes = {path.name: path.stat().st_size for path in sorted(self._directory.iterdir())}
                    marker = {"archives": self._archive_ids(), "texts": sizes}
                    write_whole(self._directory / _MARKER, json.dumps(marker, indent=2).encode())

    def texts(self) -> CorpusTexts:
        """The files of each split, and where they came from."""
        places = {stem: self._places(stem) for stem in (*self._train, *self._splits)}
        origins = {stem: self._names(pair) for stem, pair in self._pairs.items()}
        training = [*zip(*(origins[stem] for stem in self._train), strict=True)]
        for stem, split in self._splits.items():
            if split.sacrebleu:
                origins[stem] = [f"sacrebleu {split.sacrebleu}"] * 2
            elif split.held_out:
                origins[stem] = [f"held out of {', '.join(side)}" for side in training]
        if self._held_out:
            origins |= {stem: [f"{name} without held-out pairs" for name in origins[stem]] for stem in self._train}
        return CorpusTexts(
            train=[places[stem] for stem in self._train],
            dev=places["dev"],
            test=places.get("test"),
            dev_sets={name: places[name] for name in self._entry.dev_sets},
            languages=(self._entry.source, self._entry.target),
            origin=self._name,
            origins={path: origin for stem in places for path, origin in zip(places[stem], origins[stem], strict=True)},
        )

    def _names(self, pair: PairSource) -> list[str]:
        """What people know two texts by: the name of the file, and of the member that is meant if it is an archive."""
        files = [Path(self._entry.files[text.file].path or text.file).name for text in pair.sides]
        return [f"{file}:{text.member}" if text.member else file for file, text in zip(files, pair.sides, strict=True)]

    def _files(self, stem: str, *, undivided: bool = False) -> FilePair:
        """Where we put the two texts of a stem; training text from which pairs are held out is unpacked elsewhere."""
        directory = self._directory / "undivided" if undivided else self._directory
        return directory / f"{stem}.{self._entry.source}", directory / f"{stem}.{self._entry.target}"

    def _is_divided(self, stem: str) -> bool:
        """Whether pairs of a text are held out."""
        return bool(self._held_out) and stem in self._train

    def _places(self, stem: str) -> FilePair:
        """Where two texts are: text files of the user in their place, all others in our directory."""
        source, target = self._files(stem)
        if self._is_divided(stem) or stem not in self._pairs:
            return source, target
        pair = self._pairs[stem]
        return self._in_place(pair.source) or source, self._in_place(pair.target) or target

    def _in_place(self, text: TextSource) -> Path | None:
        """The file on the user's disk that is this very text, so that nothing needs to be unpacked or checked."""
        path = self._entry.files[text.file].path
        return None if path is None or text.member or text.bytes or text.sha256 else Path(path)

    def _archive_ids(self) -> dict[str, str | list[int]]:
        """What tells each archive from another of its name: the checksum, or size and time where none is known."""
        checksums = {name: archive.md5 for name, archive in self._set_archives.items()}
        checksums |= {name: file.sha256 for name, file in self._entry.files.items() if file.sha256}
        states = {name: path.stat() for name, path in self._archives.items()}
        return {name: checksums.get(name) or [state.st_size, state.st_mtime_ns] for name, state in states.items()}

    def _is_whole(self) -> bool:
        """Whether our directory holds all texts, made from these archives as far as they are known."""
        try:
            marker = json.loads((self._directory / _MARKER).read_bytes())
            sizes = {name: (self._directory / name).stat().st_size for name in marker["texts"]}
            return bool(sizes == marker["texts"] and self._archive_ids().items() <= marker["archives"].items())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False

    def _local(self, name: str) -> Path:
        """A file that the user's YAML file says is on this disk."""
        file = self._entry.files[name]
        path = Path(file.path or "")
        if not path.is_file():
            raise TandemError(f"{path}: no such file; check the path of {name} in the YAML file")
        if fault := find_fault(path, file.bytes, file.sha256, name, self._progress):
            raise TandemError(f"{path}: {fault}; correct the file, or what the YAML file says of {name}")
        return path

    def _obtain_archives(self, offline: Path | None) -> dict[str, Path]:
        """All archives that are not on the user's disk by the YAML file's word."""
        kept = {name: path for found in self._test_sets.values() for name, path in found.kept().items()}
        wanted = [
            RemoteFile(name, tuple(file.urls), file.bytes, file.sha256, _digest(file.sha256 or " ".join(file.urls)))
            for name, file in self._entry.files.items()
            if file.urls
        ]
        wanted += [
            RemoteFile(name, (archive.url,), folder=_digest(archive.url))
            for name, archive in self._set_archives.items()
            if name not in kept
        ]
        if not wanted:
            return kept
        if offline:
            return kept | find_offline(wanted, offline, self._progress)
        return kept | fetch(wanted, self._downloads, self._progress)

    def _write_texts(self) -> None:
        """Fill our directory with all texts that are not used in place."""
        for stem, test_set in self._test_sets.items():
            for name, archive in test_set.archives.items():
                if fault := archive.fault(self._archives[name]):
                    raise self._refused(name, fault)
            test_set.write(self._archives, self._files(stem), self._directory / "sacrebleu")
        # Texts cannot be used where they are if they are packed, unchecked or about to be divided.
        wanted = [
            (text, path)
            for stem, pair in self._pairs.items()
            for text, path in zip(pair.sides, self._files(stem, undivided=self._is_divided(stem)), strict=True)
            if self._is_divided(stem) or self._in_place(text) is None
        ]
        for name in dict.fromkeys(text.file for text, _ in wanted):
            self._unpack(name, [(text, path) for text, path in wanted if text.file == name])
        if self._held_out:
            training = [
                UndividedText(self._files(stem, undivided=True), self._names(pair), self._files(stem))
                for stem, pair in self._train.items()
            ]
            shares = {stem: HeldOut(count, self._files(stem)) for stem, count in self._held_out.items()}
            hold_out(training, shares, self._progress)
            shutil.rmtree(self._directory / "undivided")

    def _unpack(self, name: str, texts: Sequence[tuple[TextSource, Path]]) -> None:
        """Unpack an archive, and check the texts that something is known of."""
        try:
            unpack(self._archives[name], {text.member: path for text, path in texts}, self._progress)
        except MissingMemberError:
            raise  # the description asks for what there is not
        except TandemError as error:
            # A full disk is no fault of the archive, and one with the right checksum has none.
            of_the_disk = isinstance(error.__cause__, OSError) and error.__cause__.errno is not None
            if of_the_disk or self._entry.files[name].sha256:
                raise
            raise self._refused(name, f"does not hold what it should ({error})") from error
        for text, path in texts:
            known = text.bytes or text.sha256
            if known and (fault := find_fault(path, text.bytes, text.sha256, path.name, self._progress)):
                raise self._refused(name, f"{text.member or 'the text in it'} {fault}")

    def _refused(self, name: str, why: str) -> TandemError:
        """The error for an archive whose content is wrong; a fetched one is removed, or it would be used again."""
        path = self._archives[name]
        if not path.is_relative_to(self._downloads):
            return TandemError(f"{path}: {why}; put the right file there")
        path.unlink(missing_ok=True)
        return TandemError(f"{name}: {why}; it was removed: try again, or give the right file with --offline DIR")


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()[:_DIGEST_DIGITS]


@contextmanager
def _filled(directory: Path) -> Iterator[None]:
    """An empty directory to fill; after a failure nothing of it is left, least of all on a disk that is full."""
    shutil.rmtree(directory, ignore_errors=True)  # what a killed process left
    try:
        directory.mkdir()
        yield
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
