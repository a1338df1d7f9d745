"""Phrases and clauses in English and German, side by side.

Both languages are built from one meaning: a `Phrase` is in its case already, a `Clause` holds the choices, and
`declarative`, `interrogative` and `subordinate` put them into words.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, auto
from functools import cache
from typing import NamedTuple

from tandem.corpus.demo import lexicon
from tandem.corpus.demo.entries import Adjective, Determiner, Modal, Noun, Place, Pronoun, Verb
from tandem.corpus.demo.morphology import Agreement, Case, Person, Tense

# --- Phrases --------------------------------------------------------------------------------------------------


class Combination(NamedTuple):
    """A content word and the noun it goes with: ("red", "bag") or ("open", "bag")."""

    word: str
    noun: str


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


class Text(NamedTuple):
    """The same words in both languages."""

    en: str
    de: str


class Phrase(NamedTuple):
    """A part of a clause, already in its case."""

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
        return self._replace(combinations=self.combinations | {Combination(word, self.noun)})


NICHT = Phrase("not", "nicht", Position.NEGATION)
NICHT_IN_KEIN = Phrase("not", "")


@cache
def noun_phrase(
    noun: Noun, determiner: Determiner, case: Case, adjective: Adjective | None = None, *, plural: bool = False
) -> Phrase:
    """`the small dog` with `den kleinen Hund`."""
    countable = not plural and not noun.is_mass
    if determiner is lexicon.A and not countable:
        determiner = lexicon.BARE
    agreement = Agreement.PLURAL if plural else noun.gender
    english, german = [noun.english_form(plural=plural)], [noun.german_form(case, plural=plural)]
    if adjective:
        english.insert(0, adjective.english)
        german.insert(0, adjective.decline(determiner.declension, case, agreement))
    article = "a" if determiner is lexicon.NOT_ANY and countable else determiner.english
    if article == "a" and english[0][0] in "aeiou":
        article = "an"
    phrase = Phrase(
        en=join(article, *english),
        de=join(determiner.german[case][agreement], *german),
        position=Position.DEFINITE if determiner.definite else Position.INDEFINITE,
        person=Person.PLURAL if plural else Person.THIRD,
        referent=noun.lemma,
        noun=noun.lemma,
    )
    return phrase.combined_with(adjective.english) if adjective else phrase


def pronoun_phrase(pronoun: Pronoun, case: Case) -> Phrase:
    english = pronoun.english.split()[case is not Case.NOMINATIVE]
    return Phrase(english, pronoun.german.split()[case], Position.PRONOUN, pronoun.person, pronoun.referent)


def prepositional(english: str, german: str, phrase: Phrase, position: Position) -> Phrase:
    """Put prepositions in front; German melts some into the article: `in dem Park` is said `im Park`."""
    article, _, rest = phrase.de.partition(" ")
    contraction = lexicon.CONTRACTIONS.get((german, article))
    de = join(contraction, rest) if contraction else join(german, phrase.de)
    return phrase._replace(en=join(english, phrase.en), de=de, position=position)


def place_phrase(
    place: Place, determiner: Determiner, adjective: Adjective | None, position: Position, *, goal: bool
) -> Phrase:
    """Where (`in der Küche`) or where to (`in die Küche`): German tells them apart by case, unless it says `zu`."""
    english, german = place.to if goal else place.at
    case = Case.ACCUSATIVE if goal and german != "zu" else Case.DATIVE
    return prepositional(english, german, noun_phrase(place, determiner, case, adjective), position)


def join(*words: str) -> str:
    return " ".join([word for word in words if word])


# --- Clauses --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clause:
    """One verb and what belongs to it, before any word order is chosen."""

    subject: Phrase
    verb: Verb
    tense: Tense
    rest: tuple[Phrase, ...] = ()
    """Everything after the English verb, in English order; German sorts it by position."""
    adverb: Phrase | None = None
    """`not`, `often`, `already`: English puts it before the main verb."""
    modal: Modal | None = None

    @property
    def negated(self) -> bool:
        return self.adverb is not None and self.adverb.en == "not"

    @property
    def referents(self) -> set[str]:
        return {phrase.referent for phrase in (self.subject, *self.rest)}

    @property
    def combinations(self) -> frozenset[Combination]:
        return self.subject.combinations.union(*(phrase.combinations for phrase in self.rest))


def english_verbs(clause: Clause, *, support: bool) -> tuple[str, str]:
    """Auxiliary and main verb; `support` asks for the `do` that questions and negation need."""
    verb, modal, person = clause.verb.en, clause.modal, clause.subject.person
    if modal:
        if not modal.third:
            return modal.english, verb.base
        if support:
            return lexicon.DO[person], f"{modal.english} {verb.base}"
        return "", f"{modal.present[person]} {verb.base}"
    if clause.tense is Tense.PERFECT:
        return lexicon.HAVE[person], verb.participle
    finite = (verb.past if clause.tense is Tense.PAST else verb.present)[person]
    if verb.base == "be":
        return finite, ""
    if support:
        return "did" if clause.tense is Tense.PAST else lexicon.DO[person], verb.base
    return "", finite


def german_verbs(clause: Clause) -> tuple[str, str, str]:
    """Finite verb and closing part, which bracket a main clause, then both as they end a subordinate one."""
    verb, person = clause.verb.de, clause.subject.person
    if clause.modal:
        finite, closing = clause.modal.german[person], verb.infinitive
    elif clause.tense is Tense.PRESENT:
        finite = verb.present[person]
        return finite, verb.prefix, verb.prefix + finite
    elif verb.preterite:
        finite, closing = verb.preterite[person], ""
    else:
        finite, closing = lexicon.AUXILIARIES[clause.verb.auxiliary][person], verb.participle
    return finite, closing, join(closing, finite)


def _english_rest(clause: Clause) -> str:
    return join(*[phrase.en for phrase in clause.rest])


def _middle_field(clause: Clause) -> str:
    phrases = (*clause.rest, clause.adverb) if clause.adverb else clause.rest
    return join(*[phrase.de for phrase in sorted(phrases, key=lambda phrase: phrase.position)])


def declarative(clause: Clause, front: Text | Phrase | None = None) -> Text:
    """A statement. The German finite verb is always second, so after a `front` the subject follows it."""
    subject, adverb = clause.subject, clause.adverb.en if clause.adverb else ""
    auxiliary, verb = english_verbs(clause, support=clause.negated)
    if auxiliary == "can" and adverb == "not":
        auxiliary, adverb = "cannot", ""
    finite, closing, _ = german_verbs(clause)
    first, third = (front.de, subject.de) if front else (subject.de, "")
    return Text(
        en=join(front.en if front else "", subject.en, auxiliary, adverb, verb, _english_rest(clause)),
        de=join(first, finite, third, _middle_field(clause), closing),
    )


def interrogative(clause: Clause, question: Text = Text("", "")) -> Text:  # noqa: B008 - a tuple, never changed
    """A yes-no question, or one that opens with a question word (other than the subject)."""
    auxiliary, verb = english_verbs(clause, support=True)
    adverb = clause.adverb.en if clause.adverb else ""
    finite, closing, _ = german_verbs(clause)
    return Text(
        en=join(question.en, auxiliary, clause.subject.en, adverb, verb, _english_rest(clause)),
        de=join(question.de, finite, clause.subject.de, _middle_field(clause), closing),
    )


def subordinate(conjunction: Text, clause: Clause) -> Text:
    """English keeps the order of the main clause; in German the finite verb moves to the very end."""
    _, _, final = german_verbs(clause)
    return Text(
        en=join(conjunction.en, declarative(clause).en),
        de=join(conjunction.de, clause.subject.de, _middle_field(clause), final),
    )
