"""All that is worked out of a run before the questions are answered."""

from __future__ import annotations

from dataclasses import dataclass

from tandem.report.network import NetworkFacts, look_at_network
from tandem.report.record import RunRecord
from tandem.report.steps import StepFacts, look_at_steps
from tandem.report.verdicts import Learning, judge


@dataclass(frozen=True)
class Findings:
    """What a run shows, theme by theme."""

    learning: Learning
    network: NetworkFacts
    steps: StepFacts | None
    price_per_hour: float | None
    """What one machine costs in an hour, if the user has said so."""
    machines: int


def find(run: RunRecord, price_per_hour: float | None = None) -> Findings:
    return Findings(judge(run), look_at_network(run), look_at_steps(run), price_per_hour, run.team.hosts or 1)


def cost(findings: Findings, seconds: float) -> float | None:
    """What so much time of all machines costs."""
    return None if findings.price_per_hour is None else findings.price_per_hour * findings.machines * seconds / 3600
