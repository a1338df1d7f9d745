"""Words of both languages and how they inflect: the forms that rules derive, and the entries of lexicon.yaml."""

from __future__ import annotations

from enum import Enum, IntEnum, StrEnum, auto
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator, TypeAdapter

from tandem.yaml_files import read_yaml


class Case(IntEnum):
    """The rows of every German declension."""

    NOMINATIVE = 0
    ACCUSATIVE = 1
    DATIVE = 2


class Person(IntEnum):
    """The columns of every conjugation; `we` and `they` share all their verb forms, in German as in English."""

    FIRST = 0
    SECOND = 1
    THIRD = 2
    PLURAL = 3


class Tense(StrEnum):
    """The tenses of the English side. German renders both PAST and PERFECT as its perfect, as speech does."""

    PRESENT = auto()
    PAST = auto()
    PERFECT = auto()
    MODAL = auto()


# --- Forms ----------------------------------------------------------------------------------------------------

Declension = tuple[tuple[str, ...], ...]  # [case][masculine, feminine, neuter or plural]
GENDERS, PLURAL_COLUMN = ("der", "die", "das"), 3
Conjugation = tuple[str, ...]  # [person]


def decline(nominative: str, accusative: str, dative: str, stem: str = "") -> Declension:
    """Four forms a case, "-" for none."""
    return tuple(tuple(stem + form.strip("-") for form in row.split()) for row in (nominative, accusative, dative))


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
        prefix, _, forms = entry.rpartition("|")
        stem, third, participle, *preterite = forms.split()
        past = conjugate_german(preterite[0].removesuffix("e") + "en", preterite[0]) if preterite else None
        return cls(prefix, prefix + stem, conjugate_german(stem, third), past, prefix + participle)


# --- Entries: lexicon.yaml explains their notation ------------------------------------------------------------

WORDS = read_yaml(Path(__file__).with_name("lexicon.yaml"))
GROUPS: dict[str, str] = WORDS.pop("kinds")


def parse_kinds(names: str) -> frozenset[str]:
    return frozenset(kind for name in names.split() for kind in GROUPS.get(name, name).split())


PERSON, BEING, PLACE, FAMILIAR = map(parse_kinds, ("person", "being", "place", "familiar"))
Kinds = Annotated[frozenset[str], BeforeValidator(parse_kinds)]
NamedCase = Annotated[Case, BeforeValidator(lambda name: Case[name.upper()])]


class Adjective(NamedTuple):
    en: str
    de: str
    kinds: Kinds


class Noun(NamedTuple):
    en: str
    de: str
    kinds: Kinds
    weak: bool = False
    """Declines like `der Junge, den Jungen`: -n in every case but the nominative singular."""
    at: str = ""
    to: str = ""

    @property
    def lemma(self) -> str:
        return self.en.split()[0]

    @property
    def has_plural(self) -> bool:
        return " " in self.en

    @property
    def is_mass(self) -> bool:
        return not self.has_plural and not self.kinds & PLACE

    @property
    def is_ownable(self) -> bool:
        return bool(self.kinds & FAMILIAR) or not self.kinds & (PERSON | PLACE)

    @property
    def gender(self) -> int:
        return GENDERS.index(self.de.split()[0])

    def german_form(self, case: Case, *, plural: bool) -> str:
        form = self.de.split()[1 + plural]
        weak = self.weak and not plural and case is not Case.NOMINATIVE
        dative_plural = plural and case is Case.DATIVE and form[-1] not in "ns"
        return form + "n" if weak or dative_plural else form


class Pronoun(NamedTuple):
    en: str
    de: str
    person: Annotated[Person, BeforeValidator(lambda name: Person[name.upper()])]
    weight: int = 1
    referent: str = ""


class Modal(NamedTuple):
    """An English auxiliary (`can`) or, given a third person, a verb that itself needs `do` (`want to`)."""

    en: str
    de: Annotated[Conjugation, BeforeValidator(lambda entry: conjugate_german(*entry.split()))]
    third: str = ""


class Object(NamedTuple):
    """What a verb asks for, with its prepositions: `wait for` is `warten auf`, but `look for` is plain `suchen`."""

    kinds: Kinds
    case: NamedCase = Case.ACCUSATIVE
    en: str = ""
    de: str = ""


class Verb(NamedTuple):
    en: Annotated[EnglishForms, BeforeValidator(EnglishForms.parse)]
    de: Annotated[GermanForms, BeforeValidator(GermanForms.parse)]
    recipient: Kinds = frozenset()
    object: Object | None = None
    at: Kinds = frozenset()
    """Places that the verb asks for as where something is."""
    to: Kinds = frozenset()
    """Places that the verb asks for as where somebody goes."""
    adjuncts: tuple[str, ...] = ()
    """Optional phrases that sound natural with it: place, companion, beneficiary."""
    subjects: Kinds = PERSON
    auxiliary: str = "haben"
    tenses: tuple[Tense, ...] = tuple(Tense)
    lasting: bool = False
    """A state that goes with no time: not `Anna lives in Berlin every day`."""
    weight: int = 1


Words = tuple[str, str]  # English, German


class Lexicon(NamedTuple):
    adjectives: tuple[Adjective, ...]
    states: tuple[Adjective, ...]
    nouns: tuple[Noun, ...]
    names: tuple[str, ...]
    towns: tuple[Words, ...]
    contractions: dict[str, str]
    pronouns: tuple[Pronoun, ...]
    modals: tuple[Modal, ...]
    be: Verb
    verbs: tuple[Verb, ...]
    clause_verbs: tuple[tuple[Verb, str, str], ...]
    times: dict[Tense, tuple[Words, ...]]
    habits: dict[Tense, tuple[Words, ...]]
    companies: tuple[tuple[str, str, NamedCase], ...]
    conjunctions: tuple[tuple[str, str, tuple[tuple[Tense, Tense], ...]], ...]


LEXICON = TypeAdapter(Lexicon).validate_python(WORDS)

# --- Function words -------------------------------------------------------------------------------------------

# Endings of adjectives: the less a determiner shows of gender and case, the more an adjective behind it must.
WEAK = decline("e e e en", "en e e en", "en en en en")
MIXED = decline("er e es en", "en e es en", "en en en en")
STRONG = decline("er e es e", "en e es e", "em er em en")


def ein_word(stem: str) -> Declension:
    """ein, kein and the possessives decline alike."""
    return decline("- e - e", "en e - e", "em er em en", stem)


class Determiner(Enum):
    """An article or what stands in its place: English, German, endings of an adjective behind it, definite or not."""

    THE = "the", decline("der die das die", "den die das die", "dem der dem den"), WEAK, True
    A = "a", ein_word("ein"), MIXED, False
    NONE = "", decline("- - - -", "- - - -", "- - - -"), STRONG, False
    TWO = "two", decline("- - - zwei", "- - - zwei", "- - - zwei"), STRONG, False
    NO = "no", ein_word("kein"), MIXED, False
    NOT_ANY = "any", ein_word("kein"), MIXED, False
    """German says kein where English says `not ... a` or `not ... any`: the clause then has no nicht."""
    MY = "my", ein_word("mein"), MIXED, True
    HIS = "his", ein_word("sein"), MIXED, True
    HER = "her", ein_word("ihr"), MIXED, True

    def __init__(self, en: str, de: Declension, endings: Declension, definite: bool) -> None:
        self.en, self.de, self.endings, self.definite = en, de, endings, definite

    @property
    def is_possessive(self) -> bool:
        return self.definite and self is not Determiner.THE


DO = conjugate_english("do", "does")
HAVE = conjugate_english("have", "has")
AUXILIARIES = {"haben": conjugate_german("haben", "hat"), "sein": LEXICON.be.de.present}
