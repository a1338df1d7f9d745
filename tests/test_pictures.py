"""The README's pictures: there, small, for light and dark, fetching nothing; and the script makes them."""

from __future__ import annotations

import re
import shutil
import struct
from pathlib import Path

import pytest

from tests.places import REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
LARGEST_BYTES = 150_000
NAMES = {f"{name}-{scheme}.{end}" for name, end in (("report", "png"), ("watch", "svg"), ("translator", "png"))
         for scheme in ("light", "dark")}  # fmt: skip


def test_the_readme_shows_three_pictures_for_light_and_dark() -> None:
    shown = re.findall(r'(?:src|srcset)="docs/images/([^"]+)"', README)
    assert sorted(shown) == sorted(NAMES)
    assert len(re.findall(r'<img alt="[^"]{20,}"', README)) == 3


@pytest.mark.parametrize("name", sorted(NAMES))
def test_pictures_are_small_and_fetch_nothing(name: str) -> None:
    content = (REPOSITORY / "docs/images" / name).read_bytes()
    assert len(content) < LARGEST_BYTES
    assert b"@font-face" not in content
    assert b"url(http" not in content


@pytest.mark.slow
def test_the_script_makes_all_of_them(fluent: Path, tmp_path: Path) -> None:
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        pytest.skip("no Chromium on this machine")
    from docs.pictures import make_pictures

    make_pictures(fluent, tmp_path / "pictures")
    made = {path.name: path.read_bytes() for path in (tmp_path / "pictures").iterdir()}
    assert made.keys() == NAMES
    assert "BLEU" in made["watch-light.svg"].decode()
    for name in ("report", "translator"):
        light, dark = made[f"{name}-light.png"], made[f"{name}-dark.png"]
        # Of a PNG the first numbers are width and height.
        assert struct.unpack(">II", light[16:24]) == struct.unpack(">II", dark[16:24])
        assert light != dark
