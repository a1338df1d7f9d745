"""Phrases and clauses in English and German, side by side.

Both languages are built from one meaning: a `Phrase` is in its case already, a `Clause` holds the choices and puts them
into words as a statement, a question or a subordinate clause.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, auto
from functools import cache
from typing import NamedTuple

from tandem.demo import lexicon
from tandem.demo.lexicon import LEXICON, Adjective, Case, Determiner, Modal, Noun, Person, Pronoun, Tense, Verb

Combination = tuple[str, str]
"""A content word and the noun it goes with: ("red", "bag") or ("open", "bag")."""


class Position(IntEnum):
    """Order of the German middle field, between the finite verb (or conjunction) and the end of the clause.

    Known things come early and new ones late, hence `liest das Buch im Garten` but `liest im Garten ein Buch`.
    """

    PRONOUN = auto()
    TIME = auto()
    DEFINITE = auto()
    ADVERB = auto()
    COMPANION = auto()
    PLACE = auto()
    INDEFINITE = auto()
    BENEFICIARY = auto()
    NEGATION = auto()
    COMPLEMENT = auto()


class Phrase(NamedTuple):
    """The same words in both languages, already in their case."""

    en: str
    de: str
    position: Position = Position.DEFINITE
    person: Person = Person.THIRD
    referent: str = ""
    """Who or what is meant, lest somebody visit himself."""
    noun: str = ""
    combinations: frozenset[Combination] = frozenset()

    def combined_with(self, word: str) -> Phrase:
        """Note that `word` goes with this phrase's noun; names and pronouns make no combination."""
        if not self.noun:
            return self
        return self._replace(combinations=self.combinations | {(word, self.noun)})

    def followed_by(self, clause: Phrase) -> Phrase:
        """Add a subordinate clause, which German sets off by a comma."""
        return Phrase(f"{self.en} {clause.en}", f"{self.de}, {clause.de}")

    def after(self, english: str, german: str, position: Position) -> Phrase:
        """Put prepositions in front; German melts some into the article: `in dem Park` is said `im Park`."""
        article, _, rest = self.de.partition(" ")
        contraction = LEXICON.contractions.get(f"{german} {article}")
        de = join(contraction, rest) if contraction else join(german, self.de)
        return self._replace(en=join(english, self.en), de=de, position=position)


NOTHING = Phrase("", "")


def negative(negated: bool, *, kein: bool = False) -> Phrase:
    """`not` with `nicht`, or with nothing where German has said `kein` already."""
    return Phrase("not", "" if kein else "nicht", Position.NEGATION) if negated else NOTHING


def join(*words: str) -> str:
    return " ".join([word for word in words if word])


@cache
def noun_phrase(
    noun: Noun, determiner: Determiner, case: Case, adjective: Adjective | None = None, *, plural: bool = False
) -> Phrase:
    """`the small dog` with `den kleinen Hund`."""
    countable = not plural and not noun.is_mass
    if determiner is Determiner.A and not countable:
        determiner = Determiner.NONE
    column = lexicon.PLURAL_COLUMN if plural else noun.gender
    english, german = [noun.en.split()[plural]], [noun.german_form(case, plural=plural)]
    if adjective:
        english.insert(0, adjective.en)
        german.insert(0, adjective.de + determiner.endings[case][column])
    article = "a" if determiner is Determiner.NOT_ANY and countable else determiner.en
    if article == "a" and english[0][0] in "aeiou":
        article = "an"
    phrase = Phrase(
        en=join(article, *english),
        de=join(determiner.de[case][column], *german),
        position=Position.DEFINITE if determiner.definite else Position.INDEFINITE,
        person=Person.PLURAL if plural else Person.THIRD,
        referent=noun.lemma,
        noun=noun.lemma,
    )
    return phrase.combined_with(adjective.en) if adjective else phrase


def pronoun_phrase(pronoun: Pronoun, case: Case) -> Phrase:
    english = pronoun.en.split()[case is not Case.NOMINATIVE]
    return Phrase(english, pronoun.de.split()[case], Position.PRONOUN, pronoun.person, pronoun.referent)


def place_phrase(
    place: Noun, determiner: Determiner, adjective: Adjective | None, position: Position, *, goal: bool
) -> Phrase:
    """Where (`in der Küche`) or where to (`in die Küche`): German tells them apart by case, unless it says `zu`."""
    english, german = (place.to if goal else place.at).split()
    case = Case.ACCUSATIVE if goal and german != "zu" else Case.DATIVE
    return noun_phrase(place, determiner, case, adjective).after(english, german, position)


@dataclass(frozen=True)
class Clause:
    """One verb and what belongs to it, before any word order is chosen."""

    subject: Phrase
    verb: Verb
    tense: Tense
    rest: tuple[Phrase, ...] = ()
    """Everything after the English verb, in English order; German sorts it by position."""
    adverb: Phrase = NOTHING
    """`not`, `often`, `already`: English puts it before the main verb."""
    modal: Modal | None = None

    @property
    def referents(self) -> set[str]:
        return {phrase.referent for phrase in (self.subject, *self.rest)}

    @property
    def combinations(self) -> frozenset[Combination]:
        return self.subject.combinations.union(*(phrase.combinations for phrase in self.rest))

    @property
    def _english_rest(self) -> str:
        return join(*[phrase.en for phrase in self.rest])

    @property
    def _german_middle(self) -> str:
        """Everything between the first verb and the closing ones; in a subordinate clause, behind the subject."""
        phrases = sorted((*self.rest, self.adverb), key=lambda phrase: phrase.position)
        return join(*[phrase.de for phrase in phrases])

    def _english_verbs(self, *, support: bool) -> tuple[str, str]:
        """Auxiliary and main verb; `support` asks for the `do` that questions and negation need."""
        verb, modal, person = self.verb.en, self.modal, self.subject.person
        if modal:
            if not modal.third:
                return modal.en, verb.base
            if support:
                return lexicon.DO[person], f"{modal.en} {verb.base}"
            return "", f"{lexicon.conjugate_english(modal.en, modal.third)[person]} {verb.base}"
        if self.tense is Tense.PERFECT:
            return lexicon.HAVE[person], verb.participle
        finite = (verb.past if self.tense is Tense.PAST else verb.present)[person]
        if verb.base == "be":
            return finite, ""
        if support:
            return "did" if self.tense is Tense.PAST else lexicon.DO[person], verb.base
        return "", finite

    def _german_verbs(self) -> tuple[str, str, str]:
        """Finite verb and closing part, which bracket a main clause, then both as they end a subordinate one."""
        verb, person = self.verb.de, self.subject.person
        if self.modal:
            finite, closing = self.modal.de[person], verb.infinitive
        elif self.tense is Tense.PRESENT:
            finite = verb.present[person]
            return finite, verb.prefix, verb.prefix + finite
        elif verb.preterite:
            finite, closing = verb.preterite[person], ""
        else:
            finite, closing = lexicon.AUXILIARIES[self.verb.auxiliary][person], verb.participle
        return finite, closing, join(closing, finite)

    def declarative(self, front: Phrase = NOTHING) -> Phrase:
        """Say it as a statement. The German finite verb is always second, so after a `front` the subject follows it."""
        subject, adverb = self.subject, self.adverb.en
        auxiliary, verb = self._english_verbs(support=adverb == "not")
        if auxiliary == "can" and adverb == "not":
            auxiliary, adverb = "cannot", ""
        finite, closing, _ = self._german_verbs()
        first, third = (front.de, subject.de) if front.de else (subject.de, "")
        return Phrase(
            en=join(front.en, subject.en, auxiliary, adverb, verb, self._english_rest),
            de=join(first, finite, third, self._german_middle, closing),
        )

    def interrogative(self, question: Phrase = NOTHING) -> Phrase:
        """Say it as a yes-no question, or one that opens with a question word (other than the subject)."""
        auxiliary, verb = self._english_verbs(support=True)
        finite, closing, _ = self._german_verbs()
        return Phrase(
            en=join(question.en, auxiliary, self.subject.en, self.adverb.en, verb, self._english_rest),
            de=join(question.de, finite, self.subject.de, self._german_middle, closing),
        )

    def subordinate(self, conjunction: Phrase) -> Phrase:
        """Say it behind a conjunction, where the German finite verb moves to the very end."""
        _, _, final = self._german_verbs()
        return Phrase(
            en=join(conjunction.en, self.declarative().en),
            de=join(conjunction.de, self.subject.de, self._german_middle, final),
        )
