"""Makes the pictures of the README from the demo's run: the report's page, `tandem watch`, the translator's page.

    tandem demo
    python -m docs.pictures [RUN]

Each for light and for dark; Chromium draws the pages.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from playwright.sync_api import Browser, Page, sync_playwright
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI, TerminalTheme

import tandem
from tandem.monitor.watch.live import RunWatcher

PLACE = Path(__file__).parent / "images"
SCHEMES: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")
REPORT_SIZE, TRANSLATOR_SIZE = (1160, 1050), (1080, 470)
# A README shows pictures smaller than pages are.
SCALE = 0.8
WATCH_COLUMNS = 96
# A busy machine draws slowly.
PATIENCE_MILLISECONDS = 180_000
TWO_SENTENCES = re.compile(r"\..*\.")
TEXT = "The old man reads a book. On Sundays my good friend drinks cold coffee."
GITHUB_LIGHT = TerminalTheme(
    (255, 255, 255),
    (31, 35, 40),
    # Black, red, green, yellow, blue, magenta, cyan, white.
    [
        *((31, 35, 40), (207, 34, 46), (17, 99, 41), (154, 103, 0)),
        *((9, 105, 218), (130, 80, 223), (27, 124, 131), (110, 119, 129)),
    ],
)
THEMES = {"light": GITHUB_LIGHT, "dark": DIMMED_MONOKAI}
# A picture may fetch nothing; without these the reader's own fixed-width font is taken.
FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("run", nargs="?", type=Path, default=Path("demo/run"))
    arguments.add_argument("--out", type=Path, default=PLACE)
    asked = arguments.parse_args()
    make_pictures(asked.run, asked.out)


def make_pictures(run: Path, out: Path) -> None:
    """Write all pictures of a run into a directory."""
    out.mkdir(parents=True, exist_ok=True)
    for scheme in SCHEMES:
        (out / f"watch-{scheme}.svg").write_text(terminal_picture(run, THEMES[scheme]), encoding="utf-8")
    with TemporaryDirectory() as temporary, chromium() as browser, served(run) as address:
        report = tandem.write_report(tandem.report(run), Path(temporary))
        for scheme in SCHEMES:
            with opened(browser, report.absolute().as_uri(), REPORT_SIZE, scheme) as page:
                page.wait_for_selector("#chart-parts .plot[aria-busy='false']")
                page.screenshot(path=out / f"report-{scheme}.png")
            with opened(browser, address, TRANSLATOR_SIZE, scheme) as page:
                page.fill("#source", TEXT)
                page.locator("#translation").filter(has_text=TWO_SENTENCES).wait_for()
                page.wait_for_selector("#progress", state="hidden")
                page.screenshot(path=out / f"translator-{scheme}.png", animations="disabled", caret="hide")


def terminal_picture(run: Path, theme: TerminalTheme) -> str:
    """What `tandem watch` prints of a run, as SVG."""
    console = Console(
        record=True, width=WATCH_COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    screen = RunWatcher(run).update()
    # As it was at the run's end, whenever the picture is made.
    console.print(replace(screen, name=run.as_posix(), now=screen.state.last_record_time or screen.now))
    return FONT.sub("", console.export_svg(title=f"tandem watch {run}", theme=theme, unique_id="watch"))


@contextmanager
def chromium() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, address: str, size: tuple[int, int], scheme: Literal["light", "dark"]) -> Iterator[Page]:
    width, height = size
    page = browser.new_page(
        viewport={"width": width, "height": height},
        device_scale_factor=SCALE,
        color_scheme=scheme,
        reduced_motion="reduce",
        locale="en",
    )
    page.set_default_timeout(PATIENCE_MILLISECONDS)
    page.goto(address)
    yield page
    page.close()


@contextmanager
def served(run: Path) -> Iterator[str]:
    """The address of a translator's page of a run, as long as the block lasts."""
    command = [sys.executable, "-m", "tandem", "serve", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        said = ""
        for line in server.stdout:
            said += line
            if found := re.search(r"http://\S+", line):
                break
        else:
            raise RuntimeError(said)
        try:
            yield found[0].rstrip("/")
        finally:
            server.terminate()
            server.communicate()


if __name__ == "__main__":
    main()
