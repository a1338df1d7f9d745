"""Selects the charts of a report: which curves are drawn together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tandem.metrics import BLEU, LOSS, METRICS, Criterion
from tandem.reporting.answers import Chart, Trace
from tandem.reporting.run_record import NOTHING, Curve, RunRecord

# The parts of a step from the bottom of the stack to its top: what is wanted first, what is lost last.
STACK = ("compute", "optimizer", "data", "communication", "waiting", "evaluation", "checkpoint", "other")
# Marks beyond so many would hide the curves.
MOST_MARKS = 20
PERCENT = 100.0
# A formula is smooth: no more points are needed to draw it.
FORMULA_POINTS = 1000


def make_charts(run: RunRecord) -> tuple[Chart, ...]:
    """All charts that have a curve to draw."""
    marks = tuple((step, note) for step, note in run.events if note == "resumed")[:MOST_MARKS]
    rates = {"logged": run.learning_rate, "by the settings": _promised_rates(run)}
    losses = {"training": run.train_loss, "evaluation": run.eval_loss, **_on_dev_sets(run, LOSS)}
    bleus = {"BLEU": run.bleu, **_on_dev_sets(run, BLEU)}
    others = _on_dev_sets(run, *(name for name in METRICS if name != BLEU))
    charts = (
        _chart("loss", "Loss", run.loss_unit, losses, marks=marks),
        _chart("bleu", "BLEU", "BLEU", bleus, marks=marks, note=run.bleu_note or ""),
        _chart("metrics", "Other metrics", "0 to 100", others, marks=marks, note="; ".join(run.dev_notes)),
        _chart(
            "learning_rate",
            "Learning rate",
            "learning rate",
            rates,
            dashed="settings",
            note=run.schedule.explanation if run.schedule is not None else "",
        ),
        _chart(
            "parts",
            "Where the time of a step went",
            "seconds per step",
            {part: run.parts[part] for part in STACK if part in run.parts},
            stacked=True,
            note="communication is what was not hidden behind compute; waiting is for a slower process",
        ),
        _chart("step_time", "Step time", "seconds per step", {"step": run.step_seconds}, marks=marks),
        *_host_charts(run),
    )
    return tuple(chart for chart in charts if chart.traces)


def _chart(
    id: str, title: str, y_label: str, curves: Mapping[str, Curve], *, dashed: str | None = None, **options: Any
) -> Chart:
    """A chart of the curves that have points; those whose name ends in a certain word are dashed."""
    traces = (
        Trace(name=name, curve=curve, dashed=dashed is not None and name.endswith(dashed))
        for name, curve in curves.items()
        if len(curve)
    )
    return Chart(id=id, title=title, y_label=y_label, traces=tuple(traces), **options)


def _on_dev_sets(run: RunRecord, *metrics: str) -> dict[str, Curve]:
    """The curves of some metrics, by dev set, as people write them."""
    found = {Criterion.parse(name): curve for name, curve in run.dev_curves.items()}
    return {measure.label: curve for measure, curve in found.items() if measure.metric in metrics}


def _promised_rates(run: RunRecord) -> Curve:
    """The learning rate by the settings, where anything was logged."""
    if run.schedule is None or run.schedule.rate is None:
        return NOTHING
    at = run.learning_rate.at if len(run.learning_rate) else run.train_loss.at
    at = at[:: max(len(at) // FORMULA_POINTS, 1)]
    return Curve.of((float(step), run.schedule.rate(max(float(step), 1.0))) for step in at)


def _host_charts(run: RunRecord) -> Iterator[Chart]:
    """Network and devices, host by host."""
    rates = {host.link_mbit_per_second for host in run.hosts if host.link_mbit_per_second}
    speed = " to ".join(f"{rate:,.0f}" for rate in (min(rates), max(rates))[: len(rates)]) if rates else ""
    network = {name: curve for name, curve in _by_host(run, sent="sent", received="received") if curve.values.any()}
    note = f"speed of the cards: {speed} Mbit/s" if speed else ""
    yield _chart("network", "Network", "Mbit/s", network, note=note, dashed="received")
    gpus = _by_host(run, gpu_utilisation="utilised", gpu_power="of power cap", gpu_memory="memory")
    yield _chart("gpus", "GPUs", "%", _in_percent((*gpus, *_by_card(run))), dashed="memory")
    cpus = _by_host(
        run,
        cpu="processor",
        cpu_own="this run",
        cpu_others="other programs",
        cpu_steal="taken by the hypervisor",
        memory="memory",
    )
    yield _chart("cpu", "Processor and memory", "%", _in_percent(cpus), dashed="memory")
    disk = dict(_by_host(run, disk_read="read", disk_written="written"))
    yield _chart("disk", "Disk", "MB/s", disk, dashed="written")


def _by_host(run: RunRecord, **names: str) -> Iterator[tuple[str, Curve]]:
    """Curves of all hosts under their names in a chart."""
    for host in run.hosts:
        for kind, words in names.items():
            if kind in host.curves:
                yield f"{_prefix(run, host.name)}{words}", host.curves[kind]


def _by_card(run: RunRecord) -> Iterator[tuple[str, Curve]]:
    """The utilisation of each card, where a host has several: their mean hides one that idles."""
    for host in run.hosts:
        for gpu in host.gpus if len(host.gpus) > 1 else ():
            if "gpu_utilisation" in gpu.curves:
                yield f"{_prefix(run, host.name)}GPU {gpu.index} utilised", gpu.curves["gpu_utilisation"]


def _prefix(run: RunRecord, host: str) -> str:
    return f"{host} " if len(run.hosts) > 1 else ""


def _in_percent(curves: Iterable[tuple[str, Curve]]) -> dict[str, Curve]:
    return {name: curve.scaled(PERCENT) for name, curve in curves}
