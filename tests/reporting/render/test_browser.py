"""The page in a real browser: charts draw, hover, zoom together; nothing is fetched, nothing overflows."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from itertools import starmap
from pathlib import Path

import pytest

from tandem.reporting.answers import Evaluation
from tandem.reporting.render.html import render_html
from tandem.units import row
from tests.reporting.render.pages import CHROMIUM, DESKTOP, FITTED, GROUND, PHONE, Opened, open_page, viewport
from tests.reporting.render.sample import sample_report

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]

CHARTS = [chart.id for chart in sample_report().charts]
PAINTED = """(chart) => {
    const ground = (selector) => getComputedStyle(document.querySelector(`#chart-${chart}${selector}`)).backgroundColor;
    return ground(" .main-svg") === ground("");
}"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_html(sample_report()), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def opened(address: str) -> Iterator[Opened]:
    with open_page(address) as page:
        yield page


def shown(opened: Opened) -> tuple[float, float]:
    """The steps that all charts show: the first, which then goes out of sight, and the last, which was."""
    pairs = set()
    for chart in (CHARTS[0], CHARTS[-1]):
        opened.draw(chart)
        pairs.add(tuple(opened.page.evaluate(f"document.querySelector('#chart-{chart} .plot').layout.xaxis.range")))
    (pair,) = pairs
    return pair


def test_every_chart_draws_and_nothing_is_fetched(opened: Opened, address: str) -> None:
    opened.draw(*CHARTS)
    for chart in CHARTS:
        drawn = opened.page.locator(f"#chart-{chart} .scatterlayer :is(.js-line, .js-fill)").all()
        assert drawn
        assert all(len(path.get_attribute("d") or "") > 50 for path in drawn)
    assert opened.requests == [address]
    assert opened.complaints == []


def test_hover_shows_values(opened: Opened) -> None:
    box = opened.sheet("bleu")
    opened.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    label = opened.page.wait_for_selector("#chart-bleu .hoverlayer .legend")
    assert label is not None
    text = label.text_content() or ""
    assert "development set" in text
    assert "step 2" in text


def test_zooming_one_chart_zooms_all(opened: Opened) -> None:
    first, last = shown(opened)
    opened.drag("loss", 0.25, 0.75)
    opened.page.wait_for_selector(".zoom:not([hidden])")
    low, high = shown(opened)
    assert low - first == pytest.approx(0.25 * (last - first), rel=0.05)
    assert high - first == pytest.approx(0.75 * (last - first), rel=0.05)
    # The values' axis follows: without the first steps the loss has a tenth of its range.
    assert opened.page.evaluate("document.querySelector('#chart-loss .plot').layout.yaxis.range[1]") < 3
    box = opened.sheet("gpus")
    opened.page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    opened.page.wait_for_selector(".zoom[hidden]", state="attached")
    assert shown(opened) == (first, last)


def test_keys_and_buttons_zoom_too(opened: Opened) -> None:
    first, last = shown(opened)
    opened.page.locator("#chart-network .plot").focus()
    opened.page.keyboard.press("+")
    opened.page.keyboard.press("ArrowRight")
    middle, span = (first + last) / 2, last - first
    assert shown(opened) == pytest.approx((middle - span / 8, middle + span * 3 / 8))
    opened.page.locator(".zoom button[data-key='0']").click()
    assert shown(opened) == (first, last)


def test_the_legend_hides_a_line_or_all_others(opened: Opened) -> None:
    buttons = opened.page.locator("#chart-network .legend button")
    lines = opened.page.locator("#chart-network .scatterlayer .trace")
    opened.draw("network")
    assert lines.count() == buttons.count() == 4
    buttons.first.click()
    assert lines.count() == 3
    assert buttons.first.get_attribute("aria-pressed") == "false"
    buttons.first.dblclick()
    assert lines.count() == 1
    buttons.first.dblclick()
    assert lines.count() == 4


def test_dark_mode_changes_page_and_charts(opened: Opened) -> None:
    grounds = []
    for scheme in ("light", "dark", "light"):
        opened.page.emulate_media(color_scheme=scheme)
        for chart in (CHARTS[0], CHARTS[-1]):
            opened.draw(chart)
            # The chart has the colour of the card around it, which comes from the style sheet.
            opened.page.wait_for_function(PAINTED, arg=chart)
        grounds.append({opened.page.evaluate(GROUND, selector) for selector in ("body", f"#chart-{CHARTS[0]}")})
    assert grounds[0] == grounds[2]
    assert not grounds[0] & grounds[1]


def test_paper_is_light_and_complete(opened: Opened) -> None:
    opened.page.emulate_media(color_scheme="dark")
    opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert opened.page.evaluate("document.querySelectorAll('details:not([open])').length") == 0
    for chart in CHARTS:
        assert opened.page.evaluate(GROUND, f"#chart-{chart} .main-svg") == "rgb(255, 255, 255)"
    opened.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert opened.page.evaluate("document.querySelectorAll('details[open]').length") == 0
    opened.page.emulate_media(color_scheme="light")
    assert opened.complaints == []


@pytest.mark.parametrize("size", [PHONE, DESKTOP])
def test_nothing_overflows(opened: Opened, size: tuple[int, int]) -> None:
    page = opened.page
    page.set_viewport_size(viewport(size))
    page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
    page.wait_for_function(FITTED)
    assert page.evaluate("document.documentElement.scrollWidth") == size[0]
    assert opened.complaints == []


def test_the_printed_page_has_everything(opened: Opened, tmp_path: Path) -> None:
    """Read back by a program of its own: every answer and its evidence, and charts that lie within the paper."""
    if shutil.which("pdftotext") is None:
        pytest.skip("pdftotext is not installed: apt-get install poppler-utils")
    evaluations = tuple(
        Evaluation(at=step, loss=step / 1000, perplexity=None, bleu=None, bleu_first_sentences=None, best=())
        for step in range(1000, 101_000, 1000)
    )
    report = replace(sample_report(), evaluations=evaluations)
    (tmp_path / "report.html").write_text(render_html(report), encoding="utf-8")
    browser = opened.page.context.browser
    assert browser is not None
    page = browser.new_page(viewport=viewport(DESKTOP))
    page.goto((tmp_path / "report.html").as_uri())
    page.wait_for_selector(f"#chart-{CHARTS[0]} .plot[aria-busy='false']")
    for paper in ("A4", "Letter"):
        page.pdf(path=tmp_path / "report.pdf", format=paper)
        printed = subprocess.run(
            ["pdftotext", "-raw", tmp_path / "report.pdf", "-"], capture_output=True, text=True, check=True
        ).stdout
        # A line may end anywhere.
        text = "".join(printed.split())
        for words in (*report.summary, *report.problems):
            assert bare(words) in text
        for answer in report.questions:
            assert bare(answer.question) in text
            assert bare(answer.answer) in text
            assert bare(answer.explanation) in text
            for label, lines in starmap(row, answer.evidence.items()):
                assert bare(label) in text
                assert all(bare(line) in text for line in lines), label
        for chart in report.charts:
            assert bare(chart.title) in text
        for evaluation in evaluations:
            assert f"{evaluation.at:,.0f}{evaluation.loss:.3f}" in text
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    # A4 without its margins, in pixels of CSS.
    page.set_viewport_size({"width": 695, "height": 1000})
    for id in CHARTS:
        box = page.locator(f"#chart-{id} .main-svg").first.bounding_box()
        frame = page.locator(f"#chart-{id}").bounding_box()
        assert box is not None
        assert frame is not None
        assert frame["x"] <= box["x"]
        assert box["x"] + box["width"] <= frame["x"] + frame["width"] <= 695
        assert box["y"] + box["height"] <= frame["y"] + frame["height"]
    page.close()


def bare(words: str) -> str:
    return "".join(words.replace("`", "").split())
