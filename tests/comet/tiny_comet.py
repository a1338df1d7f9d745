"""A tiny COMET model on the disk, in the layout of the published ones; its weights are sines, the same everywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import yaml
from torch import Tensor

from tandem.demo import write_demo_text

WIDTH, LAYERS, HEADS, INNER, POSITIONS = 16, 3, 2, 24, 40
HIDDEN = [12, 8]
# SentencePiece's, and one that fairseq's dictionary has more; HuggingFace's programs add <mask>.
PIECES = 200
WORDS = PIECES + 2


def write_tiny_comet(folder: Path, **settings: Any) -> Path:
    """A folder that `tandem score --comet` takes; `settings` go into hparams.yaml."""
    hparams = {
        "class_identifier": "regression_metric",
        "encoder_model": "XLM-RoBERTa",
        "pretrained_model": "xlm-roberta-large",
        "layer": "mix",
        "layer_transformation": "sparsemax",
        "layer_norm": False,
        "pool": "avg",
        "hidden_sizes": HIDDEN,
        "activations": "Tanh",
        "final_activation": None,
        "dropout": 0.1,
        **settings,
    }
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "encoder").mkdir()
    (folder / "hparams.yaml").write_text(yaml.safe_dump(hparams))
    (folder / "encoder/config.json").write_text(json.dumps(encoder_config()))
    text = folder.parent / f"{folder.name}-text"
    write_demo_text(text, pairs=400)
    sentencepiece.SentencePieceTrainer.train(
        input=f"{text / 'train.en'},{text / 'train.de'}",
        model_prefix=str(folder / "encoder/sentencepiece.bpe"),
        vocab_size=PIECES,
        minloglevel=2,
    )
    (folder / "encoder/sentencepiece.bpe.vocab").unlink()
    checkpoint = {"state_dict": dict(weights()), "hyper_parameters": hparams, "pytorch-lightning_version": "2.0.0"}
    torch.save(checkpoint, folder / "checkpoints/model.ckpt")
    return folder


def encoder_config() -> dict[str, Any]:
    return {
        "model_type": "xlm-roberta",
        "architectures": ["XLMRobertaForMaskedLM"],
        "hidden_size": WIDTH,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "intermediate_size": INNER,
        "max_position_embeddings": POSITIONS,
        "vocab_size": WORDS,
        "type_vocab_size": 1,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
    }


def weights() -> Iterator[tuple[str, Tensor]]:
    """All tensors under the names of a checkpoint."""
    for number, (name, shape) in enumerate(shapes()):
        count = int(torch.tensor(shape).prod())
        wave = torch.sin(torch.arange(count, dtype=torch.float64) * (1.0 + 0.37 * number) + number)
        if name.endswith(("LayerNorm.weight", "gamma")):
            wave = 1 + 0.1 * wave
        elif "encoder.layer" in name:
            wave = wave / 2
        yield name, wave.reshape(shape).float()


def shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    """The names in a checkpoint, and the shapes behind them."""
    embeddings = "encoder.model.embeddings"
    yield f"{embeddings}.word_embeddings.weight", (WORDS, WIDTH)
    yield f"{embeddings}.position_embeddings.weight", (POSITIONS, WIDTH)
    yield f"{embeddings}.token_type_embeddings.weight", (1, WIDTH)
    yield from _norm(f"{embeddings}.LayerNorm")
    for layer in range(LAYERS):
        place = f"encoder.model.encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            yield from _linear(f"{place}.attention.self.{part}", WIDTH, WIDTH)
        yield from _linear(f"{place}.attention.output.dense", WIDTH, WIDTH)
        yield from _norm(f"{place}.attention.output.LayerNorm")
        yield from _linear(f"{place}.intermediate.dense", WIDTH, INNER)
        yield from _linear(f"{place}.output.dense", INNER, WIDTH)
        yield from _norm(f"{place}.output.LayerNorm")
    for layer in range(LAYERS + 1):
        yield f"layerwise_attention.scalar_parameters.{layer}", (1,)
    yield "layerwise_attention.gamma", (1,)
    sizes = [6 * WIDTH, *HIDDEN, 1]
    for number in range(len(sizes) - 1):
        # Between two of them stand an activation and dropout.
        yield from _linear(f"estimator.ff.{3 * number}", sizes[number], sizes[number + 1])


def _linear(name: str, before: int, after: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (after, before)
    yield f"{name}.bias", (after,)


def _norm(name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (WIDTH,)
    yield f"{name}.bias", (WIDTH,)
