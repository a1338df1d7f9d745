"""Real runs of other people, beside the project, get the verdict that a careful reader gave them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandem.reporting.answers import Answer
from tandem.reporting.examine_run import examine
from tandem.reporting.formats.find_run import read_run
from tests.places import RUNS

# What curves/LABELS.csv says of each curve, in the words of the verdicts; None where it says nothing of overfitting.
CURVES = {
    "multi30k-CountingMstar-original.csv": ("converged", "no"),
    "multi30k-CountingMstar-plain.csv": ("diverged", None),
    "mhplstm-trellix.valid.csv": ("converged", "yes"),
    "multi30k-hyunwoongko-transformer.csv": ("improving", "no"),
    "joeynmt-andreiiaramos-bpe2k.validations.txt": ("improving", "no"),
    "joeynmt-andreiiaramos-word2k.validations.txt": ("converged", "no"),
    "joeynmt-xuyuanyuan24-deen.validations.txt": ("improving", "no"),
    "joeynmt-hexm3x-bpe2000.validations.txt": ("degenerate", "unknown"),
    "multi30k-Alice-XiaolinZhu-transformer-translation-result.csv": ("too_short", None),
}
# State, trained, overfitting, network, and the median step in seconds.
LOGS = {
    "improving-1.7s.log": ("unknown", "improving", "no", "bottleneck", 1.685),
    "improving-0.8s.log": ("unknown", "improving", "no", "bottleneck", 0.782),
    "starved-35s.log": ("unknown", "too_short", "unknown", "bottleneck", 34.9),
    "crash-out-of-memory.log": ("crashed", "too_short", "unknown", "unknown", None),
    "failed-launch.log": ("crashed", "too_short", "unknown", "unknown", None),
}

pytestmark = pytest.mark.skipif(not RUNS.is_dir(), reason="no public runs beside the project")


def answers(path: Path) -> dict[str, Answer]:
    return {answer.id: answer for answer in examine(read_run(path)).questions}


@pytest.mark.parametrize("name", CURVES)
def test_curves(name: str) -> None:
    trained, overfitting = CURVES[name]
    found = answers(RUNS / "curves" / name)
    assert found["trained"].verdict == trained
    if overfitting is not None:
        assert found["overfitting"].verdict == overfitting
    assert found["network"].verdict == "unknown"


@pytest.mark.parametrize("name", LOGS)
def test_logs(name: str) -> None:
    state, trained, overfitting, network, step_seconds = LOGS[name]
    report = examine(read_run(RUNS / "openseq2seq" / name))
    found = {answer.id: answer for answer in report.questions}
    assert report.state == state
    assert (found["trained"].verdict, found["overfitting"].verdict) == (trained, overfitting)
    assert found["network"].verdict == network
    if step_seconds is not None:
        assert found["step_time"].evidence["median_seconds"] == pytest.approx(step_seconds, rel=0.01)
        # The ring of four ranks: 2 * 3/4 of 60,880,896 float32 gradients.
        assert found["network"].evidence["ring_floor_bytes_per_step"] == pytest.approx(365.3e6, rel=1e-3)


def test_the_starved_run_is_told_apart_from_the_slow_one() -> None:
    starved, slow = (
        answers(RUNS / "openseq2seq" / name)["network"] for name in ("starved-35s.log", "improving-1.7s.log")
    )
    assert starved.confidence == "high"
    assert "100 Mbit/s" in starved.answer
    assert slow.evidence["mean_rate_mbit_per_second"] == pytest.approx(1734, rel=0.01)


def test_every_labelled_curve_is_in_the_table() -> None:
    labelled = {line.split(",")[0] for line in (RUNS / "curves/LABELS.csv").read_text().splitlines()[1:]}
    assert labelled == set(CURVES)
