"""What a checkpoint's weights achieved on the dev sets, by which the best checkpoints are chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tandem.metrics import BY_DEV_BLEU, DEV, Criterion
from tandem.monitor.records import Evaluated


@dataclass(frozen=True)
class Merits:
    """Every metric that was taken on every dev set, and which of them counts."""

    values: Mapping[str, float]
    """By dev set and metric: `dev/bleu`."""
    best_by: Criterion = BY_DEV_BLEU
    partial: tuple[str, ...] = ()
    """Dev sets whose first sentences alone were translated."""

    @classmethod
    def of(cls, evaluations: Sequence[Evaluated], best_by: Criterion) -> Merits:
        """What the evaluations of one step say, one for each dev set."""
        values = {f"{one.split}/{name}": value for one in evaluations for name, value in one.values.items()}
        partial = tuple(one.split for one in evaluations if one.first_sentences is not None)
        return cls(values, best_by, partial)

    @classmethod
    def of_bleu(cls, bleu: float) -> Merits:
        """Those of a version that knew one dev set and one metric."""
        return cls({str(BY_DEV_BLEU): bleu})

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Merits:
        """What a checkpoint's facts say; nothing where it is not one of the best, a ValueError for damaged ones."""
        if "best_by" not in facts:
            return cls({}) if facts.get("bleu") is None else cls.of_bleu(float(facts["bleu"]))
        values = {str(name): float(value) for name, value in dict(facts["values"]).items()}
        return cls(values, Criterion.parse(facts["best_by"]), tuple(map(str, facts["partial"])))

    def as_facts(self) -> dict[str, Any]:
        """What `read` reads; `bleu` is for older versions."""
        named = {"best_by": str(self.best_by), "values": dict(self.values), "partial": list(self.partial)}
        return {"bleu": self.dev_bleu, **named}

    @property
    def dev_bleu(self) -> float | None:
        return self.values.get(str(BY_DEV_BLEU))

    def rank(self, criterion: Criterion) -> tuple[bool, float]:
        """What is greater for the better of two checkpoints."""
        return criterion.rank(self.values.get(str(criterion)), whole=criterion.dev_set not in self.partial)


def dev_evaluation(evaluations: Sequence[Evaluated]) -> Evaluated:
    """The evaluation on dev, which is always among them."""
    return next(one for one in evaluations if one.split == DEV)
