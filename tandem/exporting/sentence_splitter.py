"""A sentence splitter of a few kilobytes in the form of MiniSBD's models, so that a package needs nothing from the net.

MiniSBD hands an ONNX network the characters of a text and takes, for each, the likeliest of three classes: inside, end
of a word, end of a sentence. Ours is one table and one convolution that spell out a rule:

    a sentence ends after . ! ? or ... (and a quotation mark or bracket that closes) before a space and a capital or a
    mark that opens, but not after a single capital or a capital and one letter (J. Dr.); marks of scripts without
    capitals end it wherever they stand.

A wrong cut breaks a sentence, a missing one only leaves two together, so that the rule cuts rather too little.
"""

from __future__ import annotations

import json

import numpy as np

STOPS, OWN_STOPS = ".!?\u2026", "\u3002\uff01\uff1f\uff61\u061f\u0964\u06d4"
CLOSING, OPENING = ")]}\u201d\u300d\u300f", "([{\u201e\u201a\u00bf\u00a1"
EITHER = "\"'\u201c\u2018\u2019\u00ab\u00bb"  # what opens in one language closes in another
# Rows of the table: for each mark, whether it stops, stops by itself, closes, opens.
_STOP, _OWN_STOP, _CLOSING, _OPENING, _SPACE, _CAPITAL = range(6)
_MARKS = {
    **dict.fromkeys(STOPS, (_STOP,)),
    **dict.fromkeys(OWN_STOPS, (_OWN_STOP,)),
    **dict.fromkeys(CLOSING, (_CLOSING,)),
    **dict.fromkeys(OPENING, (_OPENING,)),
    **dict.fromkeys(EITHER, (_CLOSING, _OPENING)),
}
_BEGINNING = ["<PAD>", "<UNK>"]
# What a neighbour at so many characters' distance adds to the hint that a sentence ends here, and how much it takes.
_HINTS = {
    (_STOP, 0): 2.0,
    (_STOP, -1): 1.0,
    (_CLOSING, 0): 1.0,
    (_SPACE, 1): 10.0,
    (_CAPITAL, 2): 10.0,
    (_OPENING, 2): 10.0,
    (_CAPITAL, -1): -5.0,
    (_CAPITAL, -2): -5.0,
    (_OWN_STOP, 0): 30.0,
    (_OWN_STOP, 1): -20.0,
    (_CLOSING, 1): -20.0,
}
_ENOUGH = 21.5
_REACH = 2
_CLASSES = ("inside", "word", "sentence")


def sentence_splitter(language: str) -> bytes:
    """The splitter as the bytes of an ONNX file; the language is only noted in it."""
    from onnx import checker, helper, numpy_helper
    from onnx.onnx_pb import TensorProto

    marks = [*_BEGINNING, *_MARKS]
    table = np.zeros((len(marks), _SPACE), dtype=np.float32)
    for number, mark in enumerate(marks):
        table[number, list(_MARKS.get(mark, ()))] = 1
    kernel = np.zeros((len(_CLASSES), _CAPITAL + 1, 2 * _REACH + 1), dtype=np.float32)
    for (kind, distance), hint in _HINTS.items():
        kernel[_CLASSES.index("sentence"), kind, distance + _REACH] = hint
    # Words are of no interest.
    bias = np.array([0, -1, -_ENOUGH], dtype=np.float32)
    shape = ["batch", "characters"]
    nodes = [
        helper.make_node("Gather", ["table", "units"], ["marks"]),
        helper.make_node("Concat", ["marks", "features"], ["characters"], axis=2),
        helper.make_node("Transpose", ["characters"], ["columns"], perm=[0, 2, 1]),
        helper.make_node("Conv", ["columns", "kernel", "bias"], ["hints"], pads=[_REACH, _REACH]),
        helper.make_node("Transpose", ["hints"], ["classes"], perm=[0, 2, 1]),
    ]
    graph = helper.make_graph(
        nodes,
        "sentence-splitter",
        inputs=[
            helper.make_tensor_value_info("units", TensorProto.INT64, shape),
            helper.make_tensor_value_info("features", TensorProto.FLOAT, [*shape, 2]),
        ],
        outputs=[helper.make_tensor_value_info("classes", TensorProto.FLOAT, [*shape, len(_CLASSES)])],
        initializer=[
            numpy_helper.from_array(array, name)
            for name, array in (("table", table), ("kernel", kernel), ("bias", bias))
        ],
    )
    # Versions of some years ago, which every onnxruntime in use reads.
    model = helper.make_model(graph, producer_name="tandem", ir_version=8, opset_imports=[helper.make_opsetid("", 13)])
    helper.set_model_props(model, _properties(language, marks))
    checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _properties(language: str, marks: list[str]) -> dict[str, str]:
    """What MiniSBD reads beside the network: which features it is to work out, and the numbers of characters."""
    features = {"feat_funcs": ["space_before", "capitalized"], "use_dictionary": False, "num_dict_feat": 0}
    # Paragraphs are split one at a time, so that none is padded to the length of another.
    config = {"batch_size": 1, "max_seqlen": 1000, "no_ssplit": False, "skip_newline": False, **features}
    vocabulary = {"lang": language, "_id2unit": marks, "_unit2id": {mark: number for number, mark in enumerate(marks)}}
    return {
        "lang_code": language,
        "config": json.dumps(config),
        "vocab": json.dumps(vocabulary),
        "lexicon": "null",
    }
