"""A report of a run with several dev sets and metrics: all are drawn, dev alone is judged."""

from __future__ import annotations

from pathlib import Path

from tandem.monitor.journal import Journal
from tandem.monitor.records import Evaluated, MetricValue, Started
from tandem.reporting.chart_selection import make_charts
from tandem.reporting.formats.tandem_journals import read_history
from tandem.reporting.formats.tandem_run import _dev_curves, _signatures
from tandem.reporting.run_record import Curve, RunRecord
from tests.monitor.example_records import example


def test_every_dev_set_and_metric_has_its_curve(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 0)
    journal.show(example(Started, step=0))
    ter = MetricValue(metric="ter", value=60.0, signature="tok:tercom")
    for step in (10, 20):
        for split in ("dev", "news"):
            journal.show(example(Evaluated, step=step, split=split, bleu=step, metrics=[ter]))
    journal.show(example(Started, step=10))
    journal.close()
    history = read_history(tmp_path / "rank-0.jsonl")
    assert [(one.step, one.split) for one in history.evaluations] == [(10, "dev")]
    assert [(one.step, one.split) for one in history.other_evaluations] == [(10, "news")]
    both = (*history.evaluations, *history.other_evaluations)
    curves = _dev_curves(both)
    assert set(curves) == {"dev/ter", "news/loss", "news/bleu", "news/ter"}
    notes = tuple(_signatures(both))
    bleu = Curve.of([(10, 10.0)])
    run = RunRecord(source="Tandem run", path="run", state="finished", bleu=bleu, dev_curves=curves, dev_notes=notes)
    charts = {chart.id: chart for chart in make_charts(run)}
    assert [trace.name for trace in charts["bleu"].traces] == ["BLEU", "news BLEU"]
    assert [trace.name for trace in charts["loss"].traces] == ["news loss"]
    assert [trace.name for trace in charts["metrics"].traces] == ["dev TER", "news TER"]
    assert charts["metrics"].note.startswith("TER: tok:tercom")
