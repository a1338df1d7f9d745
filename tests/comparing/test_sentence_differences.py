"""The most unequal sentences, and their words."""

from __future__ import annotations

from sacrebleu import sentence_chrf

from tandem.comparing.sentence_differences import Words, marked_words, most_different
from tandem.comparing.test_text import TestText

REFERENCES = ["Der Hund schläft.", "Die Katze trinkt Milch.", "Das Haus ist alt.", "Ein Kind lacht."]
TEXT = TestText(name="test", sources=["a", "b", "c", "d"], references=REFERENCES)
FIRST = ["Der Hund schläft.", "Die Katze isst.", "Das Haus ist alt.", "Nein."]
SECOND = ["Der Hund.", "Die Katze trinkt.", "Das Haus ist alt.", "Ein Kind lacht."]


def test_both_directions_the_largest_first() -> None:
    gained, lost = most_different(TEXT, FIRST, SECOND, most=5)
    assert [each.number for each in gained] == [4, 2]
    assert [each.number for each in lost] == [1]
    best = gained[0]
    assert (best.source, best.reference, best.first, best.second) == ("d", REFERENCES[3], "Nein.", "Ein Kind lacht.")
    assert best.second_chrf == sentence_chrf("Ein Kind lacht.", [REFERENCES[3]]).score == 100
    assert [each.number for each in most_different(TEXT, FIRST, SECOND, most=1)[0]] == [4]
    assert most_different(TEXT, FIRST, FIRST, most=5) == ((), ())


def test_words_that_differ_are_marked_on_both_sides() -> None:
    first, second = marked_words("Der alte Mann liest ein Buch .", "Der Mann liest das dicke Buch .")
    assert first == [
        Words("Der", False),
        Words("alte", True),
        Words("Mann liest", False),
        Words("ein", True),
        Words("Buch .", False),
    ]
    assert [each.text for each in second if each.differs] == ["das dicke"]
    assert marked_words("", "Hallo") == ([], [Words("Hallo", True)])
