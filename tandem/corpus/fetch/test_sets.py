"""Test sets that sacreBLEU knows, as text files: it says where their archives are, and reads them."""

from __future__ import annotations

import copy
import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.corpus.text_files import FilePair
from tandem.errors import TandemError
from tandem.storage import is_full, write_whole


@dataclass(frozen=True)
class SetArchive:
    """Where an archive of a test set is, and its checksum."""

    url: str
    md5: str

    def fault(self, path: Path) -> str | None:
        """What is wrong with a file that should be this archive."""
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "md5").hexdigest()
        return None if found == self.md5 else f"has the MD5 {found}, not {self.md5}, which sacreBLEU knows"


class SacrebleuSet:
    """A test set from one language into another."""

    def __init__(self, name: str, source: str, target: str) -> None:
        from sacrebleu.dataset import DATASETS
        from sacrebleu.utils import SACREBLEU_DIR

        self._name, self._languages = name, f"{source}-{target}"
        self._dataset: Any = DATASETS.get(name)
        if self._dataset is None:
            raise TandemError(f"{name}: sacreBLEU knows no such test set; see `sacrebleu --list`")
        known = self._dataset.langpairs
        if self._languages not in known:
            raise TandemError(f"{name}: this test set has no {self._languages}; it has {', '.join(sorted(known))}")
        prefix = name.replace("/", "_")
        urls = zip(self._dataset.data or [], self._dataset.md5 or [], strict=True)
        self.archives = {f"{prefix}.{url.rpartition('/')[2]}": SetArchive(url, md5) for url, md5 in urls}
        """By the names that sacreBLEU gives them."""
        self._cache = Path(SACREBLEU_DIR, name, "raw")

    def kept(self) -> dict[str, Path]:
        """The archives that sacreBLEU has fetched before; it keeps broken ones, too, so they are checked."""
        paths = {name: self._cache / name for name in self.archives}
        return {name: path for name, path in paths.items() if path.is_file() and not self.archives[name].fault(path)}

    def write(self, paths: Mapping[str, Path], files: FilePair, scratch: Path) -> None:
        """Have sacreBLEU turn the archives, which are here, into two texts; `scratch` is a directory for its work.

        It may not fetch them itself: it would wait for a silent server for ever, and what a failed download leaves it
        takes for whole the next time. So it gets files in the place of urls.
        """
        scratch.mkdir()
        contents = [path.read_bytes() for path in self._extracted(paths, scratch)]  # a few thousand lines
        shutil.rmtree(scratch)
        lines = [content.count(b"\n") for content in contents]
        if lines[0] != lines[1] or not lines[0]:
            raise TandemError(f"{self._name}: {lines[0]} source and {lines[1]} target lines; choose another test set")
        for path, content in zip(files, contents, strict=True):
            write_whole(path, content)

    def _extracted(self, paths: Mapping[str, Path], scratch: Path) -> FilePair:
        """Source and target as sacreBLEU writes them."""
        dataset = copy.copy(self._dataset)
        # sacreBLEU has no other way to say where it works than the environment before it is imported, for all sets.
        dataset._outdir, dataset._rawdir, dataset.data = str(scratch), str(scratch / "raw"), []
        for name, archive in self.archives.items():
            link = scratch / archive.url.rpartition("/")[2]
            link.symlink_to(paths[name].resolve())
            dataset.data.append(link.absolute().as_uri())
        try:
            source = dataset.get_source_file(self._languages)
            return Path(source), Path(dataset.get_reference_files(self._languages)[0])
        except (Exception, SystemExit) as error:  # it raises plain exceptions, and exits where it should raise
            if is_full(error):
                raise
            why = str(error) or type(error).__name__
            raise TandemError(f"{self._name}: sacreBLEU cannot read this test set ({why}); choose another") from error
