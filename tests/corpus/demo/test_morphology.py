"""Declension, as phrases show it, and conjugation: by hand-verified tables."""

from __future__ import annotations

import pytest

from tandem.corpus.demo import lexicon
from tandem.corpus.demo.entries import Determiner, Place
from tandem.corpus.demo.grammar import Position, noun_phrase, place_phrase, pronoun_phrase
from tandem.corpus.demo.lexicon import MY, NO, NOT_ANY, THE, TWO, A
from tandem.corpus.demo.morphology import Case

NOUNS = {noun.lemma: noun for noun in lexicon.NOUNS}
ADJECTIVES = {adjective.english: adjective for adjective in lexicon.ADJECTIVES}
PRONOUNS = {pronoun.english.split()[0]: pronoun for pronoun in lexicon.PRONOUNS}
MODALS = {modal.english: modal for modal in lexicon.MODALS}
VERBS = {verb.de.infinitive: verb for verb in (*lexicon.VERBS, *(verb for verb, *_ in lexicon.CLAUSE_VERBS))}

# --- Declension -----------------------------------------------------------------------------------------------


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
    noun = NOUNS[place]
    assert isinstance(noun, Place)
    phrase = place_phrase(noun, determiner, None, Position.PLACE, goal=goal)
    assert (phrase.en, phrase.de) == (english, german)


def test_pronouns_in_three_cases() -> None:
    declined = {name: [pronoun_phrase(pronoun, case).de for case in Case] for name, pronoun in PRONOUNS.items()}
    assert declined == {
        "I": ["ich", "mich", "mir"],
        "you": ["du", "dich", "dir"],
        "he": ["er", "ihn", "ihm"],
        "she": ["sie", "sie", "ihr"],
        "we": ["wir", "uns", "uns"],
        "they": ["sie", "sie", "ihnen"],
    }


# --- Conjugation ----------------------------------------------------------------------------------------------

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
    assert {infinitive for infinitive, verb in VERBS.items() if verb.auxiliary == "sein"} == {
        *("aufstehen", "ankommen", "gehen", "fahren")
    }


def test_modals_and_preterites() -> None:
    assert {name: " ".join(modal.german) for name, modal in MODALS.items()} == {
        "can": "kann kannst kann können",
        "should": "sollte solltest sollte sollten",
        "will": "werde wirst wird werden",
        "want to": "will willst will wollen",
        "have to": "muss musst muss müssen",
    }
    assert VERBS["sein"].de.preterite == ("war", "warst", "war", "waren")
    assert VERBS["haben"].de.preterite == ("hatte", "hattest", "hatte", "hatten")
