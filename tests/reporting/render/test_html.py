"""The page holds everything, safely, and asks nobody for anything."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np

from tandem.reporting.answers import Chart, Report, Trace
from tandem.reporting.evaluation_table import evaluations_of
from tandem.reporting.render.html import render_html
from tandem.reporting.render.markdown import render_markdown
from tandem.reporting.render.plotly_charts import POINTS_OF_CHART
from tandem.reporting.run_record import Curve, RunRecord
from tests.reporting.render.sample import sample_report

HOSTILE = """</script><script>alert("x")</script><img src=x onerror='alert(1)'> & $title ${title}"""


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found.group(1))
    return data


def with_chart(chart: Chart) -> Report:
    return replace(sample_report(), charts=(chart,))


def chart_of(*curves: Curve, **changes: Any) -> Chart:
    traces = tuple(Trace(name=f"line {index}", curve=curve) for index, curve in enumerate(curves))
    return replace(Chart(id="any", title="Any", y_label="s", traces=traces), **changes)


def test_everything_is_on_the_page() -> None:
    report = sample_report()
    page = render_html(report)
    for answer in report.questions:
        assert f'id="q-{answer.id}"' in page
        assert answer.question in page
    for chart in report.charts:
        assert f'id="chart-{chart.id}"' in page
    assert page.count("plotly.js v") == 1
    assert '<span class="pill attention">bottleneck</span>' in page
    assert '<span class="pill good">no</span>' in page
    assert '<html lang="en">' in page
    assert "<code>diloco</code>" in page


def test_text_is_only_text() -> None:
    report = sample_report()
    answer = replace(
        report.questions[0],
        question=HOSTILE,
        verdict=HOSTILE,
        answer=HOSTILE,
        explanation=HOSTILE,
        evidence={HOSTILE: HOSTILE},
    )
    chart = Chart(
        id="any",
        title=HOSTILE,
        y_label=HOSTILE,
        note=HOSTILE,
        traces=(Trace(name=HOSTILE, curve=Curve.of([(1, 1.0)])),),
        marks=((1.0, HOSTILE),),
    )
    hostile = replace(
        report,
        path=HOSTILE,
        source=HOSTILE,
        state=HOSTILE,
        summary=(HOSTILE,),
        problems=(HOSTILE,),
        questions=(answer,),
        charts=(chart,),
    )
    page, harmless = render_html(hostile), render_html(with_chart(chart_of(Curve.of([(1, 1.0)]))))
    assert page.count("<script") == harmless.count("<script")
    assert page.count("</script") == harmless.count("</script")
    assert "<img" not in page.split("plotly.js v")[0]
    assert data_of(page)["charts"][0]["traces"][0]["name"] == HOSTILE


def test_values_that_are_not_finite_are_gaps() -> None:
    curve = Curve(np.arange(4.0), np.array([1.5, np.nan, np.inf, 2.0]))
    data = data_of(render_html(with_chart(chart_of(curve))))
    assert data["charts"][0]["traces"][0] == {
        "name": "line 0",
        "dashed": False,
        "x": [0, 1, 2, 3],
        "y": [1.5, None, None, 2.0],
    }


def test_a_chart_stays_within_its_points_and_says_so() -> None:
    noise = np.random.default_rng(2)
    curves = [Curve(np.arange(9_000.0), noise.normal(size=9_000)) for _ in range(10)]
    for stacked in (False, True):
        page = render_html(with_chart(chart_of(*curves, stacked=stacked)))
        traces = data_of(page)["charts"][0]["traces"]
        assert sum(len(trace["x"]) for trace in traces) <= POINTS_OF_CHART
        assert min(traces[0]["y"]) == float(f"{curves[0].values.min():.6g}")
        assert "of 9,000 points of a line are drawn" in page


def test_layers_of_a_stack_share_their_steps() -> None:
    chart = chart_of(Curve.of([(1, 1.0), (2, 1.0)]), Curve.of([(2, 5.0), (3, 5.0)]), stacked=True)
    first, second = data_of(render_html(with_chart(chart)))["charts"][0]["traces"]
    assert first["x"] == second["x"] == [1, 2, 3]
    assert first["y"] == [1, 1, None]
    assert second["y"] == [None, 5, 5]


def test_charts_without_values_are_left_out() -> None:
    empty = chart_of(Curve.of([]), Curve.of([(1, float("nan"))]))
    page = render_html(with_chart(empty))
    assert data_of(page)["charts"] == []
    assert 'id="charts"' not in page
    assert 'href="#chart-' not in page


def test_a_line_that_is_named_like_its_chart_needs_no_legend() -> None:
    pages = [
        render_html(with_chart(replace(chart_of(Curve.of([(1, 1.0)])), title=title))) for title in ("Line 0", "Other")
    ]
    assert ['aria-label="Lines shown" hidden' in page for page in pages] == [True, False]


def test_rounding_keeps_what_can_be_seen() -> None:
    values = np.array([0.00012345678, 123456.789, -3.14159265, 0.0, 1e-300, 12345678.9])
    data = data_of(render_html(with_chart(chart_of(Curve(np.arange(6.0), values)))))
    drawn = data["charts"][0]["traces"][0]["y"]
    np.testing.assert_allclose(drawn, values, rtol=1e-5, atol=1e-20)
    assert drawn[:3] == [0.000123457, 123457.0, -3.14159]


def test_the_charts_that_matter_most_stand_above_the_answers() -> None:
    page = render_html(sample_report())
    places = [
        page.index(f'id="{id}"') for id in ("chart-loss", "chart-bleu", "chart-parts", "questions", "more-charts")
    ]
    assert places == sorted(places)
    assert page.index('id="chart-learning_rate"') > page.index('id="more-charts"')


def test_a_signature_is_printed_as_it_is() -> None:
    signature = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
    chart = Chart(id="bleu", title="BLEU", y_label="BLEU", traces=(Trace(name="BLEU", curve=Curve.of([(1, 2.0)])),))
    assert f'<figcaption class="signature">{signature}</figcaption>' in render_html(
        with_chart(replace(chart, note=signature))
    )
    assert "<figcaption>As it says</figcaption>" in render_html(with_chart(replace(chart, note="as it says")))


def test_each_answer_stands_beside_the_charts_that_prove_it() -> None:
    page = render_html(sample_report())
    cards = {card.split('"')[0]: card for card in page.split('<article class="card" id="q-')[1:]}
    for id, charts in {
        "trained": ["loss", "bleu"],
        "network": ["parts", "network"],
        "learning_rate": ["learning_rate"],
    }.items():
        proofs = re.findall(r'<a class="proof" href="#chart-(\w+)">.*?<svg', cards[id], re.DOTALL)
        assert proofs == charts, id
    assert "proof" not in cards["training_set"].split("</article>")[0]


def test_the_table_has_every_evaluation_and_marks_the_best() -> None:
    run = RunRecord(
        source="a log",
        path="x.log",
        state="finished",
        eval_loss=Curve.of([(100, 2.0), (200, 1.0), (300, float("nan"))]),
        bleu=Curve.of([(200, 20.5), (250, 31.25)]),
        bleu_first_sentences={200: 100},
        bleu_note="nrefs:1|tok:13a",
    )
    evaluations = evaluations_of(run)
    report = replace(sample_report(), evaluations=evaluations, bleu_note=run.bleu_note or "")
    table = render_html(report).split("<tbody>")[1].split("</tbody>")[0]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in table.split("</tr>")[:-1]]
    assert rows == [
        ["100", "2.000", "7.39", "", ""],
        ["200", "1.000", "2.72", "20.50 (first 100 sentences)", "lowest loss"],
        ["250", "", "", "31.25", "best BLEU"],
        ["300", "nan", "", "", ""],
    ]
    assert "BLEU: nrefs:1|tok:13a" in render_html(report)
    text = render_markdown(report)
    assert "| step | loss | perplexity | BLEU |  |" in text
    assert "| 250 |  |  | 31.25 | best BLEU |" in text
    told = report.as_dict()["evaluations"][2]
    assert (told["at"], told["loss"], told["bleu"], told["best"]) == (250.0, None, 31.25, ["best BLEU"])


def test_a_run_without_evaluations_has_no_table() -> None:
    assert 'id="evaluations"' not in render_html(sample_report())
