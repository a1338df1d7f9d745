"""Archives that the user has already: found by either name, checked, and all that is wrong told at once."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tandem.corpus.fetch.download import RemoteFile, find_offline
from tandem.errors import TandemError

CONTENT = bytes(range(100)) * 3000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
FILES = (
    RemoteFile("europarl.tgz", ("https://a.invalid/wmt13/training-europarl%20v7.tgz",), len(CONTENT), SHA256),
    RemoteFile("news.tgz", ("https://a.invalid/news.tgz", "https://b.invalid/news-v11.tgz")),
)


def test_archives_are_found_by_either_name_and_checked(tmp_path: Path) -> None:
    (tmp_path / "training-europarl v7.tgz").write_bytes(CONTENT)
    (tmp_path / "news-v11.tgz").write_bytes(b"anything")
    tmp_path.chmod(0o500)
    stages: dict[str, tuple[int, int | None]] = {}
    found = find_offline(FILES, tmp_path, lambda stage, done, total, unit="": stages.update({stage: (done, total)}))
    tmp_path.chmod(0o700)
    assert found == {
        "europarl.tgz": tmp_path / "training-europarl v7.tgz",
        "news.tgz": tmp_path / "news-v11.tgz",
    }
    assert len(list(tmp_path.iterdir())) == 2
    assert stages == {"check europarl.tgz": (len(CONTENT), len(CONTENT))}


def test_archives_that_are_missing_or_wrong_are_all_named(tmp_path: Path) -> None:
    (tmp_path / "europarl.tgz").write_bytes(CONTENT[:-1])
    with pytest.raises(TandemError) as caught:
        find_offline(FILES, tmp_path)
    assert "europarl.tgz has 299,999 bytes, not 300,000" in str(caught.value)
    missing = "news.tgz or news-v11.tgz is missing (from https://a.invalid/news.tgz or https://b.invalid/"
    assert missing in str(caught.value)
    (tmp_path / "europarl.tgz").write_bytes(bytes(len(CONTENT)))
    with pytest.raises(TandemError, match=f"europarl.tgz has the sha256 .*, not {SHA256}"):
        find_offline(FILES[:1], tmp_path)


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TandemError, match="no such directory"):
        find_offline(FILES, tmp_path / "nowhere")
