"""What an entry of the lexicon holds: a word in English and German, how it inflects and what it goes with.

Only what a rule cannot derive is written down, in the notation of a dictionary: "the plural of dog is dogs,
der Hund, Hunde" is `Noun("dog dogs", "der Hund Hunde", ...)`. Semantic kinds say which noun may fill which role,
so that people read newspapers and nobody eats a car.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, Flag, auto
from functools import cached_property

from tandem.corpus.demo.morphology import (
    Agreement,
    Case,
    Conjugation,
    Declension,
    EnglishForms,
    GermanForms,
    Paradigm,
    Person,
    Tense,
    conjugate_english,
)


class Kind(Flag):
    """What a noun stands for; verbs and adjectives name the kinds that they go with."""

    ADULT = auto()
    CHILD = auto()
    ANIMAL = auto()
    FOOD = auto()
    FODDER = auto()
    DRINK = auto()
    LIQUID = auto()
    READABLE = auto()
    OPENABLE = auto()
    DEVICE = auto()
    BELONGING = auto()
    VEHICLE = auto()
    PLACE = auto()
    DWELLING = auto()
    DESTINATION = auto()
    FAMILIAR = auto()
    """People and places that may be somebody's: `my friend`, but not `my man`."""

    PERSON = ADULT | CHILD
    BEING = PERSON | ANIMAL
    SUPPLY = FOOD | DRINK
    ITEM = READABLE | BELONGING
    GOODS = ANIMAL | ITEM | DEVICE | VEHICLE
    THING = ITEM | OPENABLE | DEVICE | VEHICLE


@dataclass(frozen=True, eq=False)
class Determiner:
    english: str
    german: Paradigm
    declension: Declension
    definite: bool


@dataclass(frozen=True, eq=False)
class Adjective:
    english: str
    german: str
    kinds: Kind

    def decline(self, declension: Declension, case: Case, agreement: Agreement) -> str:
        return self.german + declension.value[case][agreement]


@dataclass(frozen=True, eq=False)
class Noun:
    """`english` is "singular plural", `german` "article singular plural"; what cannot be counted has no plural."""

    english: str
    german: str
    kind: Kind
    weak: bool = False
    """Declines like `der Junge, den Jungen`: -n in every case but the nominative singular."""

    @cached_property
    def lemma(self) -> str:
        return self.english.split()[0]

    @cached_property
    def has_plural(self) -> bool:
        return " " in self.english

    @cached_property
    def is_mass(self) -> bool:
        return not self.has_plural and not self.kind & Kind.PLACE

    @cached_property
    def is_person(self) -> bool:
        return bool(self.kind & Kind.PERSON)

    @cached_property
    def is_ownable(self) -> bool:
        return bool(self.kind & Kind.FAMILIAR) or not self.kind & (Kind.PERSON | Kind.PLACE)

    @cached_property
    def gender(self) -> Agreement:
        return Agreement(("der", "die", "das").index(self.german.split()[0]))

    def english_form(self, *, plural: bool) -> str:
        return self.english.split()[plural]

    def german_form(self, case: Case, *, plural: bool) -> str:
        form = self.german.split()[1 + plural]
        if plural and case is Case.DATIVE and form[-1] not in "ns":
            return form + "n"
        if self.weak and not plural and case is not Case.NOMINATIVE:
            return form + "n"
        return form


@dataclass(frozen=True, eq=False)
class Place(Noun):
    """A noun that brings its prepositions, (English, German): where something is, and where somebody goes."""

    at: tuple[str, str] = ("in", "in")
    to: tuple[str, str] = ("into", "in")


@dataclass(frozen=True, eq=False)
class Pronoun:
    """Subject and object form in English; nominative, accusative and dative in German."""

    english: str
    german: str
    person: Person
    referent: str = ""
    """Who is meant, if that is fixed: `I see me` and `we see me` must not be said."""


@dataclass(frozen=True, eq=False)
class Modal:
    """An English auxiliary (`can`) or, given a third person, a verb that itself needs `do` (`want to`)."""

    english: str
    german: Conjugation
    third: str = ""

    @cached_property
    def present(self) -> Conjugation:
        return conjugate_english(self.english, self.third)


@dataclass(frozen=True, eq=False)
class Slot:
    """A complement that a verb asks for; `wait for` is `warten auf`, but `look for` is plain `suchen`."""

    kinds: Kind
    case: Case = Case.ACCUSATIVE
    english: str = ""
    german: str = ""


@dataclass(frozen=True, eq=False)
class PlaceSlot:
    """A place as complement: the noun brings the prepositions, and German its case with them."""

    kinds: Kind
    goal: bool


class Adjunct(Enum):
    """Optional phrases; each verb lists those that sound natural with it."""

    PLACE = auto()
    COMPANION = auto()
    BENEFICIARY = auto()


@dataclass(frozen=True, eq=False)
class Verb:
    english: str
    german: str
    slots: tuple[Slot | PlaceSlot, ...] = ()
    adjuncts: tuple[Adjunct, ...] = ()
    subjects: Kind = Kind.PERSON
    auxiliary: str = "haben"
    tenses: tuple[Tense, ...] = tuple(Tense)
    lasting: bool = False
    """States that go with no time: not `Anna lives in Berlin every day`."""

    @cached_property
    def en(self) -> EnglishForms:
        return EnglishForms.parse(self.english)

    @cached_property
    def de(self) -> GermanForms:
        return GermanForms.parse(self.german)

    @cached_property
    def last_object(self) -> Slot | None:
        last = self.slots[-1] if self.slots else None
        return last if isinstance(last, Slot) else None

    @cached_property
    def takes_kein(self) -> bool:
        """Whether `kein` may negate it; with an object behind a preposition `nicht` does."""
        return self.last_object is not None and not self.last_object.german

    @cached_property
    def takes_place(self) -> bool:
        return Adjunct.PLACE in self.adjuncts or any(isinstance(slot, PlaceSlot) for slot in self.slots)
