"""The charts of a report: which curves are looked at together."""

from __future__ import annotations

from collections.abc import Iterator

from tandem.report.answers import Chart, Trace
from tandem.report.record import Curve, RunRecord

# The parts of a step from the bottom of the stack to its top: what is wanted first, what is lost last.
STACK = ("compute", "optimizer", "data", "communication", "waiting", "evaluation", "checkpoint", "other")
# Marks beyond so many would hide the curves.
MOST_MARKS = 20
PERCENT = 100.0
# A formula is smooth: no more points are needed to draw it.
FORMULA_POINTS = 1000


def make_charts(run: RunRecord) -> tuple[Chart, ...]:
    """All charts there is anything to draw for."""
    marks = tuple((step, note) for step, note in run.events if note == "resumed")[:MOST_MARKS]
    charts = (
        _chart("loss", "Loss", run.loss_unit, {"training": run.train_loss, "evaluation": run.eval_loss}, marks),
        _chart("bleu", "BLEU", "BLEU", {"BLEU": run.bleu}, marks, note=run.bleu_note or ""),
        _learning_rate(run),
        _parts(run),
        _chart("step_time", "Step time", "seconds per step", {"step": run.step_seconds}, marks),
        *_host_charts(run),
    )
    return tuple(chart for chart in charts if chart is not None)


def _chart(
    id: str,
    title: str,
    y_label: str,
    curves: dict[str, Curve],
    marks: tuple[tuple[float, str], ...] = (),
    note: str = "",
    dashed: str = "",
) -> Chart | None:
    """A chart of the curves that have points; those whose name ends in a certain word are dashed."""
    traces = tuple(
        Trace(name=name, curve=curve, dashed=bool(dashed) and name.endswith(dashed))
        for name, curve in curves.items()
        if len(curve)
    )
    return Chart(id=id, title=title, y_label=y_label, traces=traces, marks=marks, note=note) if traces else None


def _learning_rate(run: RunRecord) -> Chart | None:
    traces = []
    if len(run.learning_rate):
        traces.append(Trace(name="logged", curve=run.learning_rate))
    at = run.learning_rate.at if len(run.learning_rate) else run.train_loss.at
    at = at[:: max(len(at) // FORMULA_POINTS, 1)]
    if run.schedule is not None and run.schedule.rate is not None and len(at):
        promised = Curve.of((float(step), run.schedule.rate(max(float(step), 1.0))) for step in at)
        traces.append(Trace(name="by the settings", curve=promised, dashed=True))
    if not traces:
        return None
    note = run.schedule.explanation if run.schedule is not None else ""
    return Chart(id="learning_rate", title="Learning rate", y_label="learning rate", traces=tuple(traces), note=note)


def _parts(run: RunRecord) -> Chart | None:
    traces = tuple(Trace(name=part, curve=run.parts[part]) for part in STACK if part in run.parts)
    if not traces:
        return None
    return Chart(
        id="parts",
        title="Where the time of a step went",
        y_label="seconds per step",
        traces=traces,
        stacked=True,
        note="communication is what was not hidden behind compute; waiting is for a slower process",
    )


def _host_charts(run: RunRecord) -> Iterator[Chart | None]:
    """Network and devices, host by host."""
    several = len(run.hosts) > 1
    rates = {host.link_mbit_per_second for host in run.hosts if host.link_mbit_per_second}
    speed = " to ".join(f"{rate:,.0f}" for rate in (min(rates), max(rates))[: len(rates)]) if rates else ""
    network = {
        f"{host.name} {way}" if several else way: host.curves[way]
        for host in run.hosts
        for way in ("sent", "received")
        if way in host.curves and host.curves[way].values.any()
    }
    yield _chart(
        "network",
        "Network",
        "Mbit/s",
        network,
        note=f"speed of the cards: {speed} Mbit/s" if speed else "",
        dashed="received",
    )
    for id, title, kinds in (
        ("gpus", "GPUs", {"gpu_utilisation": "utilised", "gpu_power": "of power cap", "gpu_memory": "memory"}),
        ("cpu", "Processor and memory", {"cpu": "processor", "memory": "memory"}),
    ):
        shares = {
            f"{host.name} {words}" if several else words: _percent(host.curves[kind])
            for host in run.hosts
            for kind, words in kinds.items()
            if kind in host.curves
        }
        if id == "gpus":
            shares |= _cards(run, several)
        yield _chart(id, title, "%", shares, dashed="memory")
    disk = {
        f"{host.name} {words}" if several else words: host.curves[kind]
        for host in run.hosts
        for kind, words in (("disk_read", "read"), ("disk_written", "written"))
        if kind in host.curves
    }
    yield _chart("disk", "Disk", "MB/s", disk, dashed="written")


def _cards(run: RunRecord, several_hosts: bool) -> dict[str, Curve]:
    """The utilisation of each card, where a host has several: their mean hides one that idles."""
    return {
        f"{f'{host.name} ' if several_hosts else ''}GPU {gpu.index} utilised": _percent(gpu.curves["gpu_utilisation"])
        for host in run.hosts
        if len(host.gpus) > 1
        for gpu in host.gpus
        if "gpu_utilisation" in gpu.curves
    }


def _percent(curve: Curve) -> Curve:
    return Curve(curve.at, PERCENT * curve.values)
