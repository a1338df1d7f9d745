"""The demo corpus: distinct sentence pairs, split so that dev and test hold combinations that training lacks."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path

from tandem.demo.grammar import Combination
from tandem.demo.sentences import CONSTRUCTION_WEIGHTS, Construction, Speaker
from tandem.errors import TandemError

HELD_OUT_PAIRS = 300
LONGEST_WORDS = 14


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation; the rest says how it was made and does not count for equality."""

    source: str
    target: str
    construction: str = field(default="", compare=False)
    combinations: frozenset[Combination] = field(default=frozenset(), compare=False)


@dataclass(frozen=True)
class DemoCorpus:
    train: list[Pair]
    dev: list[Pair]
    test: list[Pair]


def generate(pairs: int = 20_000, seed: int = 1) -> DemoCorpus:
    """Draw `pairs` distinct training pairs, and dev and test pairs with combinations kept from training.

    Dev and test come first and so are the same for every number of training pairs.
    """
    if pairs < 1:
        raise TandemError(f"a demo corpus needs at least 1 training pair, not {pairs}")
    speaker, seen = Speaker(random.Random(seed)), set[str]()
    weighted = [construction for construction, weight in CONSTRUCTION_WEIGHTS.items() for _ in range(weight)]
    # Dev and test take each construction in turn: left to chance, those with few nouns would hardly be tested.
    in_turn = [[construction] for construction in islice(cycle(CONSTRUCTION_WEIGHTS), HELD_OUT_PAIRS)]
    return DemoCorpus(
        dev=[_new_pair(speaker, construction, "dev", seen) for construction in in_turn],
        test=[_new_pair(speaker, construction, "test", seen) for construction in in_turn],
        train=[_new_pair(speaker, weighted, "train", seen) for _ in range(pairs)],
    )


def _new_pair(speaker: Speaker, constructions: Sequence[Construction], split: str, seen: set[str]) -> Pair:
    """Draw until a pair is short enough, belongs to `split` and was not `seen`."""
    while True:
        pair = say(speaker, speaker.pick(constructions))
        is_long = max(pair.source.count(" "), pair.target.count(" ")) >= LONGEST_WORDS
        if split_of(pair.combinations) == split and pair.source not in seen and not is_long:
            seen.add(pair.source)
            return pair


def say(speaker: Speaker, construction: Construction) -> Pair:
    """A random sentence of one kind, with capital and full stop."""
    text, mark, clauses = construction(speaker)
    source, target = (words[0].upper() + words[1:] + mark for words in (text.en, text.de))
    combinations = frozenset[Combination]().union(*(clause.combinations for clause in clauses))
    return Pair(source, target, construction.__name__, combinations)


def reserved_for(combination: Combination) -> str:
    """The split that owns a combination: a fixed tenth each for dev and test, whatever the seed.

    A checksum rather than `hash`, which Python salts afresh in every process. The slash is part of the draw: some
    words live in few combinations (`ins` only where somebody goes into a house), and with it training loses none.
    """
    share = zlib.crc32("/".join(combination).encode()) % 10
    return {0: "dev", 1: "test"}.get(share, "train")


def split_of(combinations: Iterable[Combination]) -> str:
    """Where a sentence belongs: with its reserved combinations, nowhere ("") if dev and test both claim it."""
    claims = {reserved_for(combination) for combination in combinations} - {"train"}
    if len(claims) > 1:
        return ""
    return claims.pop() if claims else "train"


def write_demo_text(directory: Path, pairs: int = 20_000, seed: int = 1) -> None:
    """Write `train.en`, `train.de` and likewise dev and test: one sentence a line, line n of both a pair."""
    corpus = generate(pairs, seed)
    directory.mkdir(parents=True, exist_ok=True)
    for split, chosen in (("train", corpus.train), ("dev", corpus.dev), ("test", corpus.test)):
        for suffix, lines in (("en", [pair.source for pair in chosen]), ("de", [pair.target for pair in chosen])):
            text = "".join(f"{line}\n" for line in lines)
            (directory / f"{split}.{suffix}").write_text(text, encoding="utf-8", newline="\n")
