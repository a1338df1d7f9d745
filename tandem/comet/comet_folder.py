"""A COMET model on the disk: its settings, its weights and the tokenizer of its encoder.

What is read is the layout in which COMET's own models are published, with the small files of the encoder beside them:

    hparams.yaml                      settings of the estimator
    checkpoints/model.ckpt            all weights as PyTorch Lightning saves them, or checkpoints/model.safetensors
    encoder/config.json               settings of the encoder, as HuggingFace's programs write them
    encoder/sentencepiece.bpe.model   its tokenizer

Nothing is fetched, and nothing in it is run: a checkpoint that holds more than tensors and plain values is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from tandem.errors import TandemError
from tandem.storage import error_in_words, sha256_of
from tandem.untrusted_folder import foreign_entry
from tandem.yaml_files import read_yaml

HPARAMS = Path("hparams.yaml")
CHECKPOINTS = (Path("checkpoints/model.safetensors"), Path("checkpoints/model.ckpt"))
ENCODER_CONFIG = Path("encoder/config.json")
PIECES = Path("encoder/sentencepiece.bpe.model")
KIND, ENCODER = "regression_metric", "XLM-RoBERTa"
# Activations that COMET finds by its way of writing them, with a capital alone; others of PyTorch's modules would be no
# function of a number, or want arguments.
ACTIVATIONS = ("Hardsigmoid", "Hardswish", "Hardtanh", "Identity", "Mish", "Sigmoid", "Softplus", "Softsign", "Tanh")
# Hexadecimal digits of the digest in a signature.
_DIGITS = 12


class _Settings(BaseModel):
    """Settings of another program: what we do not need of them may be anything."""

    model_config = ConfigDict(extra="ignore", frozen=True)


SettingsT = TypeVar("SettingsT", bound=_Settings)


class EstimatorSettings(_Settings):
    """hparams.yaml; a setting that is not there is what COMET takes for it."""

    class_identifier: str
    encoder_model: str = ENCODER
    layer: str | int = "mix"
    """The encoder's layer that is used, counted from its embeddings, or `mix` for a weighted mean of all."""
    layer_transformation: str = "softmax"
    layer_norm: bool = True
    pool: str = "avg"
    hidden_sizes: list[int] = Field(default=[3072, 1024], min_length=1)
    activations: str = "Tanh"
    final_activation: str | None = None


class EncoderSettings(_Settings):
    """encoder/config.json."""

    model_type: str
    hidden_size: int = Field(ge=1)
    num_attention_heads: int = Field(ge=1)
    num_hidden_layers: int = Field(ge=1)
    intermediate_size: int = Field(ge=1)
    max_position_embeddings: int = Field(ge=8)
    vocab_size: int = Field(ge=4)
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-5


@dataclass(frozen=True)
class CometFolder:
    """A folder whose files are all there and can be read."""

    path: Path
    estimator: EstimatorSettings
    encoder: EncoderSettings
    weights: Mapping[str, Tensor]
    digest: str
    """Beginning of one checksum for all files that a score depends on."""

    @property
    def pieces(self) -> Path:
        """The tokenizer's file."""
        return self.path / PIECES

    @classmethod
    def open(cls, path: Path) -> CometFolder:
        """Read a folder; a fault names the file and what to do about it."""
        if not path.is_dir():
            raise TandemError(f"--comet {path}: no such folder; nothing is downloaded, so give one on this disk")
        if foreign := foreign_entry(path):
            raise TandemError(f"--comet {path}: not read: {foreign}")
        checkpoint = next((path / name for name in CHECKPOINTS if (path / name).is_file()), path / CHECKPOINTS[-1])
        files = [path / HPARAMS, checkpoint, path / ENCODER_CONFIG, path / PIECES]
        for file in files:
            if not file.is_file():
                raise TandemError(f"{file}: is missing; {_remedy(file)}")
        estimator = _checked(EstimatorSettings, path / HPARAMS, read_yaml(path / HPARAMS))
        _check_kind(path / HPARAMS, estimator)
        encoder = _checked(EncoderSettings, path / ENCODER_CONFIG, _read_json(path / ENCODER_CONFIG))
        if encoder.model_type != "xlm-roberta" or encoder.hidden_act != "gelu":
            raise TandemError(f"{path / ENCODER_CONFIG}: not of {ENCODER}; copy config.json of the encoder")
        digests = "".join(sha256_of(file) for file in files)
        digest = hashlib.sha256(digests.encode()).hexdigest()[:_DIGITS]
        return cls(path, estimator, encoder, _read_weights(checkpoint), digest)


def _remedy(file: Path) -> str:
    if file.parent.name == "encoder":
        return "copy config.json and sentencepiece.bpe.model of the encoder (xlm-roberta-large) into the folder encoder"
    return "give the folder of a COMET model, with hparams.yaml and checkpoints/model.ckpt in it"


def _check_kind(file: Path, settings: EstimatorSettings) -> None:
    """Refuse what this reader would score wrongly."""
    readable = {
        "class_identifier": (KIND,),
        "encoder_model": (ENCODER,),
        # What 2.2.4 and later write for models that were trained with a softmax under the other's name.
        "layer_transformation": ("softmax", "sparsemax", "sparsemax_patch"),
        "pool": ("avg", "max", "cls"),
    }
    for name, values in readable.items():
        if (value := getattr(settings, name)) not in values:
            raise TandemError(
                f"{file}: {name} is {value}, and Tandem reads {' or '.join(values)}; take a model like wmt22-comet-da"
            )
    for activation in (settings.activations, settings.final_activation):
        if activation is not None and activation.title() not in ACTIVATIONS:
            raise TandemError(f"{file}: {activation} is not an activation that Tandem knows; copy the file again")
    if isinstance(settings.layer, str) and settings.layer != "mix":
        raise TandemError(f"{file}: layer is {settings.layer}, neither mix nor a number; copy the file again")


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise TandemError(f"{file}: cannot be read ({error_in_words(error)}); copy it again") from error


def _checked(kind: type[SettingsT], file: Path, content: Any) -> SettingsT:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "all of it"
        raise TandemError(f"{file}: {where}: {first['msg']}; copy the file again") from None


def _read_weights(file: Path) -> Mapping[str, Tensor]:
    """All tensors by name."""
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        content = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, SafetensorError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise TandemError(f"{file}: cannot be read ({error_in_words(error)}); copy it again") from error
    except Exception as error:  # an error of pickle's, a module that we do not import
        raise TandemError(
            f"{file}: not read, because it holds more than tensors and plain values, which could be code; where you "
            "trust it, save its state_dict with safetensors as checkpoints/model.safetensors"
        ) from error
    weights = content.get("state_dict") if isinstance(content, dict) else None
    if not isinstance(weights, dict) or not all(isinstance(value, Tensor) for value in weights.values()):
        raise TandemError(f"{file}: no checkpoint of PyTorch Lightning (it has no state_dict); copy it again")
    return weights
