"""The demo corpus: its promises, by looking at what was generated."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

import tandem
from tandem.demo import DemoCorpus, Pair, generate, write_demo_text
from tandem.demo.lexicon import LEXICON
from tandem.demo.sentences import CONSTRUCTION_WEIGHTS
from tandem.demo.toy_corpus import reserved_for, split_of
from tandem.errors import TandemError

pytestmark = pytest.mark.slow

ADJECTIVES = [adjective.en for adjective in (*LEXICON.adjectives, *LEXICON.states)]
NOUNS = {form: noun.lemma for noun in LEXICON.nouns for form in noun.en.split()}
# Auxiliaries are left out, since in `has the dog slept` no dog is owned.
VERBS = {
    form: verb.en.base
    for verb in LEXICON.verbs
    if (verb.object or verb.at | verb.to) and verb.en.base not in ("be", "have")
    for form in (verb.en.base, verb.en.participle, *verb.en.present, *verb.en.past)
}


def words(sentence: str) -> list[str]:
    return re.findall(r"\w+", sentence)


def test_the_text_stays_the_same_to_the_byte(tmp_path: Path) -> None:
    """What tests, benches and the documentation say of the demo was measured on this very text."""
    write_demo_text(tmp_path, pairs=3000, seed=7)
    digest = hashlib.sha256()
    for path in sorted(tmp_path.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    assert digest.hexdigest() == "23df35e61376c02ae6d2a982937651773359f133890d3b61df4503df0191561e"


def test_the_sizes_are_as_asked(corpus: DemoCorpus) -> None:
    assert (len(corpus.train), len(corpus.dev), len(corpus.test)) == (20_000, 300, 300)


def test_no_sentence_occurs_twice_in_or_across_the_splits(corpus: DemoCorpus) -> None:
    sources = [pair.source for pair in corpus.train + corpus.dev + corpus.test]
    assert len(set(sources)) == len(sources)
    trained = {pair.target for pair in corpus.train}
    assert not [pair for pair in corpus.dev + corpus.test if pair.target in trained]


@pytest.mark.slow
def test_the_seed_alone_decides(corpus: DemoCorpus, corpus_of_seed_2: DemoCorpus) -> None:
    """Also in another process, where Python orders sets and hashes strings differently."""
    script = (
        "from tandem.demo import generate\n"
        "corpus = generate(200)\n"
        "for pair in corpus.train + corpus.dev + corpus.test: print(ascii((pair.source, pair.target)))"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=Path(tandem.__file__).parents[1],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for hash_seed in ("1", "2")
    ]
    # A smaller corpus is the beginning of a larger one, with the same dev and test sets.
    expected = [ascii((pair.source, pair.target)) for pair in corpus.train[:200] + corpus.dev + corpus.test]
    assert outputs == [expected, expected]
    assert corpus_of_seed_2.train[:200] != corpus.train[:200]


def test_held_out_sentences_have_combinations_that_training_lacks(corpus: DemoCorpus) -> None:
    trained = {combination for pair in corpus.train for combination in pair.combinations}
    validated = {combination for pair in corpus.dev for combination in pair.combinations}
    tested = {combination for pair in corpus.test for combination in pair.combinations}
    assert all(pair.combinations - trained for pair in corpus.dev + corpus.test)
    assert all(pair.combinations - trained - validated for pair in corpus.test)
    # The unseen ones are varied, and their parts are not themselves unseen.
    unseen = tested - trained
    assert len(unseen) > 30
    assert {word for word, _ in unseen} <= {word for word, _ in trained}
    assert {noun for _, noun in unseen} <= {noun for _, noun in trained}


def alternatives(forms: Iterable[str]) -> str:
    return "|".join(sorted(forms, key=len, reverse=True))


LINK = r"(?:(?:for|to|with|in|into|at) )?(?:(?:the|an?|any|my|his|her|two) )?"
DESCRIBED = re.compile(rf"\b({alternatives(ADJECTIVES)}) ({alternatives(NOUNS)})\b")
GOVERNED = re.compile(rf"\b({alternatives(VERBS)}) {LINK}(?:(?:{alternatives(ADJECTIVES)}) )?({alternatives(NOUNS)})\b")


def spoken_combinations(source: str) -> set[tuple[str, str]]:
    """Combinations found in the bare text, independent of what the generator says; second objects are not found."""
    described = {(word, NOUNS[noun]) for word, noun in DESCRIBED.findall(source)}
    return described | {(VERBS[word], NOUNS[noun]) for word, noun in GOVERNED.findall(source)}


def test_the_text_itself_shows_combinations_that_training_lacks(corpus: DemoCorpus) -> None:
    trained = set().union(*(spoken_combinations(pair.source) for pair in corpus.train))
    unseen = [spoken_combinations(pair.source) - trained for pair in corpus.test]
    assert len(trained) > 250
    assert sum(bool(combinations) for combinations in unseen) > 220
    for pair in corpus.train[:5000] + corpus.test:
        assert spoken_combinations(pair.source) <= pair.combinations, pair


def test_a_sentence_claimed_by_dev_and_test_goes_nowhere() -> None:
    every = [(word, noun.lemma) for word in ADJECTIVES for noun in LEXICON.nouns]
    owned = {split: [c for c in every if reserved_for(c) == split] for split in ("train", "dev", "test")}
    assert split_of(owned["train"]) == "train"
    assert split_of([owned["train"][0], owned["dev"][0]]) == "dev"
    assert split_of([owned["train"][0], owned["test"][0], owned["test"][1]]) == "test"
    assert split_of([owned["dev"][0], owned["test"][0]]) == ""


@pytest.mark.parametrize("seeded", ["corpus", "corpus_of_seed_2"])
@pytest.mark.parametrize("side", ["source", "target"])
def test_every_word_of_the_held_out_sets_is_known_from_training(
    request: pytest.FixtureRequest, side: str, seeded: str
) -> None:
    chosen: DemoCorpus = request.getfixturevalue(seeded)
    counts = Counter(word.lower() for pair in chosen.train for word in words(getattr(pair, side)))
    held_out = {word.lower() for pair in chosen.dev + chosen.test for word in words(getattr(pair, side))}
    assert {word: counts[word] for word in held_out if counts[word] < 3} == {}
    assert 150 <= len(counts) <= 420


def test_every_construction_occurs_in_training_and_is_tested(corpus: DemoCorpus) -> None:
    named = {construction.__name__ for construction in CONSTRUCTION_WEIGHTS}
    for pairs, least in ((corpus.train, 300), (corpus.dev, 15), (corpus.test, 15)):
        counts = Counter(pair.construction for pair in pairs)
        assert set(counts) == named
        assert min(counts.values()) >= least


@pytest.mark.parametrize(
    ("phenomenon", "pattern"),
    [
        ("separable verb, split", r"\b(macht|machen|ruft|bringt|hört|kommt|steht) .*\b(auf|zu|an|aus|mit)[.?]"),
        (
            "separable verb, whole at the end",
            r", (weil|dass|ob|wenn|obwohl) .*(auf|zu|an|aus)(macht|ruft|hört|steht|kommt)\b",
        ),
        ("separable participle", r"\b(hat|haben) .*\b(auf|zu|an|aus)ge\w+[.,?]"),
        (
            "separable infinitive",
            r"\b(kann|muss|will|sollte|wird) .*\b(auf|zu|an|aus)(machen|rufen|hören|stehen|kommen)[.,?]",
        ),
        ("perfect with sein", r"\b(bin|bist|ist|sind) .*(gegangen|gefahren|angekommen|aufgestanden)\b"),
        ("verb-final perfect", r"\b(weil|dass|ob|obwohl) .* ge\w+ (hat|haben|ist|sind)\b"),
        ("verb-final modal", r"\b(weil|dass|ob|obwohl) .*en (kann|können|muss|müssen|will|wollen|sollte|wird)\b"),
        ("clause in front", r"^(Weil|Wenn|Obwohl) .*\w, (ist|hat|kann|\w+t|\w+en) "),
        ("inversion", r"^(Heute|Gestern|Morgen|Sonntags|Jeden Tag|Letzte Woche) (ist|hat|\w+t|\w+en|\w+e|\w+st) "),
        ("nicht", r"\bnicht\b"),
        ("kein, nominative", r"^Keine? "),
        ("kein, accusative", r"\bkeinen \w+"),
        ("kein, dative", r"\bkeine[mr] \w+"),
        ("wen", r"^(Auf w|W)en\b"),
        ("wem", r"^(Mit w|W)em\b"),
        ("wohin", r"^Wohin\b"),
        ("wo", r"^Wo\b"),
        ("strong adjective", r"\b(kalter Kaffee|kalten Kaffee|kalte Milch|kaltes Wasser|frisches Brot)\b"),
        ("dative plural", r"\b(den|meinen|ihren|seinen|zwei)( \w+en)? (Kindern|Männern|Lehrern|Freunden)\b"),
        ("contraction", r"\b(im|ins|am|zum|zur)\b"),
    ],
)
def test_every_phenomenon_is_in_training(corpus: DemoCorpus, phenomenon: str, pattern: str) -> None:
    assert sum(bool(re.search(pattern, pair.target)) for pair in corpus.train) >= 20, phenomenon


def test_sentences_are_short(corpus: DemoCorpus) -> None:
    lengths = [len(words(sentence)) for pair in corpus.train for sentence in (pair.source, pair.target)]
    assert max(lengths) == 14
    assert 6 < sum(lengths) / len(lengths) < 9


def test_files_hold_a_pair_a_line(tmp_path: Path, corpus: DemoCorpus) -> None:
    write_demo_text(tmp_path / "demo", pairs=500)
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == [
        *("dev.de", "dev.en", "test.de", "test.en", "train.de", "train.en")
    ]
    for split, pairs in (("train", corpus.train[:500]), ("dev", corpus.dev), ("test", corpus.test)):
        english, german = ((tmp_path / "demo" / f"{split}.{side}").read_bytes() for side in ("en", "de"))
        assert english.endswith(b"\n")
        assert b"\r" not in english + german
        lines = zip(english.decode("utf-8").splitlines(), german.decode("utf-8").splitlines(), strict=True)
        assert [Pair(*line) for line in lines] == pairs


def test_an_empty_corpus_is_refused() -> None:
    with pytest.raises(TandemError, match="at least 1"):
        generate(pairs=0)
