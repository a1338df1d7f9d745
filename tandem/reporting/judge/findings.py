"""All verdicts on a run, from which the questions are answered."""

from __future__ import annotations

from dataclasses import dataclass

from tandem.reporting.judge.learning_verdicts import Learning
from tandem.reporting.judge.network_share import NetworkFacts, judge_network
from tandem.reporting.judge.processor_share import ProcessorFacts, judge_processors
from tandem.reporting.judge.step_times import StepFacts, summarise_steps
from tandem.reporting.run_record import RunRecord


@dataclass(frozen=True)
class RunFindings:
    """What was found about learning, network, processors and step times of a run."""

    learning: Learning
    network: NetworkFacts
    processors: ProcessorFacts | None
    steps: StepFacts | None
    price_per_hour: float | None
    """Price of one machine, if the user has given it."""
    machines: int

    def cost(self, seconds: float) -> float | None:
        """Cost of all machines for so many seconds; None if the price is not known."""
        return None if self.price_per_hour is None else self.price_per_hour * self.machines * seconds / 3600


def judge_run(run: RunRecord, price_per_hour: float | None = None) -> RunFindings:
    processors = judge_processors(run)
    steps = summarise_steps(run, processors)
    return RunFindings(Learning(run), judge_network(run), processors, steps, price_per_hour, run.team.hosts or 1)
