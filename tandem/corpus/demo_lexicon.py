"""The words of the demo corpus and their forms: each entry holds its English and its German side.

Only what a rule cannot derive is written down, in the notation of a dictionary: "the plural of dog is dogs,
der Hund, Hunde" is `Noun("dog dogs", "der Hund Hunde", ...)`. Semantic kinds say which noun may fill which role,
so that people read newspapers and nobody eats a car.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, Flag, IntEnum, auto
from functools import cached_property
from typing import NamedTuple


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


# --- Declension: determiners, adjectives, nouns ---------------------------------------------------------------

Paradigm = tuple[tuple[str, ...], ...]  # [case][agreement]


def _paradigm(nominative: str, accusative: str, dative: str) -> Paradigm:
    """Four forms a case, "-" for none."""
    return tuple(tuple(form.strip("-") for form in row.split()) for row in (nominative, accusative, dative))


def _ein_word(stem: str) -> Paradigm:
    """ein, kein and the possessives decline alike."""
    endings = _paradigm("- e - e", "en e - e", "em er em en")
    return tuple(tuple(stem + ending for ending in row) for row in endings)


class Declension(Enum):
    """Endings of an adjective: the less the determiner shows of gender and case, the more the adjective must."""

    WEAK = _paradigm("e e e en", "en e e en", "en en en en")
    MIXED = _paradigm("er e es en", "en e es en", "en en en en")
    STRONG = _paradigm("er e es e", "en e es e", "em er em en")


@dataclass(frozen=True, eq=False)
class Determiner:
    english: str
    german: Paradigm
    declension: Declension
    definite: bool


THE = Determiner(
    "the", _paradigm("der die das die", "den die das die", "dem der dem den"), Declension.WEAK, definite=True
)
A = Determiner("a", _ein_word("ein"), Declension.MIXED, definite=False)
BARE = Determiner("", _paradigm("- - - -", "- - - -", "- - - -"), Declension.STRONG, definite=False)
TWO = Determiner("two", _paradigm("- - - zwei", "- - - zwei", "- - - zwei"), Declension.STRONG, definite=False)
NO = Determiner("no", _ein_word("kein"), Declension.MIXED, definite=False)
# German says kein where English says `not ... a` or `not ... any`: the clause then has no nicht.
NOT_ANY = Determiner("any", _ein_word("kein"), Declension.MIXED, definite=False)
MY = Determiner("my", _ein_word("mein"), Declension.MIXED, definite=True)
HIS = Determiner("his", _ein_word("sein"), Declension.MIXED, definite=True)
HER = Determiner("her", _ein_word("ihr"), Declension.MIXED, definite=True)
POSSESSIVES = (MY, HIS, HER)


@dataclass(frozen=True, eq=False)
class Adjective:
    english: str
    german: str
    kinds: Kind

    def decline(self, declension: Declension, case: Case, agreement: Agreement) -> str:
        return self.german + declension.value[case][agreement]


ADJECTIVES = (
    Adjective("small", "klein", Kind.CHILD | Kind.ANIMAL | Kind.THING | Kind.PLACE),
    Adjective("big", "groß", Kind.ANIMAL | Kind.THING | Kind.PLACE),
    Adjective("old", "alt", Kind.ADULT | Kind.ANIMAL | Kind.THING | Kind.PLACE),
    Adjective("new", "neu", Kind.THING | Kind.PLACE),
    Adjective("young", "jung", Kind.ADULT | Kind.ANIMAL),
    Adjective("beautiful", "schön", Kind.ANIMAL | Kind.THING | Kind.PLACE),
    Adjective("red", "rot", Kind.BELONGING | Kind.OPENABLE | Kind.DEVICE | Kind.VEHICLE),
    Adjective("fresh", "frisch", Kind.FOOD),
    Adjective("cold", "kalt", Kind.LIQUID),
    Adjective("good", "gut", Kind.PERSON | Kind.SUPPLY | Kind.READABLE),
)
# Of people and only after `to be`; being passing states, they alone go with a time: `she is often tired`.
STATES = (
    Adjective("tired", "müde", Kind.PERSON),
    Adjective("sick", "krank", Kind.PERSON),
    Adjective("happy", "glücklich", Kind.PERSON),
)


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


NOUNS = (
    Noun("man men", "der Mann Männer", Kind.ADULT),
    Noun("woman women", "die Frau Frauen", Kind.ADULT),
    Noun("teacher teachers", "der Lehrer Lehrer", Kind.ADULT | Kind.FAMILIAR),
    Noun("sister sisters", "die Schwester Schwestern", Kind.ADULT | Kind.FAMILIAR),
    Noun("friend friends", "der Freund Freunde", Kind.ADULT | Kind.FAMILIAR),
    Noun("child children", "das Kind Kinder", Kind.CHILD | Kind.FAMILIAR),
    Noun("boy boys", "der Junge Jungen", Kind.CHILD, weak=True),
    Noun("girl girls", "das Mädchen Mädchen", Kind.CHILD),
    Noun("dog dogs", "der Hund Hunde", Kind.ANIMAL),
    Noun("cat cats", "die Katze Katzen", Kind.ANIMAL),
    Noun("horse horses", "das Pferd Pferde", Kind.ANIMAL),
    Noun("apple apples", "der Apfel Äpfel", Kind.FOOD | Kind.FODDER),
    Noun("banana bananas", "die Banane Bananen", Kind.FOOD | Kind.FODDER),
    Noun("egg eggs", "das Ei Eier", Kind.FOOD),
    Noun("cheese", "der Käse", Kind.FOOD | Kind.FODDER),
    Noun("soup", "die Suppe", Kind.FOOD | Kind.LIQUID),
    Noun("bread", "das Brot", Kind.FOOD | Kind.FODDER),
    Noun("coffee", "der Kaffee", Kind.DRINK | Kind.LIQUID),
    Noun("milk", "die Milch", Kind.DRINK | Kind.LIQUID),
    Noun("water", "das Wasser", Kind.DRINK | Kind.LIQUID),
    Noun("letter letters", "der Brief Briefe", Kind.READABLE),
    Noun("newspaper newspapers", "die Zeitung Zeitungen", Kind.READABLE),
    Noun("book books", "das Buch Bücher", Kind.READABLE),
    Noun("key keys", "der Schlüssel Schlüssel", Kind.BELONGING),
    Noun("bag bags", "die Tasche Taschen", Kind.BELONGING | Kind.OPENABLE),
    Noun("picture pictures", "das Bild Bilder", Kind.BELONGING),
    Noun("door doors", "die Tür Türen", Kind.OPENABLE),
    Noun("window windows", "das Fenster Fenster", Kind.OPENABLE),
    Noun("computer computers", "der Computer Computer", Kind.DEVICE),
    Noun("lamp lamps", "die Lampe Lampen", Kind.DEVICE),
    Noun("radio radios", "das Radio Radios", Kind.DEVICE),
    Noun("car cars", "das Auto Autos", Kind.VEHICLE),
    Place("garden", "der Garten", Kind.PLACE | Kind.FAMILIAR),
    Place("kitchen", "die Küche", Kind.PLACE | Kind.FAMILIAR),
    Place("house", "das Haus", Kind.PLACE | Kind.FAMILIAR | Kind.DWELLING),
    Place("park", "der Park", Kind.PLACE, to=("to", "in")),
    Place("city", "die Stadt", Kind.PLACE | Kind.DWELLING | Kind.DESTINATION, to=("to", "in")),
    Place("school", "die Schule", Kind.PLACE | Kind.DESTINATION, at=("at", "in"), to=("to", "zu")),
    Place("station", "der Bahnhof", Kind.PLACE | Kind.DESTINATION, at=("at", "an"), to=("to", "zu")),
    Place("market", "der Markt", Kind.PLACE | Kind.DESTINATION, at=("at", "auf"), to=("to", "zu")),
)
NAMES = ("Anna", "Peter", "Maria", "Paul", "Lena", "Max")
TOWNS = (("Berlin", "Berlin"), ("Hamburg", "Hamburg"), ("Vienna", "Wien"))

CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
}


@dataclass(frozen=True, eq=False)
class Pronoun:
    """Subject and object form in English; nominative, accusative and dative in German."""

    english: str
    german: str
    person: Person
    referent: str = ""
    """Who is meant, if that is fixed: `I see me` and `we see me` must not be said."""


_I = Pronoun("I me", "ich mich mir", Person.FIRST, "speaker")
_YOU = Pronoun("you you", "du dich dir", Person.SECOND, "hearer")  # never plural nor polite: one rendering
# `I` and `you` stand twice because no other word shares their verb forms.
PRONOUNS = (
    _I,
    _I,
    _YOU,
    _YOU,
    Pronoun("he him", "er ihn ihm", Person.THIRD),
    Pronoun("she her", "sie sie ihr", Person.THIRD),
    Pronoun("we us", "wir uns uns", Person.PLURAL, "speaker"),
    Pronoun("they them", "sie sie ihnen", Person.PLURAL),
)

# --- Conjugation ----------------------------------------------------------------------------------------------

Conjugation = tuple[str, ...]  # [person]


def _conjugate_english(base: str, third: str) -> Conjugation:
    return tuple(third.split("/")) if "/" in third else (base, base, third, base)


def _conjugate_german(infinitive: str, third: str) -> Conjugation:
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
        return cls(base, _conjugate_english(base, third), _conjugate_english(past, past), (participle or [past])[0])


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
        past = _conjugate_german(preterite[0].removesuffix("e") + "en", preterite[0]) if preterite else None
        return cls(prefix, prefix + stem, _conjugate_german(stem, third), past, prefix + participle)


DO = _conjugate_english("do", "does")
HAVE = _conjugate_english("have", "has")
AUXILIARIES = {"haben": _conjugate_german("haben", "hat"), "sein": ("bin", "bist", "ist", "sind")}


@dataclass(frozen=True, eq=False)
class Modal:
    """An English auxiliary (`can`) or, given a third person, a verb that itself needs `do` (`want to`)."""

    english: str
    german: Conjugation
    third: str = ""

    @cached_property
    def present(self) -> Conjugation:
        return _conjugate_english(self.english, self.third)


MODALS = (
    Modal("can", _conjugate_german("können", "kann")),
    Modal("should", _conjugate_german("sollten", "sollte")),
    Modal("will", ("werde", "wirst", "wird", "werden")),
    Modal("want to", _conjugate_german("wollen", "will"), third="wants to"),
    # Not `must`: `must not` forbids, while `muss nicht` and `does not have to` both free from a duty.
    Modal("have to", _conjugate_german("müssen", "muss"), third="has to"),
)


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


def _dative(kinds: Kind, english: str = "", german: str = "") -> Slot:
    return Slot(kinds, Case.DATIVE, english, german)


# `has lived` would be a German present (`wohnt schon lange`), so lasting states leave the English perfect out.
_LASTING = (Tense.PRESENT, Tense.PAST, Tense.MODAL)
_SIMPLE = (Tense.PRESENT, Tense.PAST)
# `I read the book` may be present or past and would have two renderings.
_NO_PAST = (Tense.PRESENT, Tense.PERFECT, Tense.MODAL)
_AT, _WITH, _FOR = (Adjunct.PLACE,), (Adjunct.COMPANION,), (Adjunct.BENEFICIARY,)

_BE = ("be am/are/is/are was/were/was/were been", "sein bin/bist/ist/sind gewesen war")
_AT_PLACE = PlaceSlot(Kind.PLACE, goal=False)
_AT_DWELLING = PlaceSlot(Kind.DWELLING, goal=False)
_AT_DESTINATION = PlaceSlot(Kind.DESTINATION, goal=False)
_TO_PLACE = PlaceSlot(Kind.PLACE, goal=True)
_TO_DESTINATION = PlaceSlot(Kind.DESTINATION, goal=True)
_SOUGHT = Slot(Kind.BEING | Kind.ITEM, english="for")
_AWAITED = Slot(Kind.PERSON, english="for", german="auf")
_HELPED = Slot(Kind.PERSON, Case.DATIVE)
_HEARD = Slot(Kind.PERSON, Case.DATIVE, english="to")
_PLAYMATE = Slot(Kind.BEING, Case.DATIVE, english="with", german="mit")
_RECIPIENT = Slot(Kind.PERSON, Case.DATIVE)

BE = Verb(*_BE, tenses=_SIMPLE)
_BE_SOMEWHERE = Verb(*_BE, (_AT_PLACE,), subjects=Kind.BEING, tenses=_SIMPLE, lasting=True)
_LIE_SOMEWHERE = Verb(*_BE, (_AT_PLACE,), subjects=Kind.GOODS, tenses=_SIMPLE, lasting=True)
_POSSESS = Verb("have has had", "haben hat gehabt hatte", (Slot(Kind.GOODS),), tenses=_SIMPLE, lasting=True)
VERBS = (
    # The commonest stand twice and more, as does the one that makes a subject of things.
    *(BE, BE, BE, _BE_SOMEWHERE, _LIE_SOMEWHERE, _LIE_SOMEWHERE, _POSSESS, _POSSESS),
    Verb("live lives lived", "wohnen wohnt gewohnt", (_AT_DWELLING,), _WITH, tenses=_LASTING, lasting=True),
    Verb("sleep sleeps slept", "schlafen schläft geschlafen", (), _AT, subjects=Kind.BEING),
    Verb("work works worked", "arbeiten arbeitet gearbeitet", (), _AT + _WITH),
    Verb("get gets got + up", "auf|stehen steht gestanden", auxiliary="sein"),
    Verb("arrive arrives arrived", "an|kommen kommt gekommen", (_AT_DESTINATION,), _WITH, auxiliary="sein"),
    Verb("go goes went gone", "gehen geht gegangen", (_TO_PLACE,), _WITH, auxiliary="sein"),
    Verb("drive drives drove driven", "fahren fährt gefahren", (_TO_DESTINATION,), _WITH, auxiliary="sein"),
    Verb("see sees saw seen", "sehen sieht gesehen", (Slot(Kind.BEING | Kind.ITEM),), _AT, subjects=Kind.BEING),
    Verb("find finds found", "finden findet gefunden", (Slot(Kind.ANIMAL | Kind.ITEM),), _AT, subjects=Kind.BEING),
    Verb("look looks looked", "suchen sucht gesucht", (_SOUGHT,), _AT, subjects=Kind.BEING),
    Verb("buy buys bought", "kaufen kauft gekauft", (Slot(Kind.GOODS | Kind.SUPPLY),), _FOR),
    Verb("read reads read", "lesen liest gelesen", (Slot(Kind.READABLE),), _AT, tenses=_NO_PAST),
    # German animals feed, they do not dine: the subject decides between essen and fressen.
    Verb("eat eats ate eaten", "essen isst gegessen", (Slot(Kind.FOOD),), _AT),
    Verb("eat eats ate eaten", "fressen frisst gefressen", (Slot(Kind.FODDER),), _AT, subjects=Kind.ANIMAL),
    Verb("drink drinks drank drunk", "trinken trinkt getrunken", (Slot(Kind.DRINK),), _AT),
    Verb("bring brings brought", "mit|bringen bringt gebracht", (Slot(Kind.SUPPLY | Kind.READABLE),), _FOR),
    Verb("open opens opened", "auf|machen macht gemacht", (Slot(Kind.OPENABLE),)),
    Verb("close closes closed", "zu|machen macht gemacht", (Slot(Kind.OPENABLE),)),
    Verb("turn turns turned + on", "an|machen macht gemacht", (Slot(Kind.DEVICE),)),
    Verb("turn turns turned + off", "aus|machen macht gemacht", (Slot(Kind.DEVICE),)),
    Verb("visit visits visited", "besuchen besucht besucht", (Slot(Kind.PERSON),)),
    Verb("call calls called", "an|rufen ruft gerufen", (Slot(Kind.PERSON),)),
    Verb("help helps helped", "helfen hilft geholfen", (_HELPED,), _AT),
    Verb("listen listens listened", "zu|hören hört gehört", (_HEARD,)),
    Verb("wait waits waited", "warten wartet gewartet", (_AWAITED,), _AT, subjects=Kind.BEING),
    Verb("play plays played", "spielen spielt gespielt", (_PLAYMATE,), _AT, subjects=Kind.BEING),
    Verb("give gives gave given", "geben gibt gegeben", (_RECIPIENT, Slot(Kind.SUPPLY | Kind.ITEM))),
    Verb("show shows showed shown", "zeigen zeigt gezeigt", (_RECIPIENT, Slot(Kind.ANIMAL | Kind.ITEM))),
)

_KNOW = Verb("know knows knew known", "wissen weiß gewusst", tenses=(Tense.PRESENT,))
CLAUSE_VERBS = (
    # Verbs of saying and thinking, with the conjunction of the clause that follows.
    (_KNOW, "that", "dass"),
    (_KNOW, "whether", "ob"),
    (Verb("say says said", "sagen sagt gesagt", tenses=_SIMPLE), "that", "dass"),
    (Verb("think thinks thought", "glauben glaubt geglaubt", tenses=_SIMPLE), "that", "dass"),
    (Verb("ask asks asked", "fragen fragt gefragt", tenses=_SIMPLE), "whether", "ob"),
)

# --- Words that never change ----------------------------------------------------------------------------------

# Mostly present and modal, the latter for the sake of the infinitives.
ANY_TENSE = (Tense.PRESENT, Tense.PRESENT, Tense.PRESENT, Tense.PAST, Tense.PERFECT, Tense.MODAL, Tense.MODAL)
TIMES = {
    Tense.PRESENT: (("every day", "jeden Tag"), ("on Sundays", "sonntags")),
    Tense.PAST: (("yesterday", "gestern"), ("last week", "letzte Woche"), ("today", "heute")),
    Tense.MODAL: (("today", "heute"), ("tomorrow", "morgen")),
}
HABITS = {
    Tense.PRESENT: (("often", "oft"), ("always", "immer"), ("never", "nie")),
    Tense.PERFECT: (("already", "schon"), ("never", "nie")),
}
COMPANIES = (("with", "mit", Case.DATIVE), ("without", "ohne", Case.ACCUSATIVE))
# Conjunctions with the tenses that sound natural together, main clause first.
_REASON_TENSES = (
    (Tense.PRESENT, Tense.PRESENT),
    (Tense.PRESENT, Tense.PERFECT),
    (Tense.PAST, Tense.PAST),
    (Tense.MODAL, Tense.PRESENT),
    (Tense.PRESENT, Tense.MODAL),
)
CONJUNCTIONS = (
    ("because", "weil", _REASON_TENSES),
    ("although", "obwohl", _REASON_TENSES),
    ("if", "wenn", ((Tense.PRESENT, Tense.PRESENT), (Tense.MODAL, Tense.PRESENT))),
)
