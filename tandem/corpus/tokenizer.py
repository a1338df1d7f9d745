"""The joint vocabulary: SentencePiece BPE pieces learnt from both languages together."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tandem.errors import TandemError
from tandem.layout import CORPUS_REMEDY
from tandem.storage import write_whole
from tandem.vocabulary import BOS, EOS, PAD, UNK

SPACE_MARK = "\u2581"
"""SentencePiece writes a space as this character inside pieces; in a text it is the one that comes back as a space."""

# Sizes in common use: the smaller the corpus, the more often each piece must be seen to be learnt.
_SMALL_VOCABULARY, _LARGE_VOCABULARY = 8_000, 32_000
_LARGE_CORPUS = 1_000_000
# Sentences below which it is quicker to encode one after the other: SentencePiece starts its threads for every list.
_FEW = 64
_UNSPOKEN = frozenset((PAD, BOS, EOS))
# A character seen less than once in so many is rarer than any merge that its piece would displace: bytes spell it.
RARE_CHARACTER = 1_000_000


class Tokenizer:
    """Turns sentences into piece numbers and back; no character is unknown, rare ones become their bytes."""

    def __init__(self, model: bytes) -> None:
        from sentencepiece import SentencePieceProcessor

        self._pieces = SentencePieceProcessor(model_proto=model)
        self.model = model
        """SentencePiece's own form of it, as it is stored."""

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Open a stored model; the error for a missing or damaged one names the file and the remedy."""
        try:
            model = path.read_bytes()
            if not model:  # SentencePiece takes no bytes for a model not yet loaded and complains much later
                raise RuntimeError
            tokenizer = cls(model)
            tokenizer.pieces()  # a damaged one would fail much later, when it is spoken
        except FileNotFoundError:
            raise TandemError(f"{path}: no such tokenizer model; {CORPUS_REMEDY}") from None
        except OSError as error:
            raise TandemError(f"{path}: cannot be read ({error.strerror}); check the file") from None
        except (RuntimeError, UnicodeDecodeError):
            raise TandemError(f"{path}: not a SentencePiece model, or damaged; {CORPUS_REMEDY}") from None
        pieces = tokenizer._pieces
        if (pieces.pad_id(), pieces.unk_id(), pieces.bos_id(), pieces.eos_id()) != (PAD, UNK, BOS, EOS):
            raise TandemError(f"{path}: a SentencePiece model that Tandem did not make; {CORPUS_REMEDY}")
        return tokenizer

    @property
    def vocab_size(self) -> int:
        """Number of pieces, the four special ones and the 256 bytes among them."""
        return int(self._pieces.get_piece_size())

    def pieces(self) -> list[str]:
        """The text of every piece, by its number; the special ones as SentencePiece writes them."""
        return [str(self._pieces.id_to_piece(number)) for number in range(self.vocab_size)]

    def extends(self, other: Tokenizer) -> bool:
        """Whether every piece of another vocabulary has the same number here."""
        return self.pieces()[: other.vocab_size] == other.pieces()

    def extended(self, pieces: Sequence[str]) -> Tokenizer:
        """A vocabulary with more pieces at its end, merged in their order after all that it has."""
        model = _parsed(self.model)
        lowest = min(piece.score for piece in model.pieces)
        for place, piece in enumerate(pieces, start=1):
            model.pieces.add(piece=piece, score=lowest - place)
        model.trainer_spec.vocab_size = len(model.pieces)
        return Tokenizer(model.SerializeToString(deterministic=True))

    def split(self, pieces: Sequence[str]) -> list[list[int]]:
        """What this vocabulary makes of pieces of another one: their text is encoded as it stands inside of words."""
        model = _parsed(self.model)
        # No space in front of a piece, which begins with one if it begins a word.
        model.normalizer_spec.add_dummy_prefix = False
        return Tokenizer(model.SerializeToString(deterministic=True)).encode(pieces, threads=1)

    def encode(self, sentences: Sequence[str], threads: int = -1) -> list[list[int]]:
        """Piece numbers of each sentence, without BOS and EOS, worked out on all cores or by some threads."""
        if threads == 1 or len(sentences) < _FEW:
            return [self._pieces.encode(sentence) for sentence in sentences]
        encoded: list[list[int]] = self._pieces.encode(list(sentences), num_threads=threads)
        return encoded

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each sequence; padding and sentence marks say nothing."""
        spoken = [[int(piece) for piece in sentence if piece not in _UNSPOKEN] for sentence in ids]
        if len(spoken) < _FEW:
            return [self._pieces.decode(sentence) if sentence else "" for sentence in spoken]
        decoded: list[str] = self._pieces.decode(spoken)
        return decoded


def _parsed(model: bytes) -> Any:
    """SentencePiece's stored form as an object whose parts can be changed."""
    from sentencepiece import sentencepiece_model_pb2

    return sentencepiece_model_pb2.ModelProto.FromString(model)  # type: ignore[attr-defined]


def default_vocab_size(pairs: int) -> int:
    """The size of the vocabulary where the settings leave it open."""
    return _SMALL_VOCABULARY if pairs < _LARGE_CORPUS else _LARGE_VOCABULARY


def train_tokenizer(words: Mapping[str, int], *, vocab_size: int, model_path: Path) -> Tokenizer:
    """Learn at most `vocab_size` pieces from words and how often each occurs, fewer if they have no more to give.

    SentencePiece counts the words of sentences before it learns anything else, so words with their counts give the
    same pieces as the sentences would, in less time and memory.
    """
    from sentencepiece import SentencePieceTrainer

    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=(f"{word}\t{count}" for word, count in words.items()),
            input_format="tsv",
            model_writer=model,  # in memory, because a file name would be written into the model
            model_type="bpe",
            vocab_size=vocab_size,
            hard_vocab_limit=False,  # a small text gives what it has instead of failing
            byte_fallback=True,
            character_coverage=_character_coverage(words, vocab_size),
            # Text in, the same text out: NFKC would make "m2" of "m²" and three dots of "…", and the references, which
            # BLEU takes raw, keep theirs. Only runs of spaces are folded, and the scorer folds them too.
            normalization_rule_name="identity",
            remove_extra_whitespaces=True,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            num_threads=16,  # the result does not depend on it, but it is written into the model: never the core count
            minloglevel=2,  # errors arrive as exceptions; the pages of progress go nowhere
        )
    except RuntimeError as error:
        raise TandemError(_explain(error, vocab_size)) from error
    write_whole(model_path, model.getvalue())
    return Tokenizer.load(model_path)


def _character_coverage(words: Mapping[str, int], vocab_size: int) -> float:
    """Share of the text whose characters get a piece each: all of it, save very rare characters in large texts.

    Every character that occurs gets its piece, so that the usual alphabets never fall apart into bytes. Scraped text
    of many million characters has thousands of strays, though, which are left to byte fallback. Nor may characters
    fill more than half of the vocabulary (Chinese with 8000 pieces), or no room is left for words.
    """
    counts = np.zeros(0x110000)  # doubles are exact far beyond the characters of any text
    remaining = iter(words.items())
    while some := list(islice(remaining, 10_000)):
        characters = np.frombuffer("".join(word for word, _ in some).encode("utf-32-le"), dtype="<u4")
        weights = np.repeat([count for _, count in some], [len(word) for word, _ in some])
        counts += np.bincount(characters, weights, minlength=len(counts))
    counts = np.sort(counts[counts > 0])[::-1]
    total = counts.sum() + sum(words.values())  # SentencePiece puts a space before each word
    kept = counts[counts * RARE_CHARACTER >= total][: vocab_size // 2]
    if len(kept) == len(counts):
        return 1.0
    return max(0.98, 1 - float(counts[len(kept) :].sum() / total))  # SentencePiece refuses less than 0.98


def _explain(error: RuntimeError, vocab_size: int) -> str:
    if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error)):
        return (
            f"vocab_size {vocab_size} is too small: the 256 bytes, the special pieces and the single characters of "
            f"this text take {found[1]}; set it to more than {found[1]}"
        )
    if "sentences_.empty()" in str(error):
        return "the training text has no word of at most 4192 bytes to learn a vocabulary from; check the files"
    return f"SentencePiece cannot learn a vocabulary from the training text: {error}"
