"""A report as a real run would give: eleven answers, six charts, two hosts, one resume."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from tandem.reporting.answers import Answer, Chart, Report, Trace
from tandem.reporting.run_record import Curve

STEPS = 50_000
EVERY = 100
RESUMED = 31_200.0
HOSTS = ("trainer-1", "trainer-2")

SUMMARY = (
    "Base Transformer, English to German, on 2 hosts: 50,000 steps in 19 h 12 min, finished.",
    "BLEU on the development set is 26.4 and still rises by about 0.2 in 10,000 steps.",
    "The network was the bottleneck: 58 % of every step went into waiting for gradients to cross a link of 1 Gbit/s.",
    "A ten times faster link would have saved 11 hours; `diloco` would have saved most of them on this one.",
)


def sample_report() -> Report:
    """The whole of it, the same every time."""
    return Report(
        path="runs/wmt16-base-2hosts",
        source="Tandem run",
        state="finished",
        axis="step",
        version="0.1.0",
        made="2026-11-16T03:30:00+00:00",
        summary=SUMMARY,
        questions=sample_answers(),
        problems=("journal/rank-1.jsonl: the last line is torn; everything before it was read.",),
        charts=sample_charts(),
    )


def sample_answers() -> tuple[Answer, ...]:
    text = Path(__file__).with_name("sample_answers.yaml").read_text(encoding="utf-8")
    return tuple(Answer(id=id, **fields) for id, fields in yaml.safe_load(text).items())


def sample_charts() -> tuple[Chart, ...]:
    steps = np.arange(EVERY, STEPS + 1, EVERY, dtype=np.float64)
    evaluated = np.arange(2_000, STEPS + 1, 2_000, dtype=np.float64)
    noise = np.random.default_rng(4)
    resumed = ((RESUMED, "resumed"),)
    return (
        Chart(
            id="loss",
            title="Losses",
            y_label="nats per token",
            traces=(
                Trace(name="training", curve=Curve(steps, loss(steps) + noise.normal(0, 0.03, len(steps)))),
                Trace(name="evaluation", curve=Curve(evaluated, loss(evaluated) - 0.12)),
            ),
            note="Both still fall; training is measured with dropout on and therefore lies higher.",
            marks=resumed,
        ),
        Chart(
            id="bleu",
            title="BLEU",
            y_label="BLEU",
            traces=(Trace(name="development set", curve=Curve(evaluated, 26.6 * (1 - np.exp(-evaluated / 9_000)))),),
            note="sacreBLEU on detokenised text.",
        ),
        Chart(
            id="learning_rate",
            title="Learning rate",
            y_label="learning rate",
            traces=(
                Trace(name="logged", curve=Curve(steps, rate(steps))),
                Trace(name="from the settings", curve=Curve(steps, rate(steps)), dashed=True),
            ),
        ),
        parts_chart(steps, noise),
        *host_charts(noise),
    )


def loss(steps: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1.6 + 8.0 * np.exp(-steps / 1_500) + 1.2 * np.exp(-steps / 14_000)


def rate(steps: NDArray[np.float64]) -> NDArray[np.float64]:
    return 7e-4 * np.minimum(steps / 8_000, np.sqrt(8_000 / steps))


def parts_chart(steps: NDArray[np.float64], noise: np.random.Generator) -> Chart:
    means = {"data": 0.01, "compute": 0.49, "communication": 0.75, "waiting": 0.03, "optimizer": 0.02}
    traces = [
        Trace(name=name, curve=Curve(steps, mean * noise.gamma(60, 1 / 60, len(steps)))) for name, mean in means.items()
    ]
    return Chart(
        id="parts",
        title="Where a step's time goes",
        y_label="seconds a step",
        traces=tuple(traces),
        stacked=True,
        note="Communication that backward does not hide is the largest part.",
        marks=((RESUMED, "resumed"),),
    )


def host_charts(noise: np.random.Generator) -> tuple[Chart, ...]:
    at = np.arange(0, STEPS, 25, dtype=np.float64)
    sent, used = [], []
    for host in HOSTS:
        rates = 900 + noise.normal(0, 15, len(at)).cumsum() / 10
        rates[1240:1256] = np.nan
        sent.append(Trace(name=f"{host} sent", curve=Curve(at, rates)))
        sent.append(Trace(name=f"{host} received", curve=Curve(at, rates * 0.99 - 8), dashed=True))
        used.append(Trace(name=f"{host} utilisation", curve=Curve(at, 100 * noise.beta(80, 2, len(at)))))
        used.append(Trace(name=f"{host} power", curve=Curve(at, 54 + noise.normal(0, 2, len(at))), dashed=True))
    return (
        Chart(
            id="network", title="Network", y_label="Mbit/s", traces=tuple(sent), note="The link carries 1,000 Mbit/s."
        ),
        Chart(id="gpus", title="Device use", y_label="%", traces=tuple(used), note="Power is of the card's cap."),
    )
