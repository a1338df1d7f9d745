"""The HuggingFace folder: what AutoModelForSeq2SeqLM and AutoTokenizer of transformers load, versions 4 and 5.

It is written without transformers. Where transformers is installed, the export is checked with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import tandem
from tandem.exporting.ctranslate2_folder import plain_length_penalty
from tandem.exporting.export_format import LoadedExport, Quantization, TrainedModel
from tandem.exporting.huggingface_tokenizer import write_tokenizer
from tandem.exporting.huggingface_weights import pegasus_config, pegasus_weights, read_back
from tandem.exporting.sequence_scores import log_probabilities
from tandem.layout import MODEL_FILE, TOKENIZER_FILE
from tandem.model.length_rules import EXTRA_LENGTH
from tandem.model.translation_model import build_model
from tandem.storage import write_json, write_whole
from tandem.translation.torch_engine import TorchEngine
from tandem.vocabulary import BOS, EOS, PAD

DTYPES: dict[Quantization, torch.dtype] = {"float32": torch.float32, "float16": torch.float16}
# Our mark in the settings, which transformers leaves alone.
MARK = "tandem_version"
# Lines that are translated together for the check.
BATCH = 32
USAGE = """\
With transformers, version 4 or 5 (`pip install transformers torch`):

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = AutoModelForSeq2SeqLM.from_pretrained("{name}")
batch = tokenizer(["..."], return_tensors="pt", padding=True, truncation=True)
print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))
```

`ct2-transformers-converter --model {name} --output_dir ...` makes a CTranslate2 model of it. Input of more than
{longest} pieces is cut: split it first.
"""


class HuggingFaceFolder:
    """A Pegasus model in safetensors, with a fast tokenizer."""

    quantizations: tuple[Quantization, ...] = ("float32", "float16")
    packages = ("tokenizers",)
    suffix = ""
    # Its search ranks by log-probability / length^p alone, and stops earlier than ours.
    search_share = 0.02

    def default_name(self, trained: TrainedModel, run: str, quantization: Quantization) -> str:
        return f"{run}-huggingface" if quantization == "float32" else f"{run}-huggingface-{quantization}"

    def is_one(self, path: Path) -> bool:
        try:
            return MARK in json.loads((path / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, TypeError):
            return False

    def write(self, trained: TrainedModel, quantization: Quantization, folder: Path) -> None:
        weights = pegasus_weights(trained, DTYPES[quantization])
        save_file(weights, folder / MODEL_FILE, metadata={"format": "pt"})
        (folder / MODEL_FILE).chmod(0o644)  # safetensors writes for the owner alone
        settings = pegasus_config(trained.config.model, trained.tokenizer.vocab_size, quantization)
        write_json(folder / "config.json", {**settings, MARK: tandem.__version__})
        write_json(folder / "generation_config.json", generation_config(trained))
        write_tokenizer(trained.tokenizer.pieces(), trained.max_length, folder)
        write_whole(folder / TOKENIZER_FILE, trained.tokenizer_bytes)

    def load(self, trained: TrainedModel, folder: Path) -> LoadedExport:
        try:
            import transformers  # noqa: F401
        except ImportError:
            return FilesReadBack(trained, folder)
        return TransformersLoaded(trained, folder)

    def usage(self, trained: TrainedModel, name: str) -> str:
        return USAGE.format(name=name, longest=trained.max_length - 1)

    def pack(self, trained: TrainedModel, folder: Path) -> Path:
        return folder


def generation_config(trained: TrainedModel) -> dict[str, Any]:
    """How generate() searches: as near to the run's own search as it can."""
    return {
        "num_beams": trained.search.beam,
        "length_penalty": plain_length_penalty(trained.search.length_penalty),
        # Waits like our search until nothing alive can win.
        "early_stopping": "never" if trained.search.beam > 1 else False,
        "max_length": trained.max_length,
        "min_length": 2,  # the start and one piece: a sentence must not vanish
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": PAD,
        "forced_eos_token_id": None,
    }


class TransformersLoaded:
    """The folder as transformers loads it, with its own search."""

    def __init__(self, trained: TrainedModel, folder: Path) -> None:
        import transformers

        self.program = f"transformers {transformers.__version__}"
        says: Any = transformers.utils.logging
        says.disable_progress_bar()
        says.set_verbosity_error()
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
        self._model = transformers.AutoModelForSeq2SeqLM.from_pretrained(str(folder), dtype=torch.float32).eval()

    @torch.inference_mode()
    def translate(self, lines: Sequence[str]) -> list[str]:
        found: dict[int, str] = {}
        for indices in _alike(lines):
            batch = self._tokenizer([lines[index] for index in indices], return_tensors="pt", padding=True)
            longest = batch["input_ids"].shape[1] + EXTRA_LENGTH
            made = self._model.generate(**batch, max_length=min(longest, self._model.generation_config.max_length))
            found.update(zip(indices, self._tokenizer.batch_decode(made, skip_special_tokens=True), strict=True))
        return [found[index] for index in range(len(lines))]

    @torch.inference_mode()
    def log_probabilities(self, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
        found: dict[int, float] = {}
        for indices in _alike(sources):
            batch = self._tokenizer([sources[index] for index in indices], return_tensors="pt", padding=True)
            labels = self._tokenizer([targets[index] for index in indices], return_tensors="pt", padding=True)
            labels_BT = labels["input_ids"]
            starts_B1 = torch.full_like(labels_BT[:, :1], PAD)
            decoded = self._model(**batch, decoder_input_ids=torch.cat([starts_B1, labels_BT[:, :-1]], dim=1))
            chosen_BT = decoded.logits.log_softmax(-1).gather(2, labels_BT.unsqueeze(2)).squeeze(2)
            sums_B: Tensor = (chosen_BT * labels["attention_mask"]).sum(1)
            found.update(zip(indices, sums_B.tolist(), strict=True))
        return [found[index] for index in range(len(sources))]


class FilesReadBack:
    """The folder's weights and tokenizer.json in our own model and search, where transformers is not installed."""

    program = "Tandem, from the files read back (install transformers to have them run by it)"

    def __init__(self, trained: TrainedModel, folder: Path) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.encode_special_tokens = True
        model = build_model(trained.config.model, trained.tokenizer.vocab_size)
        model.load_weights(read_back(load_file(folder / MODEL_FILE), trained))
        self._model = model.to(trained.model.device).eval()
        self._engine = TorchEngine(self._model, trained.search)

    def translate(self, lines: Sequence[str]) -> list[str]:
        translated = self._engine.translate(self._encode(lines))
        texts: list[str] = self._tokenizer.decode_batch(translated, skip_special_tokens=True)
        return texts

    def log_probabilities(self, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
        return log_probabilities(self._model, self._encode(sources), self._encode(targets))

    def _encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [encoding.ids[:-1] for encoding in self._tokenizer.encode_batch(list(lines))]


def _alike(lines: Sequence[str]) -> Iterator[list[int]]:
    """Indices of lines that are translated together, of like length."""
    by_length = sorted(range(len(lines)), key=lambda index: len(lines[index]))
    for start in range(0, len(lines), BATCH):
        yield by_length[start : start + BATCH]


FORMAT = HuggingFaceFolder()
