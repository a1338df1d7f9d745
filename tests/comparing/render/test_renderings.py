"""Page, Markdown, JSON and terminal lines hold everything, and nobody's words are more than words."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape

import pytest

from tandem.comparing.comparison import SentenceDifference
from tandem.comparing.render.comparison_markdown import render_comparison_markdown
from tandem.comparing.render.comparison_page import render_comparison_page
from tandem.comparing.render.comparison_terminal import render_comparison_text
from tandem.comparing.render.interval_chart import Scale
from tests.comparing.render.sample import HOSTILE, NAMES, SIGNATURE, sample_comparison


def test_all_say_the_same() -> None:
    comparison = sample_comparison()
    page = unescape(render_comparison_page(comparison)).replace("\N{NO-BREAK SPACE}", " ")
    markdown = render_comparison_markdown(comparison).replace("\\", "")
    terminal = " ".join(render_comparison_text(comparison, 100).split())
    said = [contrast.headline for contrast in comparison.contrasts]
    said += [words for contrast in comparison.contrasts for words in contrast.words]
    said += [SIGNATURE, *NAMES, *comparison.remarks, "34.10 ± 1.02", "35.75 ± 0.21", "model.encoder_layers"]
    said += ["A man reads a book about compilers."]
    for rendering in (page, markdown, terminal):
        for words in said:
            assert words in rendering
    assert json.loads(json.dumps(comparison.as_dict(), allow_nan=False))["contrasts"][0]["second"] == "deeper"


def test_text_is_only_text() -> None:
    page, harmless = (render_comparison_page(sample_comparison(text)) for text in (HOSTILE, "Ein Buch."))
    assert page.count("<script") == harmless.count("<script")
    assert page.count("</script") == harmless.count("</script")
    assert "<img" not in page.split("plotly.js v")[0]
    assert "<img" not in render_comparison_markdown(sample_comparison(HOSTILE)).replace("\\<", "")


def test_words_that_differ_are_marked_everywhere() -> None:
    comparison = sample_comparison()
    assert "Ein Mann <mark>liest ein Buch über Übersetzer.</mark>" in render_comparison_page(comparison)
    assert "Ein Mann **liest ein Buch über Übersetzer.**" in render_comparison_markdown(comparison)
    assert "Ein Mann [liest ein Buch über Übersetzer.]" in render_comparison_text(comparison, 100)
    assert "<em>nothing</em>" in render_comparison_page(comparison)


def test_where_there_is_nothing_nothing_is_said() -> None:
    full = sample_comparison()
    none: tuple[SentenceDifference, ...] = ()
    contrast = replace(full.contrasts[1], gained=none, lost=none)
    bare = replace(full, contrasts=(contrast,), settings=(), remarks=(), charts=(), groups=full.groups[2:])
    page, text = render_comparison_page(bare), render_comparison_text(bare, 80)
    for id in ("settings", "sentences", "charts"):
        assert f'id="{id}"' not in page
        assert f'href="#{id}"' not in page
    for words in ("What differs", "To keep in mind", "differ most", "Over seeds"):
        assert words not in page
        assert words not in text
    assert '<span class="pill neutral">cannot tell</span>' in page


@pytest.mark.parametrize("width", [60, 80, 120])
def test_settings_fit_the_terminal(width: int) -> None:
    text = render_comparison_text(sample_comparison("a very long name of a corpus " * 2), width)
    (settings,) = re.findall(r"What differs\n(.*?)\n\n", text, re.DOTALL)
    assert max(map(len, settings.splitlines())) <= max(width, 100)
    assert "train.seed: 1 (base-1, deeper-1); 2 (base-2, deeper-2)" in " ".join(settings.split())


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0.2, 1.1], [0, 0.5, 1.0]),
        ([-33.5, -20.2], [-30, -20, -10, 0]),
        ([-0.4, 0.6], [-0.4, -0.2, 0, 0.2, 0.4, 0.6]),
        ([0.0, 0.0], [-0.1, -0.05, 0, 0.05, 0.1]),
    ],
)
def test_a_scale_shows_nothing_and_round_values(values: list[float], ticks: list[float]) -> None:
    scale = Scale.around(values)
    assert scale.ticks == pytest.approx(ticks)
    assert scale.low < min(0, *values) <= max(0, *values) < scale.high
