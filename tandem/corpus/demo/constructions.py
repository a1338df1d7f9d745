"""The constructions: sixteen kinds of sentence, each a function that lets a speaker fill it with words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from tandem.corpus.demo import lexicon
from tandem.corpus.demo.entries import Kind, PlaceSlot
from tandem.corpus.demo.grammar import (
    NICHT,
    NICHT_IN_KEIN,
    Clause,
    Phrase,
    Position,
    Text,
    declarative,
    interrogative,
    join,
    noun_phrase,
    subordinate,
)
from tandem.corpus.demo.lexicon import BE, NOT_ANY, THE, A
from tandem.corpus.demo.morphology import Case, Tense
from tandem.corpus.demo.speaker import ANY_TENSE, DEFINITES, STATED_SUBJECTS, Speaker, fitting


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
    determiner = NOT_ANY if kein else THE if negated and determiner is A else fitting(determiner, noun)
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
    clause = speaker.clause(accepts=lambda verb: verb.last_object is not None)
    slot = clause.verb.last_object
    assert slot is not None
    if Kind.PERSON in slot.kinds and (slot.kinds in Kind.BEING or speaker.chance(0.5)):
        question = Text("who", join(slot.german, {Case.ACCUSATIVE: "wen", Case.DATIVE: "wem"}[slot.case]))
    else:
        question = Text("what", "was")
    last = len(clause.verb.slots) - 1
    rest = (*clause.rest[:last], Phrase(slot.english, ""), *clause.rest[last + 1 :])
    clause = replace(clause, rest=rest)
    return Utterance(interrogative(clause, question), "?", (clause,))


def place_question(speaker: Speaker) -> Utterance:
    """German asks `wo` for a place and `wohin` for a goal."""
    clause = speaker.clause(accepts=lambda verb: verb.takes_place)
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
    tenses = (Tense.PAST,) if tense is Tense.PAST else ANY_TENSE
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
