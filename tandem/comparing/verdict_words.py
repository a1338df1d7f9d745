"""Verdicts on differences, in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from tandem.comparing.comparison import Group, MetricDifference, Verdict
from tandem.comparing.seed_spread import SeedTest

LEVEL = 0.05
"""Below this p value a difference is taken to be more than chance."""
FEW_SEEDS = 5
"""With fewer runs a group tells little of how its seeds spread."""
_CASES = 1000


def judge(difference: float, p_values: Sequence[float], *, lower_is_better: bool, alike: bool) -> Verdict:
    """Better or worse where all tests agree that chance would hardly do it."""
    if alike:
        return "same"
    if max(p_values) >= LEVEL:
        return "unclear"
    return "better" if (difference < 0) == lower_is_better else "worse"


def difference_words(found: MetricDifference, first: Group, second: Group, sentences: int) -> str:
    """A metric's difference as a person would say it."""
    metric, amount = found.metric, abs(found.difference)
    if found.verdict == "same":
        return f"{metric}: no difference, {first.title} and {second.title} translate every sentence alike."
    by_sentences = "" if found.seeds is None else "by sentences "
    tested = f"95 % {by_sentences}between {signed(found.low)} and {signed(found.high)}"
    if found.verdict in ("better", "worse"):
        average = "on average " if found.seeds is not None else ""
        lower = " (lower is better)" if found.lower_is_better else ""
        words = f"{metric}: {second.title} is {average}{found.verdict} by {amount:.2f}{lower}, {tested}"
        return f"{words}; {chance(telling_p(found))}{_seed_words(found.seeds)}."
    return f"{metric}: {_unclear(found, sentences)} The difference is {signed(found.difference)}, {tested}."


def headline(
    first: Group, second: Group, differences: Sequence[MetricDifference], sentences: int
) -> tuple[Verdict, str]:
    """All metrics together in one sentence."""
    amounts = ", ".join(f"{found.metric} {signed(found.difference)}" for found in differences)
    by_verdict = {
        verdict: [found.metric for found in differences if found.verdict == verdict]
        for verdict in ("better", "worse", "unclear", "same")
    }
    if len(by_verdict["same"]) == len(differences):
        return "same", f"{first.title} and {second.title} translate all {sentences:,} sentences alike."
    better, worse = by_verdict["better"], by_verdict["worse"]
    if not better and not worse:
        said = f"these {sentences:,} sentences cannot tell {second.title} and {first.title} apart"
        if any(found.seeds for found in differences):
            said = f"these runs on {sentences:,} sentences cannot tell {second.title} and {first.title} apart"
        return "unclear", f"{said[0].upper()}{said[1:]} ({amounts})."
    if better and worse:
        return "unclear", (
            f"{second.title} is better than {first.title} by {_listed(better)} and worse by {_listed(worse)}: "
            f"the metrics disagree ({amounts})."
        )
    verdict: Verdict = "better" if better else "worse"
    rest = by_verdict["unclear"]
    but = f"; {_listed(rest)} cannot tell them apart" if rest else ""
    return verdict, f"{second.title} is {verdict} than {first.title} by {_listed(better or worse)}{but} ({amounts})."


def chance(p: float) -> str:
    """A p value in words."""
    cases = round(p * _CASES)
    many = f"{cases} of {_CASES:,}" if cases else f"fewer than 1 of {_CASES:,}"
    return f"so large a difference would come by chance in {many} cases"


def telling_p(found: MetricDifference) -> float:
    """The p value to say in words: how often swapped translations differ so much, or else the least sure one."""
    if found.p_randomisation is not None:
        return found.p_randomisation
    return max(p_values(found.p_bootstrap, None, found.seeds))


def p_values(p_bootstrap: float, p_randomisation: float | None, seeds: SeedTest | None) -> list[float]:
    return [p for p in (p_bootstrap, p_randomisation, None if seeds is None else seeds.p) if p is not None]


def _unclear(found: MetricDifference, sentences: int) -> str:
    """Why a difference is not settled."""
    seeds = found.seeds
    if seeds is not None and seeds.p >= LEVEL:
        return (
            f"seeds spread by {seeds.spread:.2f} (standard deviation), and with so few runs only a difference above "
            f"{seeds.least_telling:.2f} could be told from that; so large a one {_comes(seeds.p)}."
        )
    if found.p_randomisation is not None and min(found.p_randomisation, found.p_bootstrap) < LEVEL:
        return (
            f"not settled, the two tests disagree (p {found.p_randomisation:.3f} by randomisation, "
            f"{found.p_bootstrap:.3f} by bootstrap)."
        )
    return f"these {sentences:,} sentences cannot tell them apart; so large a difference {_comes(telling_p(found))}."


def _comes(p: float) -> str:
    return f"comes by chance in {round(p * _CASES):,} of {_CASES:,} cases"


def _seed_words(seeds: SeedTest | None) -> str:
    if seeds is None:
        return ""
    return f", with seeds that spread by {seeds.spread:.2f} (standard deviation)"


def signed(value: float, digits: int = 2) -> str:
    """A difference with its sign."""
    return f"{value:+.{digits}f}".replace("-", "\N{MINUS SIGN}")


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
