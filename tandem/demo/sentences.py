"""Random sentences: a speaker that chooses words which fit each other, and sixteen kinds of sentence to fill."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple, TypeVar

from tandem.demo.grammar import NOTHING, Clause, Phrase, Position, negative, noun_phrase, place_phrase, pronoun_phrase
from tandem.demo.lexicon import BEING, LEXICON, PERSON, PLACE, Adjective, Case, Determiner, Kinds, Noun, Tense, Verb

T = TypeVar("T")
# Entries that stand twice are twice as likely.
DEFINITES = (*3 * [Determiner.THE], Determiner.MY, Determiner.HIS, Determiner.HER)
SUBJECTS = (*2 * DEFINITES, *2 * [Determiner.A], Determiner.TWO)
STATED_SUBJECTS = (*SUBJECTS, Determiner.NO)
OBJECTS = (*DEFINITES, *3 * [Determiner.A], Determiner.TWO)
PLACES = (*DEFINITES, *2 * [Determiner.A])
VERBS = tuple(verb for verb in (LEXICON.be, *LEXICON.verbs) for _ in range(verb.weight))
PRONOUNS = tuple(pronoun for pronoun in LEXICON.pronouns for _ in range(pronoun.weight))
# Mostly present and modal, the latter for the sake of the infinitives.
ANY_TENSE = (Tense.PRESENT, Tense.PRESENT, Tense.PRESENT, Tense.PAST, Tense.PERFECT, Tense.MODAL, Tense.MODAL)
TIMED_TENSES = tuple(LEXICON.times)


@cache
def _nouns(kinds: Kinds) -> tuple[Noun, ...]:
    return tuple(noun for noun in LEXICON.nouns if noun.kinds & kinds)


@cache
def _adjectives(kinds: Kinds) -> tuple[Adjective, ...]:
    return tuple(adjective for adjective in LEXICON.adjectives if adjective.kinds & kinds)


def _fitting(determiner: Determiner, noun: Noun) -> Determiner:
    """Fall back on `the` where `two milks` or `my station` would come out."""
    impossible = determiner is Determiner.TWO and not noun.has_plural
    unowned = determiner.is_possessive and not noun.is_ownable
    return Determiner.THE if impossible or unowned else determiner


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
        tenses: Sequence[Tense] = ANY_TENSE,
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
        known = set(taken)
        if verb is LEXICON.be:
            subject, adjective = self._description(known, passing=timed)
            return Clause(subject, verb, tense, (adjective,), negative(negated))
        # `dass du aufmachst` is fine but would make each such form too rare to learn.
        absent = {"speaker", "hearer"} if embedded and verb.de.prefix else set()
        subject = self.entity(verb.subjects, Case.NOMINATIVE, DEFINITES if negated else subjects, known | absent)
        known.add(subject.referent)
        rest, adverb = self._complements(verb, known, negated=negated)
        if detailed and verb.adjuncts and self.chance(0.6):
            rest.append(self._adjunct(self.pick(verb.adjuncts), known))
        modal = self.pick(LEXICON.modals) if tense is Tense.MODAL else None
        return Clause(subject, verb, tense, tuple(rest), adverb, modal)

    def _complements(self, verb: Verb, known: set[str], *, negated: bool) -> tuple[list[Phrase], Phrase]:
        """What the verb asks for, and what negates it; adds to the `known`.

        `kein` negates by taking the place of the object's article, unless a preposition stands before it.
        `nicht` needs known things around it, and so does a recipient: `gibt den Schlüssel Freunden` leaves the reader
        guessing at the case.
        """
        asked = verb.object
        rest: list[Phrase] = []
        kein = negated and asked is not None and not asked.de and self.chance(0.6)
        if verb.recipient:
            rest.append(self.entity(verb.recipient, Case.DATIVE, DEFINITES, known))
            known.add(rest[-1].referent)
        if asked:
            determiners = (Determiner.NOT_ANY,) if kein else DEFINITES if negated else OBJECTS
            phrase = self.entity(asked.kinds, asked.case, determiners, known)
            rest.append(phrase.after(asked.en, asked.de, Position.COMPLEMENT if asked.de else phrase.position))
        if places := verb.at | verb.to:
            articles = DEFINITES if negated else PLACES
            rest.append(self.place(places, articles, Position.COMPLEMENT, known, goal=bool(verb.to)))
        known.update(phrase.referent for phrase in rest)
        return [phrase.combined_with(verb.en.base) for phrase in rest], negative(negated, kein=kein)

    def entity(self, kinds: Kinds, case: Case, determiners: Sequence[Determiner], taken: set[str]) -> Phrase:
        """A random noun phrase for a person or thing not yet `taken`; people also come as names and pronouns."""
        while True:
            noun, determiner = self.pick(_nouns(kinds)), self.pick(determiners)
            if noun.kinds & PERSON and determiner.definite and self.chance(0.6):
                name = None if self.chance(0.6) else self.pick(LEXICON.names)
                phrase = Phrase(name, name, referent=name) if name else pronoun_phrase(self.pick(PRONOUNS), case)
            else:
                phrase = self._described(noun, determiner, case)
            if not phrase.referent or phrase.referent not in taken:
                return phrase

    def _described(self, noun: Noun, determiner: Determiner, case: Case) -> Phrase:
        determiner = _fitting(determiner, noun)
        plural = determiner is Determiner.TWO or (noun.has_plural and self.chance(0.3))
        if determiner is Determiner.A and case is Case.DATIVE:
            plural = False  # without an article nothing shows the case: `Mädchen zuhören`
        return noun_phrase(noun, determiner, case, self.adjective(noun), plural=plural)

    def adjective(self, noun: Noun, probability: float = 0.4) -> Adjective | None:
        return self.pick(_adjectives(noun.kinds)) if self.chance(probability) else None

    def _description(self, taken: set[str], *, passing: bool) -> tuple[Phrase, Phrase]:
        """Subject and predicate of `is`: a passing state of a person, or a lasting quality of anything."""
        if passing or self.chance(0.6):
            adjective = self.pick(LEXICON.states)
            subject = self.entity(PERSON, Case.NOMINATIVE, DEFINITES, taken)
        else:
            noun = self.pick([noun for noun in LEXICON.nouns if noun.lemma not in taken])
            adjective, determiner = self.pick(_adjectives(noun.kinds)), _fitting(self.pick(DEFINITES), noun)
            plural = noun.has_plural and self.chance(0.3)
            subject = noun_phrase(noun, determiner, Case.NOMINATIVE, plural=plural)
        predicate = Phrase(adjective.en, adjective.de, Position.COMPLEMENT)
        return subject.combined_with(adjective.en), predicate

    def place(
        self, kinds: Kinds, articles: Sequence[Determiner], position: Position, taken: set[str], *, goal: bool = False
    ) -> Phrase:
        if not kinds & PLACE and self.chance(0.4):
            english, german = self.pick([town for town in LEXICON.towns if town[0] not in taken])
            prepositions = ("to", "nach") if goal else ("in", "in")
            return Phrase(english, german, referent=english).after(*prepositions, position)
        place = self.pick([place for place in _nouns(kinds) if place.lemma not in taken])
        determiner = _fitting(self.pick(articles), place)
        return place_phrase(place, determiner, self.adjective(place), position, goal=goal)

    def _adjunct(self, kind: str, taken: set[str]) -> Phrase:
        if kind == "place":
            return self.place(PLACE, PLACES, Position.PLACE, taken)
        if kind == "beneficiary":
            beneficiary = self.entity(PERSON, Case.ACCUSATIVE, DEFINITES, taken)
            return beneficiary.after("for", "für", Position.BENEFICIARY)
        english, german, case = self.pick(LEXICON.companies)
        companion = self.entity(BEING, case, DEFINITES, taken)
        return companion.after(english, german, Position.COMPANION)

    def time(self, tense: Tense) -> Phrase:
        return Phrase(*self.pick(LEXICON.times[tense]), Position.TIME)


# --- Kinds of sentence ----------------------------------------------------------------------------------------


class Utterance(NamedTuple):
    """Words without capital and full stop, with the clauses that they came from."""

    text: Phrase
    mark: str
    clauses: tuple[Clause, ...]


def _stated(clause: Clause, front: Phrase = NOTHING) -> Utterance:
    return Utterance(clause.declarative(front), ".", (clause,))


def _asked(clause: Clause, question: Phrase = NOTHING) -> Utterance:
    return Utterance(clause.interrogative(question), "?", (clause,))


def statement(speaker: Speaker) -> Utterance:
    return _stated(speaker.clause(subjects=STATED_SUBJECTS, detailed=True))


def timed_statement(speaker: Speaker) -> Utterance:
    clause = speaker.clause(TIMED_TENSES, subjects=STATED_SUBJECTS, timed=True)
    return _stated(replace(clause, rest=(*clause.rest, speaker.time(clause.tense))))


def inversion(speaker: Speaker) -> Utterance:
    """`Gestern hat Anna geschlafen`: the time in front. What is *not* done every day is better said otherwise."""
    negated = speaker.chance(0.25)
    tenses = (Tense.PAST, Tense.MODAL) if negated else TIMED_TENSES
    clause = speaker.clause(tenses, subjects=STATED_SUBJECTS, negated=negated, timed=True, detailed=not negated)
    return _stated(clause, front=speaker.time(clause.tense))


def identification(speaker: Speaker) -> Utterance:
    """`Das ist kein neuer Schlüssel`: where every noun is nominative, people or not."""
    noun, determiner = speaker.pick(LEXICON.nouns), speaker.pick((Determiner.A, *DEFINITES))
    negated = speaker.chance(0.3)
    plural = not negated and noun.has_plural and speaker.chance(0.3)
    kein = negated and determiner is Determiner.A and not noun.is_mass
    if kein:
        determiner = Determiner.NOT_ANY
    elif negated and determiner is Determiner.A:
        determiner = Determiner.THE
    else:
        determiner = _fitting(determiner, noun)
    named = noun_phrase(noun, determiner, Case.NOMINATIVE, speaker.adjective(noun, 0.7), plural=plural)
    subject = Phrase("these" if plural else "this", "das", person=named.person)
    rest = (named._replace(position=Position.COMPLEMENT),)
    return _stated(Clause(subject, LEXICON.be, speaker.pick(LEXICON.be.tenses), rest, negative(negated, kein=kein)))


def negation(speaker: Speaker) -> Utterance:
    return _stated(speaker.clause(negated=True))


def habit(speaker: Speaker) -> Utterance:
    clause = speaker.clause(tuple(LEXICON.habits), subjects=DEFINITES, timed=True)
    return _stated(replace(clause, adverb=Phrase(*speaker.pick(LEXICON.habits[clause.tense]), Position.ADVERB)))


def yes_no_question(speaker: Speaker) -> Utterance:
    return _asked(speaker.clause(detailed=True))


def subject_question(speaker: Speaker) -> Utterance:
    """`Wer schläft?`: in both languages the order of a statement."""
    clause = speaker.clause(accepts=lambda verb: verb is not LEXICON.be and verb.subjects >= PERSON, detailed=True)
    return _stated(replace(clause, subject=Phrase("who", "wer")))._replace(mark="?")


def object_question(speaker: Speaker) -> Utterance:
    """Ask for the object: `wen` or `wem` as the verb demands; English leaves its preposition behind."""
    clause = speaker.clause(accepts=lambda verb: verb.object is not None)
    asked = clause.verb.object
    assert asked is not None
    if asked.kinds >= PERSON and (asked.kinds <= BEING or speaker.chance(0.5)):
        pronoun = "wem" if asked.case is Case.DATIVE else "wen"
        question = Phrase("who", f"{asked.de} {pronoun}".strip())
    else:
        question = Phrase("what", "was")
    return _asked(replace(clause, rest=(*clause.rest[:-1], Phrase(asked.en, ""))), question)


def place_question(speaker: Speaker) -> Utterance:
    """German asks `wo` for a place and `wohin` for a goal."""
    clause = speaker.clause(accepts=lambda verb: bool(verb.at | verb.to) or "place" in verb.adjuncts)
    verb = clause.verb
    if verb.at | verb.to:
        clause = replace(clause, rest=clause.rest[:-1])
    return _asked(clause, Phrase("where", "wohin" if verb.to else "wo"))


def time_question(speaker: Speaker) -> Utterance:
    return _asked(speaker.clause(TIMED_TENSES, timed=True), Phrase("when", "wann"))


def reason_question(speaker: Speaker) -> Utterance:
    return _asked(speaker.clause(negated=speaker.chance(0.4)), Phrase("why", "warum"))


def adverbial_clause(speaker: Speaker) -> Utterance:
    """`..., weil sie müde ist`: a reason, concession or condition after the main clause."""
    main, condition, text = _main_and_condition(speaker)
    return Utterance(main.declarative().followed_by(text), ".", (main, condition))


def fronted_clause(speaker: Speaker) -> Utterance:
    """`Wenn sie müde ist, schläft sie`: the clause in front counts as one part, the finite verb comes next."""
    main, condition, text = _main_and_condition(speaker)
    return Utterance(main.declarative(front=Phrase(f"{text.en},", f"{text.de},")), ".", (main, condition))


def _main_and_condition(speaker: Speaker) -> tuple[Clause, Clause, Phrase]:
    """A main clause and a subordinate one, the latter also in words."""
    english, german, tenses = speaker.pick(LEXICON.conjunctions)
    main_tense, tense = speaker.pick(tenses)
    main = speaker.clause((main_tense,), negated=speaker.chance(0.2))
    condition = speaker.clause((tense,), taken=main.referents, negated=speaker.chance(0.2), embedded=True)
    return main, condition, condition.subordinate(Phrase(english, german))


def content_clause(speaker: Speaker) -> Utterance:
    """`Weißt du, ob ...?`: what somebody knows, says, thinks or asks."""
    verb, english, german = speaker.pick(LEXICON.clause_verbs)
    tense, asked = speaker.pick(verb.tenses), speaker.chance(0.25)
    subject = speaker.entity(PERSON, Case.NOMINATIVE, DEFINITES, set())
    matrix = Clause(subject, verb, tense, adverb=negative(not asked and speaker.chance(0.25)))
    # English shifts tenses after a past verb; a second past is right in both languages.
    tenses = (Tense.PAST,) if tense is Tense.PAST else ANY_TENSE
    content = speaker.clause(tenses, taken=matrix.referents, embedded=True)
    first = matrix.interrogative() if asked else matrix.declarative()
    text = first.followed_by(content.subordinate(Phrase(english, german)))
    return Utterance(text, "?" if asked else ".", (matrix, content))


def contrast(speaker: Speaker) -> Utterance:
    """`aber` joins main clauses and, unlike `weil`, leaves their order alone."""
    tense = speaker.pick((Tense.PRESENT, Tense.PAST))
    positive = speaker.clause((tense,))
    negative = speaker.clause((tense,), taken=positive.referents, negated=True)
    first, second = positive.declarative(), negative.declarative()
    text = Phrase(f"{first.en}, but {second.en}", f"{first.de}, aber {second.de}")
    return Utterance(text, ".", (positive, negative))


Construction = Callable[[Speaker], Utterance]
CONSTRUCTION_WEIGHTS: dict[Construction, int] = {
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
