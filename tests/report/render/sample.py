"""A report as a real run would give: eleven answers, six charts, two hosts, one resume."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tandem.report.answers import Answer, Chart, Report, Trace
from tandem.report.record import Curve

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
        questions=(*first_answers(), *middle_answers(), *last_answers()),
        problems=("journal/rank-1.jsonl: the last line is torn; everything before it was read.",),
        charts=sample_charts(),
    )


def first_answers() -> tuple[Answer, ...]:
    return (
        Answer(
            id="duration",
            question="How long did the run take?",
            verdict="measured",
            confidence="high",
            answer="19 h 12 min from first to last step, of which 17 h 58 min were training; it was interrupted once.",
            evidence={
                "wall_seconds": 69_120.0,
                "training_seconds": 64_680.0,
                "evaluation_seconds": 3_310.0,
                "idle_seconds": 412.0,
                "interruptions": 1,
            },
            explanation="Wall time is what the machines are rented for; evaluation and saving belong to it.",
        ),
        Answer(
            id="trained",
            question="Is the model fully trained, and how can you tell?",
            verdict="improving",
            confidence="medium",
            answer="Not yet: BLEU still rises by 0.21 (0.09 to 0.33) in 10,000 steps; twice the steps may give 27.3.",
            evidence={
                "bleu_per_10000_steps": 0.21,
                "bleu_per_10000_steps_interval": [0.09, 0.33],
                "eval_loss_per_10000_steps": -0.0134,
                "forecast_bleu": 27.3,
                "forecast_bleu_interval": [26.7, 28.1],
                "forecast_hours": 19.2,
                "forecast_cost_dollars": 115.2,
            },
            explanation="That the process has ended says nothing: only the curves' slope beyond their noise does.",
        ),
        Answer(
            id="overfitting",
            question="Was it overfitting?",
            verdict="no",
            confidence="high",
            answer="No: the evaluation loss has not turned; its last value is its best.",
            evidence={"best_eval_loss": 1.482, "best_eval_loss_step": 50_000, "noise": 0.0041},
            explanation="Overfitting is a rising evaluation loss beneath a falling training loss.",
        ),
        Answer(
            id="utilisation",
            question="Were the devices fully utilised?",
            verdict="under_used",
            confidence="high",
            answer="No: 38 % of the time was compute, although utilisation reads 98 %.",
            evidence={"compute_share": 0.381, "gpu_utilisation_share": 0.981, "gpu_power_share": 0.542},
            explanation="Utilisation counts a device that spins while it waits as busy; its power does not.",
        ),
    )


def middle_answers() -> tuple[Answer, ...]:
    return (
        Answer(
            id="network",
            question="Was the network the bottleneck?",
            verdict="bottleneck",
            confidence="high",
            answer="Yes: 58 % of a step is communication that nothing hides, at 93 % of what the link can carry.",
            evidence={
                "exposed_share": 0.583,
                "ring_bytes_per_step": 244_000_000,
                "ring_floor_seconds": 1.952,
                "rate_mbit_per_second": 931.0,
                "link_mbit_per_second": 1000,
                "step_by_link_seconds": {"10x slower": 20.3, "as it was": 3.35, "10x faster": 1.4},
            },
            explanation="Each card must send 2(N-1)/N times the gradient every step, whatever the devices do.",
        ),
        Answer(
            id="learning_rate",
            question="What did the learning rate do?",
            verdict="as_configured",
            confidence="high",
            answer="It rose over 8,000 steps to 7.0e-4 and then fell with the root of the step, as the settings say.",
            evidence={"peak": 0.0007, "peak_step": 8_000, "largest_difference": 3.2e-10},
            explanation="It depends on the step alone; it does not wait for the loss to stand still.",
        ),
        Answer(
            id="training_set",
            question="How large is the training set?",
            verdict="measured",
            confidence="high",
            answer="4,524,868 pairs after cleaning: 576.3 MB of English and 650.9 MB of German.",
            evidence={
                "texts": [
                    {"language": "en", "raw_lines": 4_562_102, "raw_bytes": 637_120_000, "cleaned_bytes": 576_312_441},
                    {"language": "de", "raw_lines": 4_562_102, "raw_bytes": 711_330_900, "cleaned_bytes": 650_881_204},
                ]
            },
            explanation="Sizes differ between people because some measure before cleaning, some after splitting words.",
        ),
        Answer(
            id="checkpoint_files",
            question="Which files make up a checkpoint?",
            verdict="listed",
            confidence="high",
            answer="Three: the weights, the optimizer's means, and a page of facts.",
            evidence={
                "files": [
                    {"name": "model.safetensors", "bytes": 244_102_332, "what": "weights"},
                    {"name": "optimizer.safetensors", "bytes": 488_204_664, "what": "Adam's two means of each weight"},
                    {"name": "state.json", "bytes": 812, "what": "step, counts, digests"},
                ]
            },
            explanation="To translate only the weights are needed; to go on training, all three.",
        ),
    )


def last_answers() -> tuple[Answer, ...]:
    return (
        Answer(
            id="checkpoint_size",
            question="How large is a checkpoint?",
            verdict="measured",
            confidence="high",
            answer="732.3 MB: 244.1 MB of weights and 488.2 MB of optimizer.",
            evidence={"weights_bytes": 244_102_332, "optimizer_bytes": 488_204_664, "kept": 5},
            explanation="Adam keeps two numbers for every weight, so the optimizer is twice as large as the model.",
        ),
        Answer(
            id="step_time",
            question="How long is an average step?",
            verdict="steady",
            confidence="high",
            answer="1.29 s in the median, 1.21 to 1.44 s for nine of ten; 14 outliers, all beside a checkpoint.",
            evidence={"median_seconds": 1.294, "spread_seconds_interval": [1.211, 1.438], "outliers": 14},
            explanation="The median is what a step usually takes; the mean is drawn up by a few long ones.",
        ),
        Answer(
            id="network_correlation",
            question="How do step time and network use relate?",
            verdict="unknown",
            confidence="none",
            answer="It cannot be told: both stayed so steady that there is nothing to correlate.",
            evidence={"correlation": None, "network_bytes_per_step": 251_400_000},
            explanation="Two things that never change cannot be seen to change together.",
        ),
    )


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
