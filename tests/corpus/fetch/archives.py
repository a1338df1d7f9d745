"""Archives in memory, for the tests that unpack and serve them."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import zipfile


def tarred(files: dict[str, bytes], *links: tarfile.TarInfo) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for link in links:
            tar.addfile(link)
    return packed.getvalue()


def zipped(files: dict[str, bytes], mode: int = stat.S_IFREG | 0o644) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def tgz(files: dict[str, bytes]) -> bytes:
    return gzip.compress(tarred(files), compresslevel=1)
