"""The exchange of a run on cards that nobody has rented yet: each strategy over links of given rates, at their best."""

from __future__ import annotations

from dataclasses import dataclass

from tandem.cards import GIGA
from tandem.cluster.exchange.choose_strategy import Link, StepCosts
from tandem.cluster.exchange.gradient_reducer import bucket_shares
from tandem.cluster.exchange.strategy import may_keep_state, values_in
from tandem.cluster.exchange.traffic import BASELINE, ring_bytes
from tandem.config import Config
from tandem.doctor.card.prediction import Machines
from tandem.doctor.predict import MBIT, PlannedRun, Prediction, payloads, predictions
from tandem.model.memory_estimate import FLOAT32
from tandem.training.startup.exchange_plan import BACKWARD_SHARE, gradient_shapes

# Shares of a rate: what TCP leaves of a link's for data in frames of 1,500 bytes, and what NCCL reaches of the links
# inside a host.
LINK_SHARE, PEER_SHARE = 1448 / 1538, 0.7
# Processes wait for the one with the longest sentences in every step: four A100 do 3.49 times the work of one in
# NVIDIA's table (DeepLearningExamples, PyTorch/Translation/Transformer).
WAITING_FACTOR = 4 / 3.49


@dataclass(frozen=True)
class CardExchange:
    """Every strategy that there is to choose from, and what it costs a step."""

    predictions: tuple[Prediction, ...]
    together_seconds: float
    """Seconds of a step without any exchange, in which every process waits for the slowest."""
    apart_seconds: float
    """Seconds of such a step, if hosts do not wait for each other."""

    @property
    def chosen(self) -> Prediction:
        """The strategy that the settings lead to."""
        return next(each for each in self.predictions if each.chosen)

    @property
    def compute_seconds(self) -> float:
        """Seconds of a step without its exchange under the chosen strategy, waiting for other processes included."""
        return self.together_seconds if self.chosen.strategy.syncs_every_step else self.apart_seconds

    @property
    def reason_against(self) -> str:
        """Why not to start with the chosen strategy, which is too slow."""
        chosen, best = self.chosen, min(self.predictions, key=lambda each: each.step_seconds)
        remedy = "take a faster link, or one host"
        if not best.is_too_slow:
            remedy = f"{best.exchange} would make it {best.slow_down:.1f} times as long, or take a faster link"
        return f"{chosen.exchange} makes a step {chosen.slow_down:.1f} times as long as its compute: {remedy}"


def predict_exchange(
    config: Config, vocab_size: int, machines: Machines, alone_seconds: float, micro_batch_seconds: float
) -> CardExchange:
    """Step time with every strategy; processes inside a host sum over its own links, hosts over the network.

    `alone_seconds` is a step of one process that waits for nobody.
    """
    together = alone_seconds * WAITING_FACTOR
    apart = together if machines.cards > 1 else alone_seconds
    shapes = gradient_shapes(config, vocab_size)
    peer, link = PEER_SHARE * machines.card.peer_gb * GIGA, LINK_SHARE * machines.link_mbit * MBIT
    slowest = link if machines.hosts > 1 else peer
    gradient = values_in(shapes) * FLOAT32
    inside = ring_bytes(gradient, machines.cards) / peer
    sums = {kind: inside + ring_bytes(size, machines.hosts) / link for kind, size in payloads(config, shapes).items()}
    # A plain all-reduce is one ring of all processes, as fast as its slowest link.
    sums[BASELINE] = ring_bytes(gradient, machines.processes) / slowest
    costs = StepCosts(
        link=Link(slowest, 0.0),
        sum_seconds=sums,
        together_seconds=together,
        apart_seconds=apart,
        backward_seconds=BACKWARD_SHARE * micro_batch_seconds,
        buckets=bucket_shares(shapes),
        may_keep_state=may_keep_state(config),
        settings=config.exchange,
    )
    planned = PlannedRun(config, machines.hosts, shapes, machines.price_per_hour)
    return CardExchange(predictions(planned, costs), together, apart)
