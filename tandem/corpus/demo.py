"""The demo corpus: English-German sentence pairs from a small grammar, correct and nearly without end.

It lets every command run offline within minutes, and tests what a translator must learn: gender and case, adjective
endings, verbs that split and verbs that wait for the end of the clause. Both languages are built from one meaning,
side by side: a `Clause` holds the choices; `declarative`, `interrogative` and `subordinate` put them into words; a
`Speaker` makes them at random; each function under "Constructions" is one kind of sentence.

Two promises hold by design and are tested:

* An English sentence has one German rendering (the lexicon leaves out what would be ambiguous).
* Every dev and test sentence contains a *combination*, an adjective with its noun or a verb with a noun it governs,
  that occurs nowhere in training. Who scores there has learnt the grammar, not the sentences.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, auto
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from tandem.corpus import demo_lexicon as lexicon
from tandem.corpus.demo_lexicon import (
    BE,
    NO,
    NOT_ANY,
    THE,
    TWO,
    VERBS,
    A,
    Adjective,
    Adjunct,
    Agreement,
    Case,
    Determiner,
    Kind,
    Modal,
    Noun,
    Person,
    Place,
    PlaceSlot,
    Pronoun,
    Slot,
    Tense,
    Verb,
)
from tandem.errors import TandemError

T = TypeVar("T")

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


@cache
def noun_phrase(
    noun: Noun, determiner: Determiner, case: Case, adjective: Adjective | None = None, *, plural: bool = False
) -> Phrase:
    """`the small dog` with `den kleinen Hund`."""
    countable = not plural and not noun.is_mass
    if determiner is A and not countable:
        determiner = lexicon.BARE
    agreement = Agreement.PLURAL if plural else noun.gender
    english, german = [noun.english_form(plural=plural)], [noun.german_form(case, plural=plural)]
    if adjective:
        english.insert(0, adjective.english)
        german.insert(0, adjective.decline(determiner.declension, case, agreement))
    article = "a" if determiner is NOT_ANY and countable else determiner.english
    if article == "a" and english[0][0] in "aeiou":
        article = "an"
    phrase = Phrase(
        en=_join(article, *english),
        de=_join(determiner.german[case][agreement], *german),
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
    de = _join(contraction, rest) if contraction else _join(german, phrase.de)
    return phrase._replace(en=_join(english, phrase.en), de=de, position=position)


def place_phrase(
    place: Place, determiner: Determiner, adjective: Adjective | None, position: Position, *, goal: bool
) -> Phrase:
    """Where (`in der Küche`) or where to (`in die Küche`): German tells them apart by case, unless it says `zu`."""
    english, german = place.to if goal else place.at
    case = Case.ACCUSATIVE if goal and german != "zu" else Case.DATIVE
    return prepositional(english, german, noun_phrase(place, determiner, case, adjective), position)


def _join(*words: str) -> str:
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
    return finite, closing, _join(closing, finite)


def _english_rest(clause: Clause) -> str:
    return _join(*[phrase.en for phrase in clause.rest])


def _middle_field(clause: Clause) -> str:
    phrases = (*clause.rest, clause.adverb) if clause.adverb else clause.rest
    return _join(*[phrase.de for phrase in sorted(phrases, key=lambda phrase: phrase.position)])


def declarative(clause: Clause, front: Text | Phrase | None = None) -> Text:
    """A statement. The German finite verb is always second, so after a `front` the subject follows it."""
    subject, adverb = clause.subject, clause.adverb.en if clause.adverb else ""
    auxiliary, verb = english_verbs(clause, support=clause.negated)
    if auxiliary == "can" and adverb == "not":
        auxiliary, adverb = "cannot", ""
    finite, closing, _ = german_verbs(clause)
    first, third = (front.de, subject.de) if front else (subject.de, "")
    return Text(
        en=_join(front.en if front else "", subject.en, auxiliary, adverb, verb, _english_rest(clause)),
        de=_join(first, finite, third, _middle_field(clause), closing),
    )


def interrogative(clause: Clause, question: Text = Text("", "")) -> Text:  # noqa: B008 - a tuple, never changed
    """A yes-no question, or one that opens with a question word (other than the subject)."""
    auxiliary, verb = english_verbs(clause, support=True)
    adverb = clause.adverb.en if clause.adverb else ""
    finite, closing, _ = german_verbs(clause)
    return Text(
        en=_join(question.en, auxiliary, clause.subject.en, adverb, verb, _english_rest(clause)),
        de=_join(question.de, finite, clause.subject.de, _middle_field(clause), closing),
    )


def subordinate(conjunction: Text, clause: Clause) -> Text:
    """English keeps the order of the main clause; in German the finite verb moves to the very end."""
    _, _, final = german_verbs(clause)
    return Text(
        en=_join(conjunction.en, declarative(clause).en),
        de=_join(conjunction.de, clause.subject.de, _middle_field(clause), final),
    )


# --- Choices --------------------------------------------------------------------------------------------------

# Entries that stand twice are twice as likely.
DEFINITES = (THE, THE, THE, *lexicon.POSSESSIVES)
SUBJECTS = (*DEFINITES, *DEFINITES, A, A, TWO)
STATED_SUBJECTS = (*SUBJECTS, NO)
OBJECTS = (*DEFINITES, A, A, A, TWO)
PLACES = (*DEFINITES, A, A)

NICHT = Phrase("not", "nicht", Position.NEGATION)
NICHT_IN_KEIN = Phrase("not", "")


@cache
def _nouns(kinds: Kind) -> tuple[Noun, ...]:
    return tuple(noun for noun in lexicon.NOUNS if noun.kind & kinds and not isinstance(noun, Place))


@cache
def _places(kinds: Kind) -> tuple[Place, ...]:
    return tuple(noun for noun in lexicon.NOUNS if noun.kind & kinds and isinstance(noun, Place))


@cache
def _adjectives(noun: Noun) -> tuple[Adjective, ...]:
    return tuple(adjective for adjective in lexicon.ADJECTIVES if adjective.kinds & noun.kind)


class Speaker:
    """Chooses at random what to say: words that fit each other, a tense, how much detail."""

    def __init__(self, rng: random.Random) -> None:
        self._random = rng.random

    def chance(self, probability: float) -> bool:
        return self._random() < probability

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self._random() * len(options))]

    def clause(
        self,
        tenses: Sequence[Tense] = lexicon.ANY_TENSE,
        accepts: Callable[[Verb], bool] = lambda verb: True,
        *,
        subjects: Sequence[Determiner] = SUBJECTS,
        taken: Iterable[str] = (),
        negated: bool = False,
        timed: bool = False,
        detailed: bool = False,
        embedded: bool = False,
    ) -> Clause:
        """A clause about others than those `taken`, `timed` if an adverb of time will join it."""
        tense, verb = self.pick(tenses), self.pick(VERBS)
        while tense not in verb.tenses or (timed and verb.lasting) or not accepts(verb):
            verb = self.pick(VERBS)
        subjects, known = DEFINITES if negated else subjects, set(taken)
        if verb is BE:
            subject, adjective = self._description(known, passing=timed)
            return Clause(subject, verb, tense, (adjective,), NICHT if negated else None)
        # `dass du aufmachst` is fine but would make each such form too rare to learn.
        absent = {"speaker", "hearer"} if embedded and verb.de.prefix else set()
        subject = self.entity(verb.subjects, Case.NOMINATIVE, subjects, known | absent)
        kein = negated and _takes_kein(verb) and self.chance(0.6)
        known.add(subject.referent)
        rest: list[Phrase] = []
        for slot in verb.slots:
            determiners = _determiners(verb, slot, negated=negated, kein=kein)
            rest.append(self.complement(slot, determiners, known).combined_with(verb.en.base))
            known.add(rest[-1].referent)
        if detailed and verb.adjuncts and self.chance(0.6):
            rest.append(self.adjunct(self.pick(verb.adjuncts), known))
        adverb = (NICHT_IN_KEIN if kein else NICHT) if negated else None
        modal = self.pick(lexicon.MODALS) if tense is Tense.MODAL else None
        return Clause(subject, verb, tense, tuple(rest), adverb, modal)

    def entity(self, kinds: Kind, case: Case, determiners: Sequence[Determiner], taken: set[str]) -> Phrase:
        """Somebody or something not yet `taken`; people also come as names and pronouns."""
        while True:
            noun, determiner = self.pick(_nouns(kinds)), self.pick(determiners)
            if noun.is_person and determiner.definite and self.chance(0.6):
                phrase = self._known_person(case)
            else:
                phrase = self._described(noun, determiner, case)
            if not phrase.referent or phrase.referent not in taken:
                return phrase

    def _known_person(self, case: Case) -> Phrase:
        if self.chance(0.6):
            return pronoun_phrase(self.pick(lexicon.PRONOUNS), case)
        name = self.pick(lexicon.NAMES)
        return Phrase(name, name, referent=name)

    def _described(self, noun: Noun, determiner: Determiner, case: Case) -> Phrase:
        determiner = _fitting(determiner, noun)
        plural = determiner is TWO or (noun.has_plural and self.chance(0.3))
        if determiner is A and case is Case.DATIVE:
            plural = False  # without an article nothing shows the case: `Mädchen zuhören`
        return noun_phrase(noun, determiner, case, self.adjective(noun), plural=plural)

    def adjective(self, noun: Noun, probability: float = 0.4) -> Adjective | None:
        return self.pick(_adjectives(noun)) if self.chance(probability) else None

    def _description(self, taken: set[str], *, passing: bool) -> tuple[Phrase, Phrase]:
        """Subject and predicate of `is`: a passing state of a person, or a lasting quality of anything."""
        if passing or self.chance(0.6):
            adjective = self.pick(lexicon.STATES)
            subject = self.entity(Kind.PERSON, Case.NOMINATIVE, DEFINITES, taken)
        else:
            noun = self.pick(lexicon.NOUNS)
            adjective, determiner = self.pick(_adjectives(noun)), _fitting(self.pick(DEFINITES), noun)
            plural = noun.has_plural and self.chance(0.3)
            subject = noun_phrase(noun, determiner, Case.NOMINATIVE, plural=plural)
        predicate = Phrase(adjective.english, adjective.german, Position.COMPLEMENT)
        return subject.combined_with(adjective.english), predicate

    def complement(self, slot: Slot | PlaceSlot, determiners: Sequence[Determiner], taken: set[str]) -> Phrase:
        if isinstance(slot, PlaceSlot):
            places = DEFINITES if determiners is DEFINITES else PLACES
            return self.place(slot.kinds, places, Position.COMPLEMENT, goal=slot.goal)
        phrase = self.entity(slot.kinds, slot.case, determiners, taken)
        position = Position.COMPLEMENT if slot.german else phrase.position
        return prepositional(slot.english, slot.german, phrase, position)

    def place(
        self, kinds: Kind, determiners: Sequence[Determiner], position: Position, *, goal: bool = False
    ) -> Phrase:
        if not kinds & Kind.PLACE and self.chance(0.4):
            english, german = self.pick(lexicon.TOWNS)
            prepositions = ("to", "nach") if goal else ("in", "in")
            return prepositional(*prepositions, Phrase(english, german, referent=english), position)
        place = self.pick(_places(kinds))
        determiner = _fitting(self.pick(determiners), place)
        return place_phrase(place, determiner, self.adjective(place), position, goal=goal)

    def adjunct(self, kind: Adjunct, taken: set[str]) -> Phrase:
        if kind is Adjunct.PLACE:
            return self.place(Kind.PLACE, PLACES, Position.PLACE)
        if kind is Adjunct.BENEFICIARY:
            beneficiary = self.entity(Kind.PERSON, Case.ACCUSATIVE, DEFINITES, taken)
            return prepositional("for", "für", beneficiary, Position.BENEFICIARY)
        english, german, case = self.pick(lexicon.COMPANIES)
        companion = self.entity(Kind.BEING, case, DEFINITES, taken)
        return prepositional(english, german, companion, Position.COMPANION)

    def time(self, tense: Tense) -> Phrase:
        return Phrase(*self.pick(lexicon.TIMES[tense]), Position.TIME)


def _fitting(determiner: Determiner, noun: Noun) -> Determiner:
    """Fall back on `the` where `two milks` or `my station` would come out."""
    impossible = determiner is TWO and not noun.has_plural
    unowned = determiner in lexicon.POSSESSIVES and not noun.is_ownable
    return THE if impossible or unowned else determiner


def _determiners(verb: Verb, slot: Slot | PlaceSlot, *, negated: bool, kein: bool) -> Sequence[Determiner]:
    """Articles that a complement may have.

    `kein` takes the place of the last object's article. `nicht` needs known things around it, and so does a
    recipient: `gibt den Schlüssel Freunden` leaves the reader guessing at the case.
    """
    last = slot is verb.slots[-1]
    if kein and last:
        return (NOT_ANY,)
    return OBJECTS if last and not negated else DEFINITES


def _last_object(verb: Verb) -> Slot | None:
    slot = verb.slots[-1] if verb.slots else None
    return slot if isinstance(slot, Slot) else None


def _takes_kein(verb: Verb) -> bool:
    slot = _last_object(verb)
    return slot is not None and not slot.german


def _takes_place(verb: Verb) -> bool:
    return Adjunct.PLACE in verb.adjuncts or any(isinstance(slot, PlaceSlot) for slot in verb.slots)


# --- Constructions --------------------------------------------------------------------------------------------


class Utterance(NamedTuple):
    """Words without capital and full stop, with the clauses that they came from."""

    text: Text
    mark: str
    clauses: tuple[Clause, ...]


def statement(speaker: Speaker) -> Utterance:
    clause = speaker.clause(subjects=STATED_SUBJECTS, detailed=True)
    return Utterance(declarative(clause), ".", (clause,))


def timed_statement(speaker: Speaker) -> Utterance:
    clause = speaker.clause(tuple(lexicon.TIMES), subjects=STATED_SUBJECTS, timed=True)
    clause = replace(clause, rest=(*clause.rest, speaker.time(clause.tense)))
    return Utterance(declarative(clause), ".", (clause,))


def inversion(speaker: Speaker) -> Utterance:
    """`Gestern hat Anna geschlafen`: the time in front. What is *not* done every day is better said otherwise."""
    negated = speaker.chance(0.25)
    tenses = (Tense.PAST, Tense.MODAL) if negated else tuple(lexicon.TIMES)
    clause = speaker.clause(tenses, subjects=STATED_SUBJECTS, negated=negated, timed=True, detailed=not negated)
    return Utterance(declarative(clause, front=speaker.time(clause.tense)), ".", (clause,))


def identification(speaker: Speaker) -> Utterance:
    """`Das ist kein neuer Schlüssel`: where every noun is nominative, people or not."""
    noun, determiner, negated = speaker.pick(lexicon.NOUNS), speaker.pick((A, *DEFINITES)), speaker.chance(0.3)
    plural = not negated and noun.has_plural and speaker.chance(0.3)
    kein = negated and determiner is A and not noun.is_mass
    determiner = NOT_ANY if kein else THE if negated and determiner is A else _fitting(determiner, noun)
    named = noun_phrase(noun, determiner, Case.NOMINATIVE, speaker.adjective(noun, 0.7), plural=plural)
    subject = Phrase("these" if plural else "this", "das", person=named.person)
    rest = (named._replace(position=Position.COMPLEMENT),)
    adverb = (NICHT_IN_KEIN if kein else NICHT) if negated else None
    clause = Clause(subject, BE, speaker.pick(BE.tenses), rest, adverb)
    return Utterance(declarative(clause), ".", (clause,))


def negation(speaker: Speaker) -> Utterance:
    clause = speaker.clause(negated=True)
    return Utterance(declarative(clause), ".", (clause,))


def habit(speaker: Speaker) -> Utterance:
    clause = speaker.clause(tuple(lexicon.HABITS), subjects=DEFINITES, timed=True)
    adverb = Phrase(*speaker.pick(lexicon.HABITS[clause.tense]), Position.ADVERB)
    clause = replace(clause, adverb=adverb)
    return Utterance(declarative(clause), ".", (clause,))


def yes_no_question(speaker: Speaker) -> Utterance:
    clause = speaker.clause(detailed=True)
    return Utterance(interrogative(clause), "?", (clause,))


def subject_question(speaker: Speaker) -> Utterance:
    clause = speaker.clause(accepts=lambda verb: verb is not BE and Kind.PERSON in verb.subjects, detailed=True)
    clause = replace(clause, subject=Phrase("who", "wer"))
    return Utterance(declarative(clause), "?", (clause,))


def object_question(speaker: Speaker) -> Utterance:
    """Ask for the last object: `wen` or `wem` as the verb demands; English leaves its preposition behind."""
    clause = speaker.clause(accepts=lambda verb: _last_object(verb) is not None)
    slot = _last_object(clause.verb)
    assert slot is not None
    if Kind.PERSON in slot.kinds and (slot.kinds in Kind.BEING or speaker.chance(0.5)):
        question = Text("who", _join(slot.german, {Case.ACCUSATIVE: "wen", Case.DATIVE: "wem"}[slot.case]))
    else:
        question = Text("what", "was")
    clause = replace(clause, rest=(*clause.rest[:-1], Phrase(slot.english, "")))
    return Utterance(interrogative(clause, question), "?", (clause,))


def place_question(speaker: Speaker) -> Utterance:
    """German asks `wo` for a place and `wohin` for a goal."""
    clause = speaker.clause(accepts=_takes_place)
    question = Text("where", "wo")
    slot = clause.verb.slots[-1] if clause.verb.slots else None
    if isinstance(slot, PlaceSlot):
        clause = replace(clause, rest=clause.rest[:-1])
        question = Text("where", "wohin" if slot.goal else "wo")
    return Utterance(interrogative(clause, question), "?", (clause,))


def time_question(speaker: Speaker) -> Utterance:
    clause = speaker.clause(tuple(lexicon.TIMES), timed=True)
    return Utterance(interrogative(clause, Text("when", "wann")), "?", (clause,))


def reason_question(speaker: Speaker) -> Utterance:
    clause = speaker.clause(negated=speaker.chance(0.4))
    return Utterance(interrogative(clause, Text("why", "warum")), "?", (clause,))


def adverbial_clause(speaker: Speaker) -> Utterance:
    """`..., weil sie müde ist`: a reason, concession or condition after the main clause."""
    main, conjunction, condition = _main_and_condition(speaker)
    first, second = declarative(main), subordinate(conjunction, condition)
    return Utterance(Text(f"{first.en} {second.en}", f"{first.de}, {second.de}"), ".", (main, condition))


def fronted_clause(speaker: Speaker) -> Utterance:
    """`Wenn sie müde ist, schläft sie`: the clause in front counts as one part, the finite verb comes next."""
    main, conjunction, condition = _main_and_condition(speaker)
    first = subordinate(conjunction, condition)
    return Utterance(declarative(main, front=Text(f"{first.en},", f"{first.de},")), ".", (main, condition))


def _main_and_condition(speaker: Speaker) -> tuple[Clause, Text, Clause]:
    english, german, tenses = speaker.pick(lexicon.CONJUNCTIONS)
    main_tense, tense = speaker.pick(tenses)
    main = speaker.clause((main_tense,), negated=speaker.chance(0.2))
    condition = speaker.clause((tense,), taken=main.referents, negated=speaker.chance(0.2), embedded=True)
    return main, Text(english, german), condition


def content_clause(speaker: Speaker) -> Utterance:
    """`Weißt du, ob ...?`: what somebody knows, says, thinks or asks."""
    verb, *conjunction = speaker.pick(lexicon.CLAUSE_VERBS)
    tense, asked = speaker.pick(verb.tenses), speaker.chance(0.25)
    subject = speaker.entity(Kind.PERSON, Case.NOMINATIVE, DEFINITES, set())
    matrix = Clause(subject, verb, tense, adverb=NICHT if not asked and speaker.chance(0.25) else None)
    # English shifts tenses after a past verb; a second past is right in both languages.
    tenses = (Tense.PAST,) if tense is Tense.PAST else lexicon.ANY_TENSE
    content = speaker.clause(tenses, taken=matrix.referents, embedded=True)
    first = interrogative(matrix) if asked else declarative(matrix)
    second = subordinate(Text(*conjunction), content)
    text = Text(f"{first.en} {second.en}", f"{first.de}, {second.de}")
    return Utterance(text, "?" if asked else ".", (matrix, content))


def contrast(speaker: Speaker) -> Utterance:
    """`aber` joins main clauses and, unlike `weil`, leaves their order alone."""
    tense = speaker.pick((Tense.PRESENT, Tense.PAST))
    positive = speaker.clause((tense,))
    negative = speaker.clause((tense,), taken=positive.referents, negated=True)
    first, second = declarative(positive), declarative(negative)
    text = Text(f"{first.en}, but {second.en}", f"{first.de}, aber {second.de}")
    return Utterance(text, ".", (positive, negative))


Construction = Callable[[Speaker], Utterance]
# Each with its weight.
CONSTRUCTIONS: dict[Construction, int] = {
    statement: 4,
    timed_statement: 1,
    inversion: 3,
    identification: 2,
    negation: 3,
    habit: 2,
    yes_no_question: 2,
    subject_question: 1,
    object_question: 1,
    place_question: 1,
    time_question: 1,
    reason_question: 1,
    adverbial_clause: 2,
    fronted_clause: 2,
    content_clause: 3,
    contrast: 1,
}

# --- Corpus ---------------------------------------------------------------------------------------------------

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
    """Draw `pairs` distinct training pairs, and dev and test pairs with combinations kept from training."""
    if pairs < 1:
        raise TandemError(f"a demo corpus needs at least 1 training pair, not {pairs}")
    speaker = Speaker(random.Random(seed))
    constructions = [construction for construction, weight in CONSTRUCTIONS.items() for _ in range(weight)]
    wanted = {"train": pairs, "dev": HELD_OUT_PAIRS, "test": HELD_OUT_PAIRS}
    chosen: dict[str, list[Pair]] = {split: [] for split in wanted}
    seen: set[str] = set()
    while any(len(chosen[split]) < count for split, count in wanted.items()):
        pair = say(speaker, speaker.pick(constructions))
        split = split_of(pair.combinations)
        if not split or len(chosen[split]) == wanted[split] or pair.source in seen or _is_long(pair):
            continue
        seen.add(pair.source)
        chosen[split].append(pair)
    return DemoCorpus(**chosen)


def say(speaker: Speaker, construction: Construction) -> Pair:
    text, mark, clauses = construction(speaker)
    combinations = frozenset[Combination]().union(*(clause.combinations for clause in clauses))
    return Pair(_sentence(text.en, mark), _sentence(text.de, mark), construction.__name__, combinations)


def _sentence(words: str, mark: str) -> str:
    return words[0].upper() + words[1:] + mark


def _is_long(pair: Pair) -> bool:
    return max(pair.source.count(" "), pair.target.count(" ")) >= LONGEST_WORDS


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


def write(directory: Path, pairs: int = 20_000, seed: int = 1) -> None:
    """Write `train.en`, `train.de` and likewise dev and test: one sentence a line, line n of both a pair."""
    corpus = generate(pairs, seed)
    directory.mkdir(parents=True, exist_ok=True)
    for split, chosen in (("train", corpus.train), ("dev", corpus.dev), ("test", corpus.test)):
        for suffix, lines in (("en", [pair.source for pair in chosen]), ("de", [pair.target for pair in chosen])):
            text = "".join(f"{line}\n" for line in lines)
            (directory / f"{split}.{suffix}").write_text(text, encoding="utf-8", newline="\n")
