"""The page in a real browser: curves and intervals show, nothing is fetched, nothing overflows, paper is light."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem.comparing.render.comparison_page import render_comparison_page
from tests.comparing.render.sample import sample_comparison
from tests.reporting.render.pages import CHROMIUM, DESKTOP, FITTED, GROUND, PHONE, Opened, open_page, viewport

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]

CHARTS = ("eval_loss", "bleu")
INSIDE = """() => [...document.querySelectorAll('.track i')].every((mark) => {
    const [inner, outer] = [mark, mark.parentElement].map((element) => element.getBoundingClientRect());
    return inner.left > outer.left - 6 && inner.right < outer.right + 6 && inner.height > 0;
})"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("page") / "compare.html"
    path.write_text(render_comparison_page(sample_comparison()), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def opened(address: str) -> Iterator[Opened]:
    with open_page(address) as page:
        yield page


def test_curves_and_intervals_show_and_nothing_is_fetched(opened: Opened, address: str) -> None:
    opened.draw(*CHARTS)
    for chart in CHARTS:
        assert opened.page.locator(f"#chart-{chart} .scatterlayer .js-line").count() == 4
    assert opened.page.locator(".track .bar").count() == opened.page.locator(".track .whisker").count() == 6
    assert opened.page.evaluate(INSIDE)
    assert opened.requests == [address]
    assert opened.complaints == []


def test_every_link_of_the_contents_leads_somewhere(opened: Opened) -> None:
    targets = [link.get_attribute("href") or "" for link in opened.page.locator(".contents a, .skip").all()]
    assert len(targets) > 5
    assert [target for target in targets if opened.page.locator(target).count() != 1] == []


def test_a_verdict_has_its_colour_in_both_schemes(opened: Opened) -> None:
    grounds = []
    for scheme in ("light", "dark"):
        opened.page.emulate_media(color_scheme=scheme)
        grounds.append({opened.page.evaluate(GROUND, f".track.{tone} .mean") for tone in ("good", "neutral")})
    assert len(grounds[0] | grounds[1]) == 4
    opened.page.emulate_media(color_scheme="light")


@pytest.mark.parametrize("size", [PHONE, DESKTOP])
def test_nothing_overflows(opened: Opened, size: tuple[int, int]) -> None:
    page = opened.page
    page.set_viewport_size(viewport(size))
    page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
    page.wait_for_function(FITTED)
    assert page.evaluate("document.documentElement.scrollWidth") == size[0]
    assert page.evaluate(INSIDE)
    assert opened.complaints == []


def test_paper_is_light_and_complete(opened: Opened) -> None:
    opened.page.emulate_media(color_scheme="dark", media="print")
    opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    for chart in CHARTS:
        assert opened.page.evaluate(GROUND, f"#chart-{chart} .main-svg") == "rgb(255, 255, 255)"
    # Of a table that scrolls on a screen, all columns are on the paper.
    assert opened.page.evaluate("getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"
    opened.page.evaluate("dispatchEvent(new Event('afterprint'))")
    opened.page.emulate_media(color_scheme="light", media="screen")
