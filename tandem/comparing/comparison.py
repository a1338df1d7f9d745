"""The comparison object: terminal text, page, Markdown and JSON are rendered from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from tandem.comparing.seed_spread import SeedTest
from tandem.reporting.answers import Chart, for_json
from tandem.scoring import Score

Verdict = Literal["better", "worse", "unclear", "same"]
"""What is said of a system beside the one it is compared with; `unclear` where chance alone may have done it."""


@dataclass(frozen=True, kw_only=True)
class ScoredSystem:
    """A system and how well it translates the test set."""

    name: str
    kind: str
    path: str
    checkpoint: str
    """Which of the run's checkpoints, with its step; empty for a file of translations."""
    step: int | None
    seed: int | None
    engine: str | None
    translated: bool
    """Whether the test set was translated for this comparison; not where translations were kept or given."""
    scores: tuple[Score, ...]


@dataclass(frozen=True, kw_only=True)
class MetricSpread:
    """A metric over the runs of a group."""

    metric: str
    mean: float
    deviation: float | None
    """Standard deviation over the seeds; None of one run."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs that differ by nothing but their seed; or one system alone."""

    name: str
    members: tuple[str, ...]
    seeds: tuple[int, ...] = ()
    spreads: tuple[MetricSpread, ...] = ()

    @property
    def title(self) -> str:
        return self.name if len(self.members) == 1 else f"{self.name} ({len(self.members)} seeds)"


@dataclass(frozen=True, kw_only=True)
class MetricDifference:
    """A metric of one group beside another's."""

    metric: str
    difference: float
    """The second less the first; means where a group has several runs."""
    low: float
    high: float
    """What holds 95 % of the differences on resampled sentences."""
    p_bootstrap: float
    p_randomisation: float | None
    """None where a group has several runs: there is no one translation to swap."""
    seeds: SeedTest | None
    """None where no group has several runs."""
    lower_is_better: bool
    signature: str
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class SentenceDifference:
    """A sentence that two systems translate unequally well."""

    number: int
    """Its line in the test set, from 1."""
    source: str
    reference: str
    first: str
    second: str
    first_chrf: float
    second_chrf: float


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Two groups side by side."""

    first: Group
    second: Group
    verdict: Verdict
    headline: str
    """The answer in a sentence."""
    differences: tuple[MetricDifference, ...]
    words: tuple[str, ...]
    """What each of the differences means, a sentence each."""
    gained: tuple[SentenceDifference, ...]
    """Sentences that the second's first run translates better by chrF, the largest difference first."""
    lost: tuple[SentenceDifference, ...]


@dataclass(frozen=True, kw_only=True)
class SettingRow:
    """A setting or fact that is not the same of all systems."""

    key: str
    values: tuple[str | None, ...]
    """In the order of the systems; None where it does not apply."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two or more systems compared on one test set, all with the first."""

    version: str
    made: str
    test_set: str
    sentences: int
    languages: tuple[str, str] | None
    systems: tuple[ScoredSystem, ...]
    groups: tuple[Group, ...]
    contrasts: tuple[Contrast, ...]
    settings: tuple[SettingRow, ...]
    remarks: tuple[str, ...]
    charts: tuple[Chart, ...] = field(default=(), repr=False)

    def as_dict(self) -> dict[str, Any]:
        """The comparison for JSON, without the charts, whose data is in the runs themselves."""
        facts = {name: for_json(value) for name, value in vars(self).items() if name != "charts"}
        facts["contrasts"] = [
            {**for_json(contrast), "first": contrast.first.name, "second": contrast.second.name}
            for contrast in self.contrasts
        ]
        return facts
