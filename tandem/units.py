"""Formats figures for people: durations, sizes, rates, and evidence whose unit is read from its name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

MINUTE, HOUR = 60, 3600
SMALLEST_PLAIN = 1e-3
"""Smaller numbers, learning rates above all, read better with an exponent."""
ABBREVIATIONS = {
    "bleu": "BLEU",
    "cpu": "CPU",
    "cuda": "CUDA",
    "gpu": "GPU",
    "gpus": "GPUs",
    "mbit": "Mbit",
    "mb": "MB",
    "nccl": "NCCL",
    "tflops": "TFLOP/s",
}
Form = Callable[[float], str]
"""How a number of some unit is written."""
INTERVALS = ("_interval", "_range")
"""Names of two numbers that are the ends of something."""


def plain(value: float) -> str:
    """Four significant digits, thousands separated; whole numbers whole."""
    if isinstance(value, float) and not math.isfinite(value):
        return "not a number" if math.isnan(value) else "infinite" if value > 0 else "minus infinite"
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= SMALLEST_PLAIN:
        return f"{value:.4g}"
    digits, exponent = f"{value:.2e}".split("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"


def duration(seconds: float) -> str:
    """Hours and minutes, minutes and seconds, or seconds."""
    if not math.isfinite(seconds):
        return f"{plain(seconds)} s"
    if round(abs(seconds)) < MINUTE:
        return f"{seconds:.3g} s"
    sign, whole = "-" if seconds < 0 else "", round(abs(seconds))
    if whole < HOUR:
        return f"{sign}{whole // MINUTE} min {whole % MINUTE} s"
    return f"{sign}{whole // HOUR:,} h {whole % HOUR // MINUTE} min"


def short_duration(seconds: float) -> str:
    """One number in the unit that people would take: milliseconds to hours."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 2 * MINUTE:
        return f"{seconds:.3g} s"
    return f"{seconds / MINUTE:.3g} min" if seconds < 2 * HOUR else f"{seconds / HOUR:.1f} h"


def clock_time(seconds: float) -> str:
    """h:mm:ss; days as hours, because live lines must stay short."""
    minutes, rest = divmod(round(seconds), MINUTE)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def elapsed(seconds: float) -> str:
    """Seconds up to two minutes, below ten with a decimal; then h:mm:ss."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 2 * MINUTE else clock_time(seconds)


def rank_list(ranks: Sequence[int]) -> str:
    """Ranks as `rank 1` or `ranks 1, 2`."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def first_sentences_note(count: int | None) -> str:
    """A remark behind a BLEU that is of the first sentences of its split; empty if it is of all of them."""
    return "" if count is None else f" (first {count:,} sentences)"


def link_rate(mbit: float) -> str:
    """The rate of a link as people say it."""
    return f"{mbit / 1000:.3g} Gbit/s" if mbit >= 1000 else f"{mbit:.3g} Mbit/s"


def size(count: float) -> str:
    """Bytes in the decimal units in which disks and networks are sold."""
    for unit, limit in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= limit:
            return f"{count / limit:,.2f} {unit}" if unit == "GB" else f"{count / limit:,.1f} {unit}"
    return f"{plain(count)} B"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %" if math.isfinite(share) else plain(share)


def _with(unit: str) -> Form:
    return lambda value: f"{plain(value)} {unit}"


# Longest endings first: a rate is not a size. The label keeps the word that the text does not say.
UNITS: tuple[tuple[str, str, Form], ...] = (
    ("mbit_per_second", "", _with("Mbit/s")),
    ("mb_per_second", "", _with("MB/s")),
    ("bytes_per_second", "", lambda value: f"{size(value)}/s"),
    ("tokens_per_second", "tokens", _with("tokens/s")),
    ("bytes_per_step", "", lambda value: f"{size(value)} a step"),
    ("seconds_per_step", "", lambda value: f"{duration(value)} a step"),
    ("dollars", "", lambda value: f"${value:,.2f}"),
    ("percent", "", _with("%")),
    ("seconds", "", duration),
    ("minutes", "", _with("min")),
    ("hours", "", _with("h")),
    ("bytes", "", size),
    ("mbit", "", _with("Mbit")),
    ("mb", "", _with("MB")),
    ("share", "share", percent),
)


def row(name: str, value: Any) -> tuple[str, list[str]]:
    """A piece of evidence as its label and the lines of its text."""
    label, form = _unit(name)
    words = _words(label or name)
    return words[:1].upper() + words[1:], _lines(value, form, pair=name.endswith(INTERVALS))


def _unit(name: str, otherwise: Form = plain) -> tuple[str, Form]:
    """What is left of a name without its unit, and how numbers of that unit are written."""
    for ending in INTERVALS:
        if name.endswith(ending):
            label, form = _unit(name.removesuffix(ending), otherwise)
            return f"{label}{ending}".strip("_"), form
    for ending, kept, form in UNITS:
        if name == ending or name.endswith(f"_{ending}"):
            return f"{name.removesuffix(ending)}{kept}".strip("_"), form
    return name, otherwise


def _words(name: str) -> str:
    # Names of files and hosts stay as they are.
    if "." in name:
        return name
    return " ".join(ABBREVIATIONS.get(word, word) for word in name.replace("_", " ").split())


def _lines(value: Any, form: Form, *, pair: bool) -> list[str]:
    if isinstance(value, Mapping):
        return [": ".join(filter(None, _entry(str(name), entry, form))) for name, entry in value.items()] or ["none"]
    if isinstance(value, Sequence) and not isinstance(value, str):
        texts = [_inline(entry, form) for entry in value]
        if pair and len(texts) == len(("from", "to")):
            return [" to ".join(texts)]
        if any(isinstance(entry, Mapping) for entry in value):
            return texts
    return [_inline(value, form)]


def _entry(name: str, value: Any, form: Form) -> tuple[str, str]:
    """One entry of a mapping; where its name tells no unit, that of the mapping holds."""
    label, own_form = _unit(name, form)
    return _words(label), _inline(value, own_form)


def _inline(value: Any, form: Form) -> str:
    """A value, whatever it is, in one line."""
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return form(value)
    if isinstance(value, Mapping):
        entries = [(*_entry(str(name), entry, form), isinstance(entry, str)) for name, entry in value.items()]
        # A text, such as the name of a file, needs no label.
        return ", ".join(text if is_text or not label else f"{label} {text}" for label, text, is_text in entries)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_inline(entry, form) for entry in value) or "none"
    return str(value)
