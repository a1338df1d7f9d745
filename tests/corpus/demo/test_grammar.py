"""Clauses in English and German, by hand-verified tables."""

from __future__ import annotations

from itertools import product

import pytest

from tandem.corpus.demo import lexicon
from tandem.corpus.demo.entries import Determiner, Place, Verb
from tandem.corpus.demo.grammar import (
    NICHT,
    NICHT_IN_KEIN,
    Clause,
    Phrase,
    Position,
    Text,
    declarative,
    interrogative,
    noun_phrase,
    place_phrase,
    prepositional,
    pronoun_phrase,
    subordinate,
)
from tandem.corpus.demo.lexicon import NO, NOT_ANY, THE, A
from tandem.corpus.demo.morphology import Case, Tense

NOM, ACC, DAT = Case.NOMINATIVE, Case.ACCUSATIVE, Case.DATIVE
PRESENT, PAST, PERFECT, MODAL = Tense.PRESENT, Tense.PAST, Tense.PERFECT, Tense.MODAL

NOUNS = {noun.lemma: noun for noun in lexicon.NOUNS}
PRONOUNS = {pronoun.english.split()[0]: pronoun for pronoun in lexicon.PRONOUNS}
STATES = {adjective.english: adjective for adjective in lexicon.STATES}
MODALS = {modal.english: modal for modal in lexicon.MODALS}
VERBS = {verb.de.infinitive: verb for verb in (*lexicon.VERBS, *(verb for verb, *_ in lexicon.CLAUSE_VERBS))}

ANNA = Phrase("Anna", "Anna", referent="Anna")
YESTERDAY = Phrase("yesterday", "gestern", Position.TIME)
EVERY_DAY = Phrase("every day", "jeden Tag", Position.TIME)
BECAUSE, THAT = Text("because", "weil"), Text("that", "dass")


def the(noun: str, case: Case = ACC, *, plural: bool = False) -> Phrase:
    return noun_phrase(NOUNS[noun], THE, case, plural=plural)


def a(noun: str, case: Case = ACC, determiner: Determiner = A) -> Phrase:
    return noun_phrase(NOUNS[noun], determiner, case)


def pronoun(name: str, case: Case = NOM) -> Phrase:
    return pronoun_phrase(PRONOUNS[name], case)


def at(place: str, *, goal: bool = False, position: Position = Position.PLACE) -> Phrase:
    noun = NOUNS[place]
    assert isinstance(noun, Place)
    return place_phrase(noun, THE, None, position, goal=goal)


def state(adjective: str) -> Phrase:
    return Phrase(adjective, STATES[adjective].german, Position.COMPLEMENT)


def clause(
    subject: Phrase,
    verb: str,
    tense: Tense,
    *rest: Phrase,
    adverb: Phrase | None = None,
    modal: str = "",
) -> Clause:
    return Clause(subject, VERBS[verb], tense, rest, adverb, MODALS[modal] if modal else None)


OPENS = clause(ANNA, "aufmachen", PRESENT, the("door"))
OPENED = clause(ANNA, "aufmachen", PAST, the("door"))
HAS_OPENED = clause(ANNA, "aufmachen", PERFECT, the("door"))
CAN_OPEN = clause(ANNA, "aufmachen", MODAL, the("door"), modal="can")
HAS_TO_OPEN = clause(ANNA, "aufmachen", MODAL, the("door"), modal="have to")
NOT_OPENING = clause(ANNA, "aufmachen", PRESENT, the("door"), adverb=NICHT)
NO_KEY = clause(ANNA, "haben", PRESENT, a("key", determiner=NOT_ANY), adverb=NICHT_IN_KEIN)
GOES = clause(ANNA, "gehen", PRESENT, at("park", goal=True, position=Position.COMPLEMENT))
WENT = clause(pronoun("they"), "gehen", PAST, at("station", goal=True, position=Position.COMPLEMENT))
TIRED = clause(pronoun("she"), "sein", PRESENT, state("tired"))
WAITS = clause(
    the("dog", NOM),
    "warten",
    PRESENT,
    prepositional("for", "auf", pronoun("I", ACC), Position.COMPLEMENT),
    at("station"),
)


@pytest.mark.parametrize(
    ("spoken", "english", "german"),
    [
        # A separable verb: finite, with its prefix at the end; whole again wherever it comes last.
        (declarative(OPENS), "Anna opens the door", "Anna macht die Tür auf"),
        (declarative(OPENED), "Anna opened the door", "Anna hat die Tür aufgemacht"),
        (declarative(HAS_OPENED), "Anna has opened the door", "Anna hat die Tür aufgemacht"),
        (declarative(CAN_OPEN), "Anna can open the door", "Anna kann die Tür aufmachen"),
        (subordinate(BECAUSE, OPENS), "because Anna opens the door", "weil Anna die Tür aufmacht"),
        (subordinate(THAT, OPENED), "that Anna opened the door", "dass Anna die Tür aufgemacht hat"),
        (subordinate(THAT, CAN_OPEN), "that Anna can open the door", "dass Anna die Tür aufmachen kann"),
        (interrogative(OPENS), "does Anna open the door", "macht Anna die Tür auf"),
        (interrogative(OPENED), "did Anna open the door", "hat Anna die Tür aufgemacht"),
        (interrogative(HAS_OPENED), "has Anna opened the door", "hat Anna die Tür aufgemacht"),
        (interrogative(CAN_OPEN), "can Anna open the door", "kann Anna die Tür aufmachen"),
        (interrogative(HAS_TO_OPEN), "does Anna have to open the door", "muss Anna die Tür aufmachen"),
        (declarative(HAS_TO_OPEN), "Anna has to open the door", "Anna muss die Tür aufmachen"),
        # Question words.
        (interrogative(OPENS, Text("why", "warum")), "why does Anna open the door", "warum macht Anna die Tür auf"),
        # Negation: nicht after a known object and before prefix, complement and predicate; kein for an unknown one.
        (declarative(NOT_OPENING), "Anna does not open the door", "Anna macht die Tür nicht auf"),
        (subordinate(BECAUSE, NOT_OPENING), "because Anna does not open the door", "weil Anna die Tür nicht aufmacht"),
        (
            interrogative(NOT_OPENING, Text("why", "warum")),
            "why does Anna not open the door",
            "warum macht Anna die Tür nicht auf",
        ),
        (
            declarative(clause(ANNA, "gehen", PAST, at("park", goal=True, position=Position.COMPLEMENT), adverb=NICHT)),
            "Anna did not go to the park",
            "Anna ist nicht in den Park gegangen",
        ),
        (
            declarative(clause(ANNA, "sein", PAST, state("happy"), adverb=NICHT)),
            "Anna was not happy",
            "Anna war nicht glücklich",
        ),
        (declarative(NO_KEY), "Anna does not have a key", "Anna hat keinen Schlüssel"),
        (
            declarative(clause(ANNA, "schlafen", MODAL, adverb=NICHT, modal="can")),
            "Anna cannot sleep",
            "Anna kann nicht schlafen",
        ),
        (
            declarative(clause(a("child", NOM, NO), "schlafen", PRESENT)),
            "no child sleeps",
            "kein Kind schläft",
        ),
        # Verb second: after a time, or a whole clause, the subject follows the verb.
        (
            declarative(OPENED, front=YESTERDAY),
            "yesterday Anna opened the door",
            "gestern hat Anna die Tür aufgemacht",
        ),
        (
            declarative(GOES, front=Text("if she is tired,", "wenn sie müde ist,")),
            "if she is tired, Anna goes to the park",
            "wenn sie müde ist, geht Anna in den Park",
        ),
        (subordinate(BECAUSE, TIRED), "because she is tired", "weil sie müde ist"),
        # Perfect with sein.
        (declarative(WENT), "they went to the station", "sie sind zum Bahnhof gegangen"),
        (subordinate(THAT, WENT), "that they went to the station", "dass sie zum Bahnhof gegangen sind"),
        # The middle field: pronoun, time, known object, place, new object, complement.
        (declarative(WAITS), "the dog waits for me at the station", "der Hund wartet am Bahnhof auf mich"),
        (
            declarative(clause(ANNA, "lesen", PRESENT, the("book"), at("garden"))),
            "Anna reads the book in the garden",
            "Anna liest das Buch im Garten",
        ),
        (
            declarative(clause(ANNA, "lesen", PRESENT, a("book"), at("garden"))),
            "Anna reads a book in the garden",
            "Anna liest im Garten ein Buch",
        ),
        (
            declarative(clause(ANNA, "besuchen", PRESENT, pronoun("he", ACC), EVERY_DAY)),
            "Anna visits him every day",
            "Anna besucht ihn jeden Tag",
        ),
        (
            declarative(clause(ANNA, "besuchen", PRESENT, the("child", plural=True), EVERY_DAY)),
            "Anna visits the children every day",
            "Anna besucht jeden Tag die Kinder",
        ),
        (
            declarative(clause(ANNA, "anrufen", PRESENT, the("boy"), adverb=Phrase("never", "nie", Position.ADVERB))),
            "Anna never calls the boy",
            "Anna ruft den Jungen nie an",
        ),
        # Objects in the dative, and both objects at once.
        (
            declarative(clause(pronoun("I"), "helfen", PRESENT, the("woman", DAT))),
            "I help the woman",
            "ich helfe der Frau",
        ),
        (
            declarative(clause(pronoun("you"), "geben", PRESENT, the("man", DAT), a("egg"))),
            "you give the man an egg",
            "du gibst dem Mann ein Ei",
        ),
        (
            declarative(clause(pronoun("we"), "zeigen", MODAL, pronoun("they", DAT), the("picture"), modal="will")),
            "we will show them the picture",
            "wir werden ihnen das Bild zeigen",
        ),
    ],
)
def test_clauses_in_both_languages(spoken: Text, english: str, german: str) -> None:
    assert spoken == Text(english, german)


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())
def test_the_english_verb_tells_the_german_tense(verb: Verb) -> None:
    """`I read` would not: it may be present or past."""
    renderings: dict[str, set[str]] = {}
    for subject, tense in product((*PRONOUNS, "Anna"), verb.tenses):
        phrase = ANNA if subject == "Anna" else pronoun(subject)
        for modal in lexicon.MODALS if tense is MODAL else (None,):
            spoken = declarative(Clause(phrase, verb, tense, modal=modal))
            renderings.setdefault(spoken.en, set()).add(spoken.de)
    assert len(renderings) >= 7
    assert {english: german for english, german in renderings.items() if len(german) > 1} == {}
