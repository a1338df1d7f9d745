"""A page of Tandem's, opened in a real browser; the report's and the comparison's tests look at theirs with it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright import sync_api as playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DESKTOP, PHONE = (1280, 900), (390, 844)
GROUND = "(selector) => getComputedStyle(document.querySelector(selector)).backgroundColor"
FITTED = """() => [...document.querySelectorAll('.plot')].every(
    (plot) => Math.abs(plot.querySelector('.main-svg').clientWidth - plot.clientWidth) < 2)"""


@dataclass
class Opened:
    """The page, and what it did that it should not."""

    page: playwright.Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def draw(self, *charts: str) -> None:
        """Pass the charts, as a reader who scrolls."""
        for chart in charts:
            self.page.locator(f"#chart-{chart}").scroll_into_view_if_needed()
            self.page.wait_for_selector(f"#chart-{chart} .plot[aria-busy='false']")

    def sheet(self, chart: str) -> playwright.FloatRect:
        """Where the chart's drawing area is on the screen."""
        area = self.page.locator(f"#chart-{chart} .nsewdrag")
        area.scroll_into_view_if_needed()
        box = area.bounding_box()
        assert box is not None
        return box

    def drag(self, chart: str, start: float, end: float) -> None:
        box = self.sheet(chart)
        height = box["y"] + box["height"] / 2
        self.page.mouse.move(box["x"] + start * box["width"], height)
        self.page.mouse.down()
        self.page.mouse.move(box["x"] + end * box["width"], height, steps=3)
        self.page.mouse.up()


@contextmanager
def open_page(address: str) -> Iterator[Opened]:
    """One page for all tests of a file, because loading takes longest; each leaves it as it was."""
    from playwright import sync_api

    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport=viewport(DESKTOP), reduced_motion="reduce")
        result = Opened(page)
        page.on("console", lambda message: result.complaints.append(message.text))
        page.on("pageerror", lambda error: result.complaints.append(str(error)))
        page.on("request", lambda request: result.requests.append(request.url))
        page.goto(address)
        yield result
        browser.close()


def viewport(size: tuple[int, int]) -> playwright.ViewportSize:
    return {"width": size[0], "height": size[1]}
