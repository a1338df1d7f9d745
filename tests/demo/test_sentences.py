"""What a speaker says, construction by construction: well formed, unambiguous, and about each thing once."""

from __future__ import annotations

import random
import re
from collections import Counter

from tandem.demo import DemoCorpus, Pair
from tandem.demo.lexicon import LEXICON
from tandem.demo.sentences import Speaker

TOWNS = [english for english, _ in LEXICON.towns]
# Every English form, in lower case, of what is meant; only `he`, `she` and `they` may be different ones each time.
REFERENTS = (
    {form: noun.lemma for noun in LEXICON.nouns for form in noun.en.split()}
    | {name.lower(): name for name in (*LEXICON.names, *TOWNS)}
    | {
        form: pronoun.referent
        for pronoun in LEXICON.pronouns
        if pronoun.referent
        for form in pronoun.en.lower().split()
    }
)


def test_sentences_are_well_formed(babble: list[Pair]) -> None:
    for pair in babble:
        for sentence in (pair.source, pair.target):
            assert re.fullmatch(r"[A-Z][\w ,]*\w[.?]", sentence), pair
            assert "  " not in sentence
            # `shows her her key`, `zeigt ihr ihr Bild` and `kann sie sie besuchen` are right.
            assert not re.search(r"\b(?!her her\b|ihr ihr\b|sie sie\b)(\w+) \1\b", sentence), pair
        assert pair.source[-1] == pair.target[-1]
        assert not re.search(r"\b[Aa] [aeiou]|\b[Aa]n [^aeiou]", pair.source), pair
        negations = len(re.findall(r"\b(not|cannot|no)\b", pair.source.lower()))
        assert negations == len(re.findall(r"\b(nicht|kein\w*)\b", pair.target.lower())), pair
        assert pair.target.count(",") >= len(re.findall(r"\b(weil|dass|ob|wenn|obwohl|aber)\b", pair.target)), pair


def test_nobody_and_nothing_is_mentioned_twice_in_a_sentence(babble: list[Pair]) -> None:
    """Lest somebody visit himself, or a sister know whether the sister is good."""
    mentions = {
        pair.source: Counter(REFERENTS[word] for word in re.findall(r"\w+", pair.source.lower()) if word in REFERENTS)
        for pair in babble
    }
    assert {source: counts for source, counts in mentions.items() if max(counts.values(), default=0) > 1} == {}
    # Not for want of chances.
    assert sum(len(counts) >= 3 for counts in mentions.values()) > 2000


def test_a_clause_leaves_out_what_was_mentioned_before_it() -> None:
    """With half of all nouns, names and towns gone, a speaker that forgets to look is found out at once."""
    speaker = Speaker(random.Random(5))
    taken = {noun.lemma for noun in LEXICON.nouns[1::2]} | {*LEXICON.names[::2], *TOWNS[::2], "speaker"}
    mentioned = Counter(
        referent for _ in range(3000) for referent in speaker.clause(taken=taken, detailed=True).referents if referent
    )
    assert mentioned.keys() & taken == set()
    assert mentioned.keys() == set(REFERENTS.values()) - taken


def test_an_english_sentence_has_one_german_rendering(corpus: DemoCorpus, babble: list[Pair]) -> None:
    pairs = babble + corpus.train + corpus.dev + corpus.test
    assert len(set(pairs)) == len({pair.source for pair in pairs})
    # Not for want of repetition: the same things were said more than once.
    assert len(pairs) - len(set(pairs)) > 1000
