"""The learning curves of several runs on one axis."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from tandem.reporting.answers import Chart, Trace
from tandem.reporting.run_record import Curve, RunRecord

AXIS = "step"


def curve_charts(records: Mapping[str, RunRecord], corpora: Collection[str]) -> tuple[Chart, ...]:
    """Loss and BLEU of the runs, a line each, in the same order and so the same colours everywhere."""
    own = "each on the dev set of its own corpus" if len(corpora) > 1 else ""
    signatures = {record.bleu_note for record in records.values() if record.bleu_note}
    signature = signatures.pop() if len(signatures) == 1 else ""
    charts = (
        _chart("eval_loss", "Evaluation loss", "nats per token", own, records, lambda record: record.eval_loss),
        _chart("bleu", "BLEU on dev", "BLEU", own or signature, records, lambda record: record.bleu),
        _chart(
            "train_loss",
            "Training loss",
            "nats per token",
            "measured with dropout on",
            records,
            lambda record: record.train_loss,
        ),
    )
    return tuple(chart for chart in charts if any(len(trace.curve) for trace in chart.traces))


def unfinished(records: Mapping[str, RunRecord]) -> Iterator[str]:
    """A remark for each run that has not come to its end."""
    for name, record in records.items():
        if record.state != "finished" and record.max_steps is not None:
            yield (
                f"{name} has come to step {record.last_step:,.0f} of {record.max_steps:,.0f} ({record.state}): "
                "its model may not be what its settings can give."
            )


def _chart(
    id: str, title: str, unit: str, note: str, records: Mapping[str, RunRecord], curve: Callable[[RunRecord], Curve]
) -> Chart:
    traces = tuple(Trace(name=name, curve=curve(record)) for name, record in records.items())
    return Chart(id=id, title=title, y_label=unit, traces=traces, note=note)
