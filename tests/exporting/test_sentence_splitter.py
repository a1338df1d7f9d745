"""The splitter in a package: an ONNX network, run here by onnx's own evaluator as MiniSBD runs it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from tandem.exporting.sentence_splitter import sentence_splitter

SENTENCE_END = 2


@pytest.fixture(scope="module")
def network() -> onnx.ModelProto:
    return onnx.load_from_string(sentence_splitter("en"))


def sentences(network: onnx.ModelProto, text: str) -> Iterator[str]:
    vocabulary = json.loads(next(one.value for one in network.metadata_props if one.key == "vocab"))["_unit2id"]
    units = np.array([[vocabulary.get(character, 1) for character in text]])
    features = np.array([[[character == " ", character.isupper()] for character in text]], dtype=np.float32)
    [classes_BNK] = ReferenceEvaluator(network).run(None, {"units": units, "features": features})
    start = 0
    for end, kind in enumerate(np.asarray(classes_BNK)[0].argmax(-1), 1):
        if kind == SENTENCE_END or end == len(text):
            yield text[start:end].strip()
            start = end


@pytest.mark.parametrize(
    "expected",
    [
        ["A dog sleeps.", "The man reads!", "Does he?", "Yes."],
        ['He said "Go."', "Then he left...", "And so on."],
        ["It costs 3.50 euros.", "(Really?)", "\u201eJa.\u201c", "Es ist so."],
        ["Mr. Smith and J. R. Brown came."],
        ["see e.g. this"],
        ["Wait ... what?", "Nothing."],
    ],
)
def test_sentences_are_told_apart(network: onnx.ModelProto, expected: list[str]) -> None:
    assert list(sentences(network, " ".join(expected))) == expected


def test_marks_of_scripts_without_capitals_end_a_sentence(network: onnx.ModelProto) -> None:
    text = "\u4f60\u597d\u3002\u518d\u89c1\uff01\uff1f\u662f"
    assert list(sentences(network, text)) == ["\u4f60\u597d\u3002", "\u518d\u89c1\uff01\uff1f", "\u662f"]


def test_it_is_small_and_the_same_every_time() -> None:
    assert sentence_splitter("en") == sentence_splitter("en")
    assert len(sentence_splitter("en")) < 4096
