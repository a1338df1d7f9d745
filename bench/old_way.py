"""The old way from raw text to training text, step by step in a straight line, with the libraries that Tandem uses.

    python -m bench.old_way train.en train.de --out DIRECTORY [--vocabulary 32000]

One process reads and cleans, SentencePiece learns from the text file with all its threads, and every line is encoded
by itself; each step leaves text files to the next. The rules are Tandem's own, so that both ways keep the same pairs,
and the sample that the vocabulary is learnt from is as large. The number of pairs kept is printed.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from tandem.config import CorpusConfig
from tandem.corpus.prepare.cleaning_rules import KEPT, CleaningRules
from tandem.corpus.prepare.word_counts import SAMPLE_PAIRS

LANGUAGES = ("en", "de")


def say(stage: str) -> None:
    print(f"{stage} ...", file=sys.stderr, flush=True)


def clean(source: Path, target: Path, out: Path) -> int:
    """Write the pairs that the rules keep, the first of equal ones only; how many they are."""
    rules, seen = CleaningRules(CorpusConfig(), (LANGUAGES[0], LANGUAGES[1])), set[tuple[str, str]]()
    with (
        source.open("rb") as sources,
        target.open("rb") as targets,
        (out / "clean.en").open("w", encoding="utf-8") as clean_sources,
        (out / "clean.de").open("w", encoding="utf-8") as clean_targets,
    ):
        raw = ((left.rstrip(b"\r\n"), right.rstrip(b"\r\n")) for left, right in zip(sources, targets, strict=True))
        for verdict, left, right, *_ in rules.judge(raw):
            if verdict == KEPT and (left, right) not in seen:
                seen.add((left, right))
                clean_sources.write(left + "\n")
                clean_targets.write(right + "\n")
    return len(seen)


def learn_vocabulary(out: Path, vocabulary: int) -> None:
    SentencePieceTrainer.train(
        input=[str(out / f"clean.{language}") for language in LANGUAGES],
        input_sentence_size=2 * SAMPLE_PAIRS,
        shuffle_input_sentence=True,
        model_prefix=str(out / "tokenizer"),
        model_type="bpe",
        vocab_size=vocabulary,
        hard_vocab_limit=False,
        byte_fallback=True,
        character_coverage=1.0,
        normalization_rule_name="identity",
        num_threads=os.cpu_count(),
        minloglevel=2,
    )


def encode(out: Path) -> None:
    """Write the pieces of every line."""
    pieces = SentencePieceProcessor(model_file=str(out / "tokenizer.model"))
    for language in LANGUAGES:
        with (
            (out / f"clean.{language}").open(encoding="utf-8", newline="\n") as lines,
            (out / f"encoded.{language}").open("w", encoding="utf-8") as encoded,
        ):
            for line in lines:
                encoded.write(" ".join(pieces.encode(line.rstrip("\n"), out_type=str)) + "\n")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("source", type=Path)
    arguments.add_argument("target", type=Path)
    arguments.add_argument("--out", type=Path, required=True)
    arguments.add_argument("--vocabulary", type=int, default=32_000)
    options = arguments.parse_args()
    options.out.mkdir(parents=True)
    say("clean")
    pairs = clean(options.source, options.target, options.out)
    say("learn vocabulary")
    learn_vocabulary(options.out, options.vocabulary)
    say("encode")
    encode(options.out)
    print(pairs)


if __name__ == "__main__":
    main()
