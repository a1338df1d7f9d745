"""The words of the demo corpus, each entry with its English and its German side."""

from __future__ import annotations

from tandem.corpus.demo.entries import (
    Adjective,
    Adjunct,
    Determiner,
    Kind,
    Modal,
    Noun,
    Place,
    PlaceSlot,
    Pronoun,
    Slot,
    Verb,
)
from tandem.corpus.demo.morphology import (
    Case,
    Declension,
    Person,
    Tense,
    conjugate_english,
    conjugate_german,
    ein_word,
    paradigm,
)

# --- Nouns and what goes with them ----------------------------------------------------------------------------

THE = Determiner(
    "the", paradigm("der die das die", "den die das die", "dem der dem den"), Declension.WEAK, definite=True
)
A = Determiner("a", ein_word("ein"), Declension.MIXED, definite=False)
BARE = Determiner("", paradigm("- - - -", "- - - -", "- - - -"), Declension.STRONG, definite=False)
TWO = Determiner("two", paradigm("- - - zwei", "- - - zwei", "- - - zwei"), Declension.STRONG, definite=False)
NO = Determiner("no", ein_word("kein"), Declension.MIXED, definite=False)
# German says kein where English says `not ... a` or `not ... any`: the clause then has no nicht.
NOT_ANY = Determiner("any", ein_word("kein"), Declension.MIXED, definite=False)
MY = Determiner("my", ein_word("mein"), Declension.MIXED, definite=True)
HIS = Determiner("his", ein_word("sein"), Declension.MIXED, definite=True)
HER = Determiner("her", ein_word("ihr"), Declension.MIXED, definite=True)
POSSESSIVES = (MY, HIS, HER)

ADJECTIVES = (
    Adjective("small", "klein", Kind.CHILD | Kind.ANIMAL | Kind.THING | Kind.PLACE),
    Adjective("big", "groß", Kind.ANIMAL | Kind.THING | Kind.PLACE),
    Adjective("old", "alt", Kind.ADULT | Kind.ANIMAL | Kind.THING | Kind.PLACE),
    Adjective("new", "neu", Kind.THING | Kind.PLACE),
    Adjective("young", "jung", Kind.ADULT | Kind.ANIMAL),
    Adjective("beautiful", "schön", Kind.ANIMAL | Kind.THING | Kind.PLACE),
    Adjective("red", "rot", Kind.BELONGING | Kind.OPENABLE | Kind.DEVICE | Kind.VEHICLE),
    Adjective("fresh", "frisch", Kind.FOOD),
    Adjective("cold", "kalt", Kind.LIQUID),
    Adjective("good", "gut", Kind.PERSON | Kind.SUPPLY | Kind.READABLE),
)
# Of people and only after `to be`; being passing states, they alone go with a time: `she is often tired`.
STATES = (
    Adjective("tired", "müde", Kind.PERSON),
    Adjective("sick", "krank", Kind.PERSON),
    Adjective("happy", "glücklich", Kind.PERSON),
)

NOUNS = (
    Noun("man men", "der Mann Männer", Kind.ADULT),
    Noun("woman women", "die Frau Frauen", Kind.ADULT),
    Noun("teacher teachers", "der Lehrer Lehrer", Kind.ADULT | Kind.FAMILIAR),
    Noun("sister sisters", "die Schwester Schwestern", Kind.ADULT | Kind.FAMILIAR),
    Noun("friend friends", "der Freund Freunde", Kind.ADULT | Kind.FAMILIAR),
    Noun("child children", "das Kind Kinder", Kind.CHILD | Kind.FAMILIAR),
    Noun("boy boys", "der Junge Jungen", Kind.CHILD, weak=True),
    Noun("girl girls", "das Mädchen Mädchen", Kind.CHILD),
    Noun("dog dogs", "der Hund Hunde", Kind.ANIMAL),
    Noun("cat cats", "die Katze Katzen", Kind.ANIMAL),
    Noun("horse horses", "das Pferd Pferde", Kind.ANIMAL),
    Noun("apple apples", "der Apfel Äpfel", Kind.FOOD | Kind.FODDER),
    Noun("banana bananas", "die Banane Bananen", Kind.FOOD | Kind.FODDER),
    Noun("egg eggs", "das Ei Eier", Kind.FOOD),
    Noun("cheese", "der Käse", Kind.FOOD | Kind.FODDER),
    Noun("soup", "die Suppe", Kind.FOOD | Kind.LIQUID),
    Noun("bread", "das Brot", Kind.FOOD | Kind.FODDER),
    Noun("coffee", "der Kaffee", Kind.DRINK | Kind.LIQUID),
    Noun("milk", "die Milch", Kind.DRINK | Kind.LIQUID),
    Noun("water", "das Wasser", Kind.DRINK | Kind.LIQUID),
    Noun("letter letters", "der Brief Briefe", Kind.READABLE),
    Noun("newspaper newspapers", "die Zeitung Zeitungen", Kind.READABLE),
    Noun("book books", "das Buch Bücher", Kind.READABLE),
    Noun("key keys", "der Schlüssel Schlüssel", Kind.BELONGING),
    Noun("bag bags", "die Tasche Taschen", Kind.BELONGING | Kind.OPENABLE),
    Noun("picture pictures", "das Bild Bilder", Kind.BELONGING),
    Noun("door doors", "die Tür Türen", Kind.OPENABLE),
    Noun("window windows", "das Fenster Fenster", Kind.OPENABLE),
    Noun("computer computers", "der Computer Computer", Kind.DEVICE),
    Noun("lamp lamps", "die Lampe Lampen", Kind.DEVICE),
    Noun("radio radios", "das Radio Radios", Kind.DEVICE),
    Noun("car cars", "das Auto Autos", Kind.VEHICLE),
    Place("garden", "der Garten", Kind.PLACE | Kind.FAMILIAR),
    Place("kitchen", "die Küche", Kind.PLACE | Kind.FAMILIAR),
    Place("house", "das Haus", Kind.PLACE | Kind.FAMILIAR | Kind.DWELLING),
    Place("park", "der Park", Kind.PLACE, to=("to", "in")),
    Place("city", "die Stadt", Kind.PLACE | Kind.DWELLING | Kind.DESTINATION, to=("to", "in")),
    Place("school", "die Schule", Kind.PLACE | Kind.DESTINATION, at=("at", "in"), to=("to", "zu")),
    Place("station", "der Bahnhof", Kind.PLACE | Kind.DESTINATION, at=("at", "an"), to=("to", "zu")),
    Place("market", "der Markt", Kind.PLACE | Kind.DESTINATION, at=("at", "auf"), to=("to", "zu")),
)
NAMES = ("Anna", "Peter", "Maria", "Paul", "Lena", "Max")
TOWNS = (("Berlin", "Berlin"), ("Hamburg", "Hamburg"), ("Vienna", "Wien"))

CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
}

_I = Pronoun("I me", "ich mich mir", Person.FIRST, "speaker")
_YOU = Pronoun("you you", "du dich dir", Person.SECOND, "hearer")  # never plural nor polite: one rendering
# `I` and `you` stand twice because no other word shares their verb forms.
PRONOUNS = (
    _I,
    _I,
    _YOU,
    _YOU,
    Pronoun("he him", "er ihn ihm", Person.THIRD),
    Pronoun("she her", "sie sie ihr", Person.THIRD),
    Pronoun("we us", "wir uns uns", Person.PLURAL, "speaker"),
    Pronoun("they them", "sie sie ihnen", Person.PLURAL),
)

# --- Verbs ----------------------------------------------------------------------------------------------------

DO = conjugate_english("do", "does")
HAVE = conjugate_english("have", "has")
AUXILIARIES = {"haben": conjugate_german("haben", "hat"), "sein": ("bin", "bist", "ist", "sind")}

MODALS = (
    Modal("can", conjugate_german("können", "kann")),
    Modal("should", conjugate_german("sollten", "sollte")),
    Modal("will", ("werde", "wirst", "wird", "werden")),
    Modal("want to", conjugate_german("wollen", "will"), third="wants to"),
    # Not `must`: `must not` forbids, while `muss nicht` and `does not have to` both free from a duty.
    Modal("have to", conjugate_german("müssen", "muss"), third="has to"),
)

# `has lived` would be a German present (`wohnt schon lange`), so lasting states leave the English perfect out.
_LASTING = (Tense.PRESENT, Tense.PAST, Tense.MODAL)
_SIMPLE = (Tense.PRESENT, Tense.PAST)
# `I read the book` may be present or past and would have two renderings.
_NO_PAST = (Tense.PRESENT, Tense.PERFECT, Tense.MODAL)
_AT, _WITH, _FOR = (Adjunct.PLACE,), (Adjunct.COMPANION,), (Adjunct.BENEFICIARY,)

_BE = ("be am/are/is/are was/were/was/were been", "sein bin/bist/ist/sind gewesen war")
_AT_PLACE = PlaceSlot(Kind.PLACE, goal=False)
_AT_DWELLING = PlaceSlot(Kind.DWELLING, goal=False)
_AT_DESTINATION = PlaceSlot(Kind.DESTINATION, goal=False)
_TO_PLACE = PlaceSlot(Kind.PLACE, goal=True)
_TO_DESTINATION = PlaceSlot(Kind.DESTINATION, goal=True)
_SOUGHT = Slot(Kind.BEING | Kind.ITEM, english="for")
_AWAITED = Slot(Kind.PERSON, english="for", german="auf")
_HELPED = Slot(Kind.PERSON, Case.DATIVE)
_HEARD = Slot(Kind.PERSON, Case.DATIVE, english="to")
_PLAYMATE = Slot(Kind.BEING, Case.DATIVE, english="with", german="mit")
_RECIPIENT = Slot(Kind.PERSON, Case.DATIVE)

BE = Verb(*_BE, tenses=_SIMPLE)
_BE_SOMEWHERE = Verb(*_BE, (_AT_PLACE,), subjects=Kind.BEING, tenses=_SIMPLE, lasting=True)
_LIE_SOMEWHERE = Verb(*_BE, (_AT_PLACE,), subjects=Kind.GOODS, tenses=_SIMPLE, lasting=True)
_POSSESS = Verb("have has had", "haben hat gehabt hatte", (Slot(Kind.GOODS),), tenses=_SIMPLE, lasting=True)
VERBS = (
    # The commonest stand twice and more, as does the one that makes a subject of things.
    *(BE, BE, BE, _BE_SOMEWHERE, _LIE_SOMEWHERE, _LIE_SOMEWHERE, _POSSESS, _POSSESS),
    Verb("live lives lived", "wohnen wohnt gewohnt", (_AT_DWELLING,), _WITH, tenses=_LASTING, lasting=True),
    Verb("sleep sleeps slept", "schlafen schläft geschlafen", (), _AT, subjects=Kind.BEING),
    Verb("work works worked", "arbeiten arbeitet gearbeitet", (), _AT + _WITH),
    Verb("get gets got + up", "auf|stehen steht gestanden", auxiliary="sein"),
    Verb("arrive arrives arrived", "an|kommen kommt gekommen", (_AT_DESTINATION,), _WITH, auxiliary="sein"),
    Verb("go goes went gone", "gehen geht gegangen", (_TO_PLACE,), _WITH, auxiliary="sein"),
    Verb("drive drives drove driven", "fahren fährt gefahren", (_TO_DESTINATION,), _WITH, auxiliary="sein"),
    Verb("see sees saw seen", "sehen sieht gesehen", (Slot(Kind.BEING | Kind.ITEM),), _AT, subjects=Kind.BEING),
    Verb("find finds found", "finden findet gefunden", (Slot(Kind.ANIMAL | Kind.ITEM),), _AT, subjects=Kind.BEING),
    Verb("look looks looked", "suchen sucht gesucht", (_SOUGHT,), _AT, subjects=Kind.BEING),
    Verb("buy buys bought", "kaufen kauft gekauft", (Slot(Kind.GOODS | Kind.SUPPLY),), _FOR),
    Verb("read reads read", "lesen liest gelesen", (Slot(Kind.READABLE),), _AT, tenses=_NO_PAST),
    # German animals feed, they do not dine: the subject decides between essen and fressen.
    Verb("eat eats ate eaten", "essen isst gegessen", (Slot(Kind.FOOD),), _AT),
    Verb("eat eats ate eaten", "fressen frisst gefressen", (Slot(Kind.FODDER),), _AT, subjects=Kind.ANIMAL),
    Verb("drink drinks drank drunk", "trinken trinkt getrunken", (Slot(Kind.DRINK),), _AT),
    Verb("bring brings brought", "mit|bringen bringt gebracht", (Slot(Kind.SUPPLY | Kind.READABLE),), _FOR),
    Verb("open opens opened", "auf|machen macht gemacht", (Slot(Kind.OPENABLE),)),
    Verb("close closes closed", "zu|machen macht gemacht", (Slot(Kind.OPENABLE),)),
    Verb("turn turns turned + on", "an|machen macht gemacht", (Slot(Kind.DEVICE),)),
    Verb("turn turns turned + off", "aus|machen macht gemacht", (Slot(Kind.DEVICE),)),
    Verb("visit visits visited", "besuchen besucht besucht", (Slot(Kind.PERSON),)),
    Verb("call calls called", "an|rufen ruft gerufen", (Slot(Kind.PERSON),)),
    Verb("help helps helped", "helfen hilft geholfen", (_HELPED,), _AT),
    Verb("listen listens listened", "zu|hören hört gehört", (_HEARD,)),
    Verb("wait waits waited", "warten wartet gewartet", (_AWAITED,), _AT, subjects=Kind.BEING),
    Verb("play plays played", "spielen spielt gespielt", (_PLAYMATE,), _AT, subjects=Kind.BEING),
    Verb("give gives gave given", "geben gibt gegeben", (_RECIPIENT, Slot(Kind.SUPPLY | Kind.ITEM))),
    Verb("show shows showed shown", "zeigen zeigt gezeigt", (_RECIPIENT, Slot(Kind.ANIMAL | Kind.ITEM))),
)

_KNOW = Verb("know knows knew known", "wissen weiß gewusst", tenses=(Tense.PRESENT,))
CLAUSE_VERBS = (
    # Verbs of saying and thinking, with the conjunction of the clause that follows.
    (_KNOW, "that", "dass"),
    (_KNOW, "whether", "ob"),
    (Verb("say says said", "sagen sagt gesagt", tenses=_SIMPLE), "that", "dass"),
    (Verb("think thinks thought", "glauben glaubt geglaubt", tenses=_SIMPLE), "that", "dass"),
    (Verb("ask asks asked", "fragen fragt gefragt", tenses=_SIMPLE), "whether", "ob"),
)

# --- Words that never change ----------------------------------------------------------------------------------

TIMES = {
    Tense.PRESENT: (("every day", "jeden Tag"), ("on Sundays", "sonntags")),
    Tense.PAST: (("yesterday", "gestern"), ("last week", "letzte Woche"), ("today", "heute")),
    Tense.MODAL: (("today", "heute"), ("tomorrow", "morgen")),
}
HABITS = {
    Tense.PRESENT: (("often", "oft"), ("always", "immer"), ("never", "nie")),
    Tense.PERFECT: (("already", "schon"), ("never", "nie")),
}
COMPANIES = (("with", "mit", Case.DATIVE), ("without", "ohne", Case.ACCUSATIVE))
# Conjunctions with the tenses that sound natural together, main clause first.
_REASON_TENSES = (
    (Tense.PRESENT, Tense.PRESENT),
    (Tense.PRESENT, Tense.PERFECT),
    (Tense.PAST, Tense.PAST),
    (Tense.MODAL, Tense.PRESENT),
    (Tense.PRESENT, Tense.MODAL),
)
CONJUNCTIONS = (
    ("because", "weil", _REASON_TENSES),
    ("although", "obwohl", _REASON_TENSES),
    ("if", "wenn", ((Tense.PRESENT, Tense.PRESENT), (Tense.MODAL, Tense.PRESENT))),
)
