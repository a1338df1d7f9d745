"""Speeds that others have published for Transformers on GPUs, and the prediction for the same model and cards.

Their programs are not Tandem, so that a difference is in part theirs; nothing here was measured by us. Tokens are
non-padding target tokens. Which constants come from where is said beside them in tandem/doctor/card/step_work.py; of
the figures below only the scaling from one A100 to four has set one (the waiting of many processes for the slowest).
"""

from __future__ import annotations

from dataclasses import dataclass

from tandem.cards import find_card
from tandem.config import Config
from tandem.doctor.card.prediction import CardPrediction, Machines, predict_on_card

# The README of NVIDIA's DeepLearningExamples, PyTorch/Translation/Transformer, and an older version of it.
NVIDIA, OLD_NVIDIA = "NVIDIA 22.06", "NVIDIA 18.12"
# A maintainer in github.com/facebookresearch/fairseq/issues/940: "at least", with PyTorch 1.1.
FAIRSEQ = "fairseq 2019"
# Runs of OpenSeq2Seq with TensorFlow 1 and Horovod, as a class of engineers reported them.
CLASS = "OpenSeq2Seq"
# NVIDIA's and fairseq's joint vocabularies of WMT English-German.
VOCABULARY = {"transformer-big": 33_708, "transformer-base": 32_768}
# Both recipes drop a tenth of everything.
DROPOUT = ("model.dropout=0.1", "model.attention_dropout=0.1", "model.activation_dropout=0.1")
# The class's logs: 36,410 source and target tokens a second at 1.714 s a step on four cards, and an eighth of padding.
CLASS_TOKENS = 8_900


@dataclass(frozen=True)
class Published:
    """A speed that somebody has measured."""

    source: str
    preset: str
    card: str
    tokens: int
    """Most tokens on either side of a micro-batch."""
    precision: str
    tokens_per_second: float | None = None
    step_seconds: float | None = None
    cards: int = 1
    hosts: int = 1
    link_mbit: float = 1_000
    close: bool = True
    """Whether a test holds the prediction to it: not for programs of 2018 and 2019, nor for a link's rate on paper."""

    def predicted(self) -> CardPrediction:
        """The prediction for the same model, batch and cards."""
        settings = [
            *DROPOUT,
            f"batch.tokens={self.tokens}",
            f"batch.micro_batches={self.cards * self.hosts}",
            f"train.precision={'float32' if self.precision == 'TF32' else self.precision}",
            f"train.tf32={str(self.precision == 'TF32').lower()}",
            "exchange.kind=allreduce",
        ]
        machines = Machines(find_card(self.card), self.cards, self.hosts, self.link_mbit)
        return predict_on_card(Config.load(self.preset, settings), VOCABULARY[self.preset], machines)

    def speed_ratio(self) -> float:
        """How many times as fast the prediction is as the measurement."""
        predicted = self.predicted()
        if self.tokens_per_second is not None:
            return predicted.tokens_per_second / self.tokens_per_second
        assert self.step_seconds is not None
        return self.step_seconds / predicted.step_seconds

    @property
    def machines(self) -> str:
        hosts = f"{self.hosts} hosts, {self.link_mbit:g} Mbit/s, " if self.hosts > 1 else ""
        return f"{hosts}{self.cards} x {self.card}"


BIG, BASE = "transformer-big", "transformer-base"
PUBLISHED = (
    Published(NVIDIA, BIG, "A100-SXM4-40GB", 10_240, "float16", 82_059),
    Published(NVIDIA, BIG, "A100-SXM4-40GB", 10_240, "TF32", 51_057),
    Published(NVIDIA, BIG, "A100-SXM4-40GB", 10_240, "float16", 286_081, cards=4),
    Published(NVIDIA, BIG, "A100-SXM4-40GB", 10_240, "float16", 551_599, cards=8),
    Published(NVIDIA, BIG, "A100-SXM4-40GB", 10_240, "TF32", 347_936, cards=8),
    Published(NVIDIA, BIG, "V100-SXM2-16GB", 5_120, "float16", 32_942),
    Published(NVIDIA, BIG, "V100-SXM2-16GB", 2_560, "float32", 8_742),
    Published(NVIDIA, BIG, "V100-SXM2-16GB", 5_120, "float16", 214_656, cards=8),
    Published(NVIDIA, BIG, "V100-SXM2-16GB", 2_560, "float32", 59_316, cards=8),
    Published(NVIDIA, BIG, "V100-SXM2-32GB", 10_240, "float16", 39_911),
    Published(NVIDIA, BIG, "V100-SXM2-32GB", 5_120, "float32", 9_827),
    Published(NVIDIA, BIG, "V100-SXM2-32GB", 10_240, "float16", 517_227, cards=16),
    Published(OLD_NVIDIA, BIG, "V100-SXM2-16GB", 5_120, "float16", 32_153, close=False),
    Published(OLD_NVIDIA, BIG, "V100-SXM2-16GB", 2_560, "float16", 23_821, close=False),
    Published(FAIRSEQ, BASE, "V100-SXM2-16GB", 4_000, "float16", 160_000, cards=4, close=False),
    Published(FAIRSEQ, BASE, "V100-SXM2-16GB", 4_000, "float32", 73_000, cards=4, close=False),
    *(
        Published(CLASS, BASE, "V100-PCIE-16GB", CLASS_TOKENS, "float16", None, seconds, 2, 2, mbit, close)
        for seconds, mbit, close in (
            (30, 100, True),
            (34.9, 100, True),
            # What their network cards were seen to carry in the same runs, 200 and 446 MB/s.
            (1.685, 1_600, True),
            (0.782, 3_568, True),
            # What the port of the first had been sold as.
            (1.685, 1_000, False),
        )
    ),
)
