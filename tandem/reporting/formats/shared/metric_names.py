"""The meaning of column names and TensorBoard tags: losses, perplexity, BLEU, learning rate, step times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Meaning = Literal["train_loss", "eval_loss", "train_ppl", "eval_ppl", "bleu", "learning_rate", "step_seconds"]

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TEST = _words("test testing")
_EVALUATION = _TEST | _words("valid val eval evaluation validation dev development heldout")
_TRAINING = _words("train training")
_PERPLEXITY = _words("ppl perplexity pplx")
# Names with these words are about a loss or a score but are not it.
_BESIDES = _words(
    "best scale scaling grad gradient norm weight aux auxiliary std var min max smoothing patience improvement "
    "precision precisions ratio penalty length len"
)
# Words beside `train` or `valid` in the names of directories that programs make for each side of a run.
_OF_A_SIDE = _words("inner loss losses bleu ppl perplexity accuracy acc set data log logs summary summaries")
_MILLISECONDS = _words("ms msec millis milliseconds")
_STEP_WORDS = _words("step steps iter iteration update batch it")
_TIME_WORDS = _MILLISECONDS | _words("time seconds second secs sec duration s")


@dataclass(frozen=True)
class Named:
    """The meaning of a name, and the unit of its values."""

    meaning: Meaning
    factor: float = 1.0
    """Turns its values into the unit of the record."""
    inverse: bool = False
    """Whether its values are steps per second."""
    doubtful: bool = False
    """Whether another name with this meaning is the better one."""


def words_of(name: str) -> list[str]:
    """The words of a name in small letters: `Valid/lossPerToken` is valid, loss, per, token."""
    return [word.lower() for word in _WORD.findall(name)]


def speaks_of_evaluation(name: str) -> bool:
    """Whether the name of a file or directory has a word for evaluation, such as `valid` or `dev`."""
    return bool(_EVALUATION & set(words_of(name)))


def without_side(name: str) -> tuple[str, ...] | None:
    """The words of a name beside those for training or evaluation; None if it has none of these."""
    words = words_of(name)
    others = tuple(word for word in words if word not in _EVALUATION | _TRAINING)
    return others if len(others) < len(words) else None


def is_one_side(name: str) -> bool:
    """Whether a directory is named for one side of a run, as `train`, `valid` or `Loss_train` are."""
    others = without_side(name)
    return others is not None and _OF_A_SIDE.issuperset(others)


def meaning_of(name: str, *, of_evaluation: bool = False) -> Named | None:
    """The meaning of a name; `of_evaluation` is whether a plain `loss` is the evaluation's."""
    words = words_of(name)
    known = set(words)
    side = _EVALUATION & known
    evaluation = bool(side) or (of_evaluation and not _TRAINING & known)
    doubtful = bool(side) and side <= _TEST
    if _STEP_WORDS & known and _TIME_WORDS & known:
        return None if evaluation else _time_of(known, words)
    if _BESIDES & known:
        return None
    if "lr" in known or {"learning", "rate"} <= known or "learningrate" in known:
        return Named("learning_rate")
    if any(word.endswith("bleu") for word in words):
        # BLEU-1 to BLEU-3 leave out the longer n-grams; BLEU of the training text says little.
        partial = bool({"1", "2", "3"} & known) and "4" not in known
        return Named("bleu", doubtful=doubtful or partial or bool(_TRAINING & known))
    if _PERPLEXITY & known:
        return Named("eval_ppl" if evaluation else "train_ppl", doubtful=doubtful)
    if "loss" in known or "nll" in known or {"cross", "entropy"} <= known or "xent" in known:
        return Named("eval_loss" if evaluation else "train_loss", doubtful=doubtful)
    if any(re.fullmatch(r"(?:train|valid|val|eval|dev|test)loss", word) for word in words):
        return Named("train_loss" if "trainloss" in known else "eval_loss", doubtful="testloss" in known)
    return None


def _time_of(known: set[str], words: list[str]) -> Named:
    """A time per step, or steps per second."""
    first_step = min(words.index(word) for word in _STEP_WORDS & known)
    steps_first = first_step < min(words.index(word) for word in _TIME_WORDS & known)
    per_second = "per" in known or words[-1] in ("sec", "s", "second")
    a_rate = steps_first and per_second and not {"time", "duration"} & known
    factor = 1e-3 if _MILLISECONDS & known else 1.0
    return Named("step_seconds", factor=factor, inverse=a_rate)
