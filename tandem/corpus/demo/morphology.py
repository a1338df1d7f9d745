"""How words change: the categories of English and German, the declensions and the conjugations."""

from __future__ import annotations

from enum import Enum, IntEnum, auto
from typing import NamedTuple


class Case(IntEnum):
    NOMINATIVE = 0
    ACCUSATIVE = 1
    DATIVE = 2


class Agreement(IntEnum):
    """The columns of every German paradigm: gender matters in the singular only."""

    MASCULINE = 0
    FEMININE = 1
    NEUTER = 2
    PLURAL = 3


class Person(IntEnum):
    """The columns of every conjugation; `we` and `they` share all their verb forms, in German as in English."""

    FIRST = 0
    SECOND = 1
    THIRD = 2
    PLURAL = 3


class Tense(Enum):
    """The tenses of the English side. German renders both PAST and PERFECT as its perfect, as speech does."""

    PRESENT = auto()
    PAST = auto()
    PERFECT = auto()
    MODAL = auto()


# --- Declension -----------------------------------------------------------------------------------------------

Paradigm = tuple[tuple[str, ...], ...]  # [case][agreement]


def paradigm(nominative: str, accusative: str, dative: str) -> Paradigm:
    """Four forms a case, "-" for none."""
    return tuple(tuple(form.strip("-") for form in row.split()) for row in (nominative, accusative, dative))


def ein_word(stem: str) -> Paradigm:
    """ein, kein and the possessives decline alike."""
    endings = paradigm("- e - e", "en e - e", "em er em en")
    return tuple(tuple(stem + ending for ending in row) for row in endings)


class Declension(Enum):
    """Endings of an adjective: the less the determiner shows of gender and case, the more the adjective must."""

    WEAK = paradigm("e e e en", "en e e en", "en en en en")
    MIXED = paradigm("er e es en", "en e es en", "en en en en")
    STRONG = paradigm("er e es e", "en e es e", "em er em en")


# --- Conjugation ----------------------------------------------------------------------------------------------

Conjugation = tuple[str, ...]  # [person]


def conjugate_english(base: str, third: str) -> Conjugation:
    return tuple(third.split("/")) if "/" in third else (base, base, third, base)


def conjugate_german(infinitive: str, third: str) -> Conjugation:
    """Derive ich, du, er, wir: a strong verb shows its vowel in `er liest`, and `du` follows it.

    A third person without -t (kann, weiß, war, hatte) marks the older pattern, where `ich` equals `er`.
    """
    if "/" in third:
        return tuple(third.split("/"))
    regular = third.endswith("t")
    root = third[:-1] if regular else third
    first = infinitive[:-1] if regular else third
    second = root + ("t" if root[-1] in "sßz" else "st")
    return (first, second, third, infinitive)


class EnglishForms(NamedTuple):
    base: str
    present: Conjugation
    past: Conjugation
    participle: str

    @classmethod
    def parse(cls, entry: str) -> EnglishForms:
        """Read "base third past participle + particle"; a participle that equals the past is left out."""
        forms, _, particle = entry.partition(" + ")
        base, third, past, *participle = (f"{form} {particle}".rstrip() for form in forms.split())
        return cls(base, conjugate_english(base, third), conjugate_english(past, past), (participle or [past])[0])


class GermanForms(NamedTuple):
    prefix: str
    infinitive: str
    present: Conjugation
    preterite: Conjugation | None
    participle: str

    @classmethod
    def parse(cls, entry: str) -> GermanForms:
        """Read "infinitive third participle preterite", where a bar ends a separable prefix.

        A preterite is given only to the verbs whose perfect sounds wrong even in speech: war, hatte.
        """
        prefix, _, forms = entry.rpartition("|")
        stem, third, participle, *preterite = forms.split()
        past = conjugate_german(preterite[0].removesuffix("e") + "en", preterite[0]) if preterite else None
        return cls(prefix, prefix + stem, conjugate_german(stem, third), past, prefix + participle)
