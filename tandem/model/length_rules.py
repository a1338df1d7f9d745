"""How long a translation may be, and what its length does to its score; apart from the search, because other engines
search by the same rules, without PyTorch."""

from __future__ import annotations

# A translation may be longer than its source, but not without end: the bound of the original recipe.
EXTRA_LENGTH = 50


def length_limit(source_length: int, max_length: int) -> int:
    """The most pieces a translation may have, given the source's pieces."""
    return min(source_length + EXTRA_LENGTH, max_length)


def length_penalty(length: int, alpha: float) -> float:
    """What a hypothesis' log-probability is divided by, so that longer ones can win."""
    return float(((5 + length) / 6) ** alpha)
