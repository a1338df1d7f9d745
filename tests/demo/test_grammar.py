"""Inflection and word order in both languages, by hand-verified tables and sentences."""

from __future__ import annotations

from itertools import product

import pytest

from tandem.demo import DemoCorpus
from tandem.demo.grammar import Clause, Phrase, Position, noun_phrase, place_phrase, pronoun_phrase
from tandem.demo.lexicon import LEXICON, Case, Determiner, Tense, Verb

pytestmark = pytest.mark.slow

THE, A, TWO, NO, NOT_ANY, MY = (Determiner[name] for name in ("THE", "A", "TWO", "NO", "NOT_ANY", "MY"))

NOUNS = {noun.lemma: noun for noun in LEXICON.nouns}
ADJECTIVES = {adjective.en: adjective for adjective in LEXICON.adjectives}
EVERY_VERB = (LEXICON.be, *LEXICON.verbs, *(verb for verb, *_ in LEXICON.clause_verbs))
VERBS = {verb.de.infinitive: verb for verb in EVERY_VERB}


@pytest.mark.parametrize(
    ("determiner", "noun", "plural", "forms"),
    [
        (THE, "dog", False, "der kleine Hund, den kleinen Hund, dem kleinen Hund"),
        (THE, "cat", False, "die kleine Katze, die kleine Katze, der kleinen Katze"),
        (THE, "horse", False, "das kleine Pferd, das kleine Pferd, dem kleinen Pferd"),
        (THE, "dog", True, "die kleinen Hunde, die kleinen Hunde, den kleinen Hunden"),
        (A, "dog", False, "ein kleiner Hund, einen kleinen Hund, einem kleinen Hund"),
        (A, "cat", False, "eine kleine Katze, eine kleine Katze, einer kleinen Katze"),
        (A, "horse", False, "ein kleines Pferd, ein kleines Pferd, einem kleinen Pferd"),
        (A, "dog", True, "kleine Hunde, kleine Hunde, kleinen Hunden"),
        (NO, "dog", False, "kein kleiner Hund, keinen kleinen Hund, keinem kleinen Hund"),
        (NO, "cat", False, "keine kleine Katze, keine kleine Katze, keiner kleinen Katze"),
        (NO, "horse", False, "kein kleines Pferd, kein kleines Pferd, keinem kleinen Pferd"),
        (NO, "dog", True, "keine kleinen Hunde, keine kleinen Hunde, keinen kleinen Hunden"),
        (MY, "dog", False, "mein kleiner Hund, meinen kleinen Hund, meinem kleinen Hund"),
        (MY, "cat", False, "meine kleine Katze, meine kleine Katze, meiner kleinen Katze"),
        (MY, "horse", False, "mein kleines Pferd, mein kleines Pferd, meinem kleinen Pferd"),
        (MY, "dog", True, "meine kleinen Hunde, meine kleinen Hunde, meinen kleinen Hunden"),
        (TWO, "dog", True, "zwei kleine Hunde, zwei kleine Hunde, zwei kleinen Hunden"),
    ],
)
def test_articles_and_adjectives_by_gender_case_and_number(
    determiner: Determiner, noun: str, plural: bool, forms: str
) -> None:
    small = ADJECTIVES["small"]
    declined = [noun_phrase(NOUNS[noun], determiner, case, small, plural=plural).de for case in Case]
    assert declined == forms.split(", ")


@pytest.mark.parametrize(
    ("noun", "forms"),
    [
        ("coffee", "kalter Kaffee, kalten Kaffee, kaltem Kaffee"),
        ("milk", "kalte Milch, kalte Milch, kalter Milch"),
        ("water", "kaltes Wasser, kaltes Wasser, kaltem Wasser"),
    ],
)
def test_what_cannot_be_counted_has_no_indefinite_article_and_strong_adjectives(noun: str, forms: str) -> None:
    phrases = [noun_phrase(NOUNS[noun], A, case, ADJECTIVES["cold"]) for case in Case]
    assert [phrase.de for phrase in phrases] == forms.split(", ")
    assert {phrase.en for phrase in phrases} == {f"cold {noun}"}


@pytest.mark.parametrize(
    ("noun", "singular", "plural"),
    [
        ("boy", "der Junge, den Jungen, dem Jungen", "die Jungen, die Jungen, den Jungen"),
        ("girl", "das Mädchen, das Mädchen, dem Mädchen", "die Mädchen, die Mädchen, den Mädchen"),
        ("teacher", "der Lehrer, den Lehrer, dem Lehrer", "die Lehrer, die Lehrer, den Lehrern"),
        ("car", "das Auto, das Auto, dem Auto", "die Autos, die Autos, den Autos"),
        ("apple", "der Apfel, den Apfel, dem Apfel", "die Äpfel, die Äpfel, den Äpfeln"),
    ],
)
def test_nouns_with_endings_of_their_own(noun: str, singular: str, plural: str) -> None:
    assert [noun_phrase(NOUNS[noun], THE, case).de for case in Case] == singular.split(", ")
    assert [noun_phrase(NOUNS[noun], THE, case, plural=True).de for case in Case] == plural.split(", ")


@pytest.mark.parametrize(
    ("determiner", "adjective", "noun", "plural", "english"),
    [
        (A, None, "apple", False, "an apple"),
        (A, "good", "apple", False, "a good apple"),
        (A, "old", "dog", False, "an old dog"),
        (A, None, "child", True, "children"),
        (TWO, None, "woman", True, "two women"),
        (NOT_ANY, "old", "key", False, "an old key"),
        (NOT_ANY, "old", "key", True, "any old keys"),
        (NOT_ANY, None, "bread", False, "any bread"),
        (NO, None, "man", False, "no man"),
    ],
)
def test_english_articles(determiner: Determiner, adjective: str | None, noun: str, plural: bool, english: str) -> None:
    phrase = noun_phrase(
        NOUNS[noun], determiner, Case.ACCUSATIVE, ADJECTIVES[adjective] if adjective else None, plural=plural
    )
    assert phrase.en == english


@pytest.mark.parametrize(
    ("place", "determiner", "goal", "english", "german"),
    [
        ("kitchen", THE, False, "in the kitchen", "in der Küche"),
        ("kitchen", THE, True, "into the kitchen", "in die Küche"),
        ("garden", THE, False, "in the garden", "im Garten"),
        ("garden", MY, True, "into my garden", "in meinen Garten"),
        ("house", THE, True, "into the house", "ins Haus"),
        ("park", THE, True, "to the park", "in den Park"),
        ("station", THE, False, "at the station", "am Bahnhof"),
        ("station", A, False, "at a station", "an einem Bahnhof"),
        ("station", THE, True, "to the station", "zum Bahnhof"),
        ("school", THE, True, "to the school", "zur Schule"),
        ("market", THE, False, "at the market", "auf dem Markt"),
    ],
)
def test_places_take_dative_goals_accusative(
    place: str, determiner: Determiner, goal: bool, english: str, german: str
) -> None:
    phrase = place_phrase(NOUNS[place], determiner, None, Position.PLACE, goal=goal)
    assert (phrase.en, phrase.de) == (english, german)


def test_pronouns_in_three_cases() -> None:
    declined = [" ".join(pronoun_phrase(pronoun, case).de for case in Case) for pronoun in LEXICON.pronouns]
    assert declined == ["ich mich mir", "du dich dir", "er ihn ihm", "sie sie ihr", "wir uns uns", "sie sie ihnen"]


CONJUGATIONS = """
    sein bin bist ist sind gewesen
    haben habe hast hat haben gehabt
    wohnen wohne wohnst wohnt wohnen gewohnt
    schlafen schlafe schläfst schläft schlafen geschlafen
    arbeiten arbeite arbeitest arbeitet arbeiten gearbeitet
    aufstehen stehe stehst steht stehen aufgestanden
    ankommen komme kommst kommt kommen angekommen
    gehen gehe gehst geht gehen gegangen
    fahren fahre fährst fährt fahren gefahren
    sehen sehe siehst sieht sehen gesehen
    finden finde findest findet finden gefunden
    suchen suche suchst sucht suchen gesucht
    kaufen kaufe kaufst kauft kaufen gekauft
    lesen lese liest liest lesen gelesen
    essen esse isst isst essen gegessen
    fressen fresse frisst frisst fressen gefressen
    trinken trinke trinkst trinkt trinken getrunken
    mitbringen bringe bringst bringt bringen mitgebracht
    aufmachen mache machst macht machen aufgemacht
    zumachen mache machst macht machen zugemacht
    anmachen mache machst macht machen angemacht
    ausmachen mache machst macht machen ausgemacht
    besuchen besuche besuchst besucht besuchen besucht
    anrufen rufe rufst ruft rufen angerufen
    helfen helfe hilfst hilft helfen geholfen
    zuhören höre hörst hört hören zugehört
    warten warte wartest wartet warten gewartet
    spielen spiele spielst spielt spielen gespielt
    geben gebe gibst gibt geben gegeben
    zeigen zeige zeigst zeigt zeigen gezeigt
    wissen weiß weißt weiß wissen gewusst
    sagen sage sagst sagt sagen gesagt
    glauben glaube glaubst glaubt glauben geglaubt
    fragen frage fragst fragt fragen gefragt
"""


def test_every_german_verb_is_conjugated_as_in_the_grammar_book() -> None:
    conjugated = {infinitive: " ".join([*verb.de.present, verb.de.participle]) for infinitive, verb in VERBS.items()}
    assert conjugated == dict(line.strip().split(" ", 1) for line in CONJUGATIONS.strip().splitlines())
    moving = {infinitive for infinitive, verb in VERBS.items() if verb.auxiliary == "sein"}
    assert moving == {"aufstehen", "ankommen", "gehen", "fahren"}
    assert VERBS["sein"].de.preterite == ("war", "warst", "war", "waren")
    assert VERBS["haben"].de.preterite == ("hatte", "hattest", "hatte", "hatten")


def test_every_kind_that_a_word_asks_for_is_that_of_some_noun() -> None:
    """A misspelt one would leave the word without any noun, or with fewer."""
    asked = [adjective.kinds for adjective in (*LEXICON.adjectives, *LEXICON.states)]
    for verb in EVERY_VERB:
        asked += [verb.subjects, verb.recipient, verb.at, verb.to, verb.object.kinds if verb.object else frozenset()]
    assert frozenset().union(*asked) <= frozenset().union(*(noun.kinds for noun in LEXICON.nouns))


def test_modals() -> None:
    assert {modal.en: " ".join(modal.de) for modal in LEXICON.modals} == {
        "can": "kann kannst kann können",
        "should": "sollte solltest sollte sollten",
        "will": "werde wirst wird werden",
        "want to": "will willst will wollen",
        "have to": "muss musst muss müssen",
    }


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())
def test_the_english_verb_tells_the_german_tense(verb: Verb) -> None:
    """`I read` would not: it may be present or past."""
    subjects = [*(pronoun_phrase(pronoun, Case.NOMINATIVE) for pronoun in LEXICON.pronouns), Phrase("Anna", "Anna")]
    renderings: dict[str, set[str]] = {}
    for subject, tense in product(subjects, verb.tenses):
        for modal in LEXICON.modals if tense is Tense.MODAL else (None,):
            spoken = Clause(subject, verb, tense, modal=modal).declarative()
            renderings.setdefault(spoken.en, set()).add(spoken.de)
    assert len(renderings) >= 7
    assert {english: german for english, german in renderings.items() if len(german) > 1} == {}


# Pairs of the corpus, chosen for what they show.
SENTENCES = """
    A separable verb splits, and is whole again wherever it comes last.
    Anna calls me. | Anna ruft mich an.
    She has opened the windows. | Sie hat die Fenster aufgemacht.
    I cannot open any windows. | Ich kann keine Fenster aufmachen.
    You said that Anna opened windows. | Du hast gesagt, dass Anna Fenster aufgemacht hat.
    Although she will get up, Peter sleeps. | Obwohl sie aufstehen wird, schläft Peter.
    Questions: a finite verb first, or second after a question word; English asks with `do`.
    Does a friend open the window? | Macht ein Freund das Fenster auf?
    Has Anna opened windows? | Hat Anna Fenster aufgemacht?
    Does Peter have to work? | Muss Peter arbeiten?
    Why does Max not sleep? | Warum schläft Max nicht?
    Who had horses? | Wer hatte Pferde?
    Who do you see? | Wen siehst du?
    Who do you help? | Wem hilfst du?
    What does the dog eat? | Was frisst der Hund?
    Where does he drive? | Wohin fährt er?
    Where were you? | Wo warst du?
    When did the men go to the station? | Wann sind die Männer zum Bahnhof gegangen?
    Negation: nicht before prefix, complement and predicate; kein for an unknown object.
    She works, but Max does not call Anna. | Sie arbeitet, aber Max ruft Anna nicht an.
    They did not go to the station. | Sie sind nicht zum Bahnhof gegangen.
    He was not tired. | Er war nicht müde.
    Lena does not look for a child. | Lena sucht kein Kind.
    He does not help a child. | Er hilft keinem Kind.
    Today no child has to sleep. | Heute muss kein Kind schlafen.
    Verb second: after a time, or a whole clause, the subject follows the verb.
    Yesterday he did not buy an egg. | Gestern hat er kein Ei gekauft.
    If she is tired, you should visit the girl. | Wenn sie müde ist, solltest du das Mädchen besuchen.
    The middle field: pronoun, time, known object, adverb, place, new object, complement.
    Paul never calls the girl. | Paul ruft das Mädchen nie an.
    She listened to the teachers yesterday. | Sie hat gestern den Lehrern zugehört.
    Friends will help them tomorrow. | Freunde werden ihnen morgen helfen.
    You go into the house without me. | Du gehst ohne mich ins Haus.
    Who plays with two small boys in the city? | Wer spielt in der Stadt mit zwei kleinen Jungen?
    Does Max bring coffee for her? | Bringt Max Kaffee für sie mit?
    Both objects at once.
    I gave the children two apples. | Ich habe den Kindern zwei Äpfel gegeben.
    Peter shows the boy the letters. | Peter zeigt dem Jungen die Briefe.
    Towns, and what something is.
    She drives to Vienna. | Sie fährt nach Wien.
    These are dogs. | Das sind Hunde.
    This was cold coffee. | Das war kalter Kaffee.
"""


def test_hand_verified_sentences_are_in_the_corpus(corpus: DemoCorpus) -> None:
    known = {pair.source: pair.target for pair in corpus.train}
    expected = dict(line.strip().split(" | ") for line in SENTENCES.splitlines() if "|" in line)
    assert {source: known.get(source) for source in expected} == expected
