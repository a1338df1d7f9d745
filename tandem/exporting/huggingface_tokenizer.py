"""A SentencePiece model of Tandem's as a tokenizer.json, which the `tokenizers` library reads: same pieces, same text.

SentencePiece's BPE merges the pair of neighbours that makes the piece with the lowest number, and knows no list of
merges. So every split of a piece into two pieces becomes a merge, in the order of the pieces they make.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tandem.corpus.tokenizer import SPACE_MARK
from tandem.storage import write_json
from tandem.vocabulary import BOS, EOS, FIRST_LEARNT, PAD, UNK

SPECIAL = {"pad_token": PAD, "unk_token": UNK, "bos_token": BOS, "eos_token": EOS}
_AS_IT_STANDS = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}


def write_tokenizer(pieces: Sequence[str], longest: int, folder: Path) -> None:
    """Write the files that AutoTokenizer reads; `longest` is the number of pieces that a model holds, EOS included."""
    write_json(folder / "tokenizer.json", json.loads(fast_tokenizer(pieces).to_str()))
    names = {role: pieces[number] for role, number in SPECIAL.items()}
    write_json(folder / "special_tokens_map.json", names)
    settings = {
        # The name that versions 4 and 5 of transformers both load.
        "tokenizer_class": "PreTrainedTokenizerFast",
        **names,
        "model_max_length": longest,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        # Or a text with the characters </s> in it would end there.
        "split_special_tokens": True,
        "added_tokens_decoder": {
            str(number): {"content": pieces[number], "special": True, **_AS_IT_STANDS} for number in SPECIAL.values()
        },
    }
    write_json(folder / "tokenizer_config.json", settings)


def fast_tokenizer(pieces: Sequence[str]) -> Any:
    """The tokenizer as an object of the `tokenizers` library."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    model = models.BPE(
        vocab=vocabulary, merges=list(_merges(pieces)), unk_token=pieces[UNK], byte_fallback=True, fuse_unk=False
    )
    tokenizer = Tokenizer(model)
    # As SentencePiece does: runs of spaces are one, none at the ends, one before the first word, and all are marks.
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(Regex(" +"), " "),
            normalizers.Replace(Regex(r"\A "), ""),
            normalizers.Replace(Regex(r"\A(?=[\s\S])"), " "),
            normalizers.Replace(" ", SPACE_MARK),
            normalizers.Replace(Regex(rf"{SPACE_MARK}+\z"), ""),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(SPACE_MARK, "merged_with_next")
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace(SPACE_MARK, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Replace(Regex(r"\A +"), ""),
        ]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {pieces[EOS]}", pair=f"$A $B {pieces[EOS]}", special_tokens=[(pieces[EOS], EOS)]
    )
    tokenizer.add_special_tokens(
        [AddedToken(pieces[number], special=True, normalized=False) for number in SPECIAL.values()]
    )
    return tokenizer


def _merges(pieces: Sequence[str]) -> Iterator[tuple[str, str]]:
    learnt = pieces[FIRST_LEARNT:]
    known = set(learnt)
    for piece in learnt:
        for cut in range(1, len(piece)):
            if piece[:cut] in known and piece[cut:] in known:
                yield piece[:cut], piece[cut:]
