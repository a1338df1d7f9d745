"""The exchange of a run on cards that nobody has rented yet: each strategy over links of given rates, at their best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tandem.cards import GIGA
from tandem.cluster.probe import Link
from tandem.cluster.strategies import Circumstances
from tandem.cluster.traffic import BYTES_A_VALUE, ring_bytes
from tandem.config import Config, ModelConfig
from tandem.doctor.advise import WORST_SLOW_DOWN
from tandem.doctor.predict import MBIT, Prediction, Task, predictions
from tandem.model.memory_estimate import BUCKET_VALUES, FLOAT32, layer_parameters, padded_vocabulary
from tandem.train.plan import BACKWARD_SHARE

if TYPE_CHECKING:
    from tandem.doctor.card_prediction import Machines

# Of a link's rate, what TCP leaves for data in frames of 1,500 bytes; of the links inside a host, what NCCL reaches.
LINK_SHARE, PEER_SHARE = 1448 / 1538, 0.7


@dataclass(frozen=True)
class CardExchange:
    """Every strategy that there is to choose from, and what it costs a step."""

    predictions: tuple[Prediction, ...]
    together_seconds: float
    """Of a step without any exchange, in which every process waits for the slowest."""
    apart_seconds: float
    """Of such a step, if hosts do not wait for each other."""

    @property
    def chosen(self) -> Prediction:
        """The strategy that the settings lead to."""
        return next(each for each in self.predictions if each.chosen)

    @property
    def network_seconds(self) -> float:
        """What the chosen strategy adds to a step, in the mean."""
        return self.chosen.step_seconds - self._waited_seconds

    def waiting_seconds(self, computing: float) -> float:
        """What waiting for the slowest adds to so much computing."""
        return self._waited_seconds - computing

    @property
    def reason_against(self) -> str | None:
        """Why not to start with the chosen strategy."""
        chosen = self.chosen
        if chosen.slow_down <= WORST_SLOW_DOWN:
            return None
        best = min(self.predictions, key=lambda each: each.step_seconds)
        remedy = "take a faster link, or one host"
        if best.slow_down <= WORST_SLOW_DOWN:
            remedy = f"{best.exchange} would make it {best.slow_down:.1f} times as long, or take a faster link"
        return f"{chosen.exchange} makes a step {chosen.slow_down:.1f} times as long as its compute: {remedy}"

    @property
    def _waited_seconds(self) -> float:
        return self.apart_seconds if self.chosen.kind == "diloco" else self.together_seconds


def predict_exchange(
    config: Config,
    vocab_size: int,
    machines: Machines,
    *,
    remembers: bool,
    together_seconds: float,
    apart_seconds: float,
    micro_batch_seconds: float,
) -> CardExchange:
    """Step time with every strategy; processes inside a host sum over its own links, hosts over the network."""
    embedding = padded_vocabulary(vocab_size) * config.model.d_model
    values = layer_parameters(config.model) + embedding
    peer, link = PEER_SHARE * machines.card.peer_gb * GIGA, LINK_SHARE * machines.link_mbit * MBIT
    slowest = link if machines.hosts > 1 else peer
    inside = ring_bytes(values * FLOAT32, machines.cards) / peer
    sums = {
        kind: inside + ring_bytes(int(values * size), machines.hosts) / link for kind, size in BYTES_A_VALUE.items()
    }
    # A plain all-reduce is one ring of all processes, as fast as its slowest link.
    sums["allreduce"] = ring_bytes(values * FLOAT32, machines.processes) / slowest
    if remembers:
        low_rank = _low_rank_values(config.model, vocab_size, config.exchange.powersgd_rank)
        sums["powersgd"] = inside + ring_bytes(low_rank * FLOAT32, machines.hosts) / link
    seen = Circumstances(
        link=Link(slowest, 0.0),
        sum_seconds=sums,
        together_seconds=together_seconds,
        apart_seconds=apart_seconds,
        backward_seconds=BACKWARD_SHARE * micro_batch_seconds,
        buckets=_buckets(config.model, embedding),
        remembers=remembers,
        deltas=config.exchange.deltas,
    )
    task = Task(config, machines.hosts, values, machines.price_per_hour)
    return CardExchange(predictions(task, seen), together_seconds, apart_seconds)


def _low_rank_values(model: ModelConfig, vocab_size: int, rank: int) -> int:
    """Length of what PowerSGD sends: two factors of this rank for each matrix, and biases and norms as they are."""
    width, inner = model.d_model, model.d_ff
    feed_forward = 2 * (width + inner)
    own, cross = (width + 3 * width) + 2 * width, 2 * (2 * width) + (width + 2 * width)
    sides = model.encoder_layers * (own + feed_forward) + model.decoder_layers * (own + cross + feed_forward)
    matrices = (model.encoder_layers * 4 + model.decoder_layers * 8) * width**2
    matrices += (model.encoder_layers + model.decoder_layers) * 2 * width * inner
    return rank * (sides + padded_vocabulary(vocab_size) + width) + layer_parameters(model) - matrices


def _buckets(model: ModelConfig, embedding: int) -> tuple[float, ...]:
    """Shares of the gradient in the order in which an all-reduce sends them: the embedding, whole, comes last."""
    layers = layer_parameters(model)
    full, rest = divmod(layers, BUCKET_VALUES)
    lengths = [BUCKET_VALUES] * full + [rest, embedding]
    return tuple(length / (layers + embedding) for length in lengths if length)
