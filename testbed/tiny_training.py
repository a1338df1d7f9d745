"""A training of seconds: a corpus of a few demo sentences, and the settings of a model that learns little from it."""

from __future__ import annotations

from pathlib import Path

from tandem.config import CorpusConfig
from tandem.corpus.prepare.pipeline import prepare
from tandem.corpus.text_files import CorpusTexts
from tandem.demo import write_demo_text

# Dropout is on: what it draws has to be drawn again by whoever takes a step a second time.
TINY_MODEL = (
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.d_model=32",
    "model.heads=2",
    "model.d_ff=64",
    "model.max_length=32",
    "model.dropout=0.1",
    "model.attention_dropout=0.1",
    "model.activation_dropout=0.1",
    "batch.tokens=256",
    "batch.micro_batches=2",
    "train.precision=bfloat16",
    "search.beam=2",
)


def make_corpus(directory: Path) -> Path:
    """A prepared corpus of a few demo sentences; the directory it is in."""
    text, corpus = directory / "text", directory / "corpus"
    if corpus.is_dir():
        return corpus
    text.mkdir(parents=True, exist_ok=True)
    write_demo_text(text, pairs=400)
    for path in [*text.glob("dev.*"), *text.glob("test.*")]:
        path.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:10]), encoding="utf-8")
    train, dev, test = ((text / f"{split}.en", text / f"{split}.de") for split in ("train", "dev", "test"))
    prepare(CorpusTexts([train], dev, test), corpus, CorpusConfig(vocab_size=600))
    return corpus
