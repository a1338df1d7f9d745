"""The model card: README.md beside an exported model, with the front matter that HuggingFace's hub reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import yaml

import tandem
from tandem.corpus.prepared import CorpusFacts
from tandem.exporting.export_format import Quantization, TrainedModel
from tandem.exporting.self_check import ExportCheck
from tandem.scoring import bleu_signature
from tandem.translation.language_names import language_name

UNKNOWN_LICENCE = "unknown"
CARD = """\
---
{front}---

# {source} to {target}

A Transformer translator from {source} to {target}, trained with Tandem and exported for {program} in {quantization}.

## Use

{usage}
## Quality

{quality}

## Model

{model}

## Text

{text}

## Made with

{versions}

## Licence

{licence}
"""


@dataclass(frozen=True)
class CardFacts:
    """What a model card tells beside the model itself."""

    to: str
    """The export format's name."""
    quantization: Quantization
    usage: str
    """How the model is used, as Markdown."""
    dev_bleu: float | None
    """BLEU of the checkpoint on the whole dev set during training; None if it was never measured."""
    corpus: CorpusFacts | None
    """None if the corpus is gone."""
    check: ExportCheck
    licence: str | None
    origin: str | None = None
    """The other run's checkpoint that the training began with, in words."""


def model_card(trained: TrainedModel, facts: CardFacts) -> str:
    """The text of the card."""
    source, target = map(language_name, trained.languages)
    return CARD.format(
        front=yaml.safe_dump(_front_matter(trained, facts), sort_keys=False, allow_unicode=True),
        source=source,
        target=target,
        program=facts.to,
        quantization=facts.quantization,
        usage=facts.usage,
        quality=_quality(facts),
        model=_model(trained, facts.origin),
        text=_text(facts.corpus),
        versions=_versions(facts),
        licence=facts.licence or "Unknown: whoever publishes the model should name one that its text allows.",
    )


def _front_matter(trained: TrainedModel, facts: CardFacts) -> dict[str, Any]:
    return {
        "license": facts.licence or UNKNOWN_LICENCE,
        "language": list(trained.languages),
        "tags": ["translation", "tandem", facts.to],
        "pipeline_tag": "translation",
    }


def _quality(facts: CardFacts) -> str:
    check = facts.check
    lines = []
    if facts.dev_bleu is not None:
        lines.append(f"- dev BLEU of the checkpoint, in training: {facts.dev_bleu:.2f}")
    if check.exported_bleu is not None and check.own_bleu is not None:
        lines.append(f"- BLEU on {check.origin}: {check.exported_bleu:.2f} by this model, {check.own_bleu:.2f} by ours")
    if lines:
        lines.append(f"- sacreBLEU's signature: `{bleu_signature()}`")
    lines += [
        f"- translations identical to those of the model trained: {check.identical} of {check.lines} "
        f"({check.origin}; run by {check.program})",
        f"- log-probability of the same translation: {check.log_probability_difference:.2g} nats apart in the mean",
    ]
    return "\n".join(lines)


def _model(trained: TrainedModel, origin: str | None) -> str:
    shape, search = trained.config.model, trained.search
    rows = {
        "layers": f"{shape.encoder_layers} encoder, {shape.decoder_layers} decoder, norms before the blocks",
        "width": f"{shape.d_model}, feed-forward {shape.d_ff}, {shape.heads} heads",
        "parameters": f"{sum(weight.numel() for weight in trained.model.parameters()):,}",
        "vocabulary": f"{trained.tokenizer.vocab_size:,} pieces, joint (SentencePiece BPE with bytes)",
        "longest sentence": f"{shape.max_length - 1} pieces",
        "search": f"beam {search.beam}, length penalty {search.length_penalty:g} as ((5 + length) / 6)^alpha",
        "checkpoint": f"step {trained.step:,}",
    }
    if origin is not None:
        rows["adapted from"] = origin
    return _table(rows)


def _text(corpus: CorpusFacts | None) -> str:
    if corpus is None:
        return "The corpus was not at hand when the model was exported."
    rows = {
        "corpus": corpus.origin or "text files",
        "languages": f"{corpus.source_language} to {corpus.target_language}",
    }
    for name, split in corpus.splits.items():
        rows[name] = f"{split.source.cleaned.lines:,} sentence pairs"
    return _table(rows)


def _versions(facts: CardFacts) -> str:
    return f"Tandem {tandem.__version__}, PyTorch {torch.__version__}; checked with {facts.check.program}."


def _table(rows: dict[str, str]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])
