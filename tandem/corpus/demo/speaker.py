"""The speaker: chooses at random what a clause is about, with words that fit each other."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TypeVar

from tandem.corpus.demo import lexicon
from tandem.corpus.demo.entries import (
    Adjective,
    Adjunct,
    Determiner,
    Kind,
    Noun,
    Place,
    PlaceSlot,
    Slot,
    Verb,
)
from tandem.corpus.demo.grammar import (
    NICHT,
    NICHT_IN_KEIN,
    Clause,
    Phrase,
    Position,
    noun_phrase,
    place_phrase,
    prepositional,
    pronoun_phrase,
)
from tandem.corpus.demo.lexicon import BE, NO, NOT_ANY, THE, TWO, VERBS, A
from tandem.corpus.demo.morphology import Case, Tense

T = TypeVar("T")

# Entries that stand twice are twice as likely.
DEFINITES = (THE, THE, THE, *lexicon.POSSESSIVES)
SUBJECTS = (*DEFINITES, *DEFINITES, A, A, TWO)
STATED_SUBJECTS = (*SUBJECTS, NO)
OBJECTS = (*DEFINITES, A, A, A, TWO)
PLACES = (*DEFINITES, A, A)
# Mostly present and modal, the latter for the sake of the infinitives.
ANY_TENSE = (Tense.PRESENT, Tense.PRESENT, Tense.PRESENT, Tense.PAST, Tense.PERFECT, Tense.MODAL, Tense.MODAL)


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
        subjects, known = DEFINITES if negated else subjects, set(taken)
        if verb is BE:
            subject, adjective = self._description(known, passing=timed)
            return Clause(subject, verb, tense, (adjective,), NICHT if negated else None)
        # `dass du aufmachst` is fine but would make each such form too rare to learn.
        absent = {"speaker", "hearer"} if embedded and verb.de.prefix else set()
        subject = self.entity(verb.subjects, Case.NOMINATIVE, subjects, known | absent)
        kein = negated and verb.takes_kein and self.chance(0.6)
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
        determiner = fitting(determiner, noun)
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
            noun = self.pick([noun for noun in lexicon.NOUNS if noun.lemma not in taken])
            adjective, determiner = self.pick(_adjectives(noun)), fitting(self.pick(DEFINITES), noun)
            plural = noun.has_plural and self.chance(0.3)
            subject = noun_phrase(noun, determiner, Case.NOMINATIVE, plural=plural)
        predicate = Phrase(adjective.english, adjective.german, Position.COMPLEMENT)
        return subject.combined_with(adjective.english), predicate

    def complement(self, slot: Slot | PlaceSlot, determiners: Sequence[Determiner], taken: set[str]) -> Phrase:
        if isinstance(slot, PlaceSlot):
            places = DEFINITES if determiners is DEFINITES else PLACES
            return self.place(slot.kinds, places, Position.COMPLEMENT, taken, goal=slot.goal)
        phrase = self.entity(slot.kinds, slot.case, determiners, taken)
        position = Position.COMPLEMENT if slot.german else phrase.position
        return prepositional(slot.english, slot.german, phrase, position)

    def place(
        self, kinds: Kind, determiners: Sequence[Determiner], position: Position, taken: set[str], *, goal: bool = False
    ) -> Phrase:
        if not kinds & Kind.PLACE and self.chance(0.4):
            english, german = self.pick([town for town in lexicon.TOWNS if town[0] not in taken])
            prepositions = ("to", "nach") if goal else ("in", "in")
            return prepositional(*prepositions, Phrase(english, german, referent=english), position)
        place = self.pick([place for place in _places(kinds) if place.lemma not in taken])
        determiner = fitting(self.pick(determiners), place)
        return place_phrase(place, determiner, self.adjective(place), position, goal=goal)

    def adjunct(self, kind: Adjunct, taken: set[str]) -> Phrase:
        if kind is Adjunct.PLACE:
            return self.place(Kind.PLACE, PLACES, Position.PLACE, taken)
        if kind is Adjunct.BENEFICIARY:
            beneficiary = self.entity(Kind.PERSON, Case.ACCUSATIVE, DEFINITES, taken)
            return prepositional("for", "für", beneficiary, Position.BENEFICIARY)
        english, german, case = self.pick(lexicon.COMPANIES)
        companion = self.entity(Kind.BEING, case, DEFINITES, taken)
        return prepositional(english, german, companion, Position.COMPANION)

    def time(self, tense: Tense) -> Phrase:
        return Phrase(*self.pick(lexicon.TIMES[tense]), Position.TIME)


def fitting(determiner: Determiner, noun: Noun) -> Determiner:
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
