"""transformers' own generate(), translating one file again and again; runs in its environment, without Tandem.

    PYTHON_OF_TRANSFORMERS -m testbed.transformers_decoder FOLDER TEXT OUTPUT LOG --end never --extra-length 50

FOLDER is what `tandem export --to huggingface` makes, with the search of the run that it was made of. The first
translation of the file is written to OUTPUT; from then on LOG gains a line with the number of sentences for every batch
that is done. Sentences become ids once; batches are of alike ones, which its user would have to see to.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Before it is imported: all that it needs is in the folder.
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

# When a search ends: if nothing alive can win any more, as in ours, or earlier, by transformers' own rule.
ENDS: dict[str, str | bool] = {"never": "never", "usual": False}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("folder", "text", "output", "log"):
        arguments.add_argument(name, type=Path)
    arguments.add_argument("--end", choices=ENDS, required=True, help="what early_stopping of generate() is to be")
    arguments.add_argument(
        "--extra-length", type=int, required=True, help="pieces that may come on top of the source's"
    )
    arguments.add_argument("--batch", type=int, default=64, help="sentences")
    arguments.add_argument("--threads", type=int, default=2)
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    says: Any = transformers.utils.logging
    says.disable_progress_bar()
    says.set_verbosity_error()
    decoder = Decoder(options.folder, ENDS[options.end], options.extra_length)
    lines = options.text.read_text(encoding="utf-8").splitlines()
    batches = list(decoder.batches(lines, options.batch))
    found = dict(pair for rows, ids in batches for pair in zip(rows, decoder.text(decoder.search(ids)), strict=True))
    options.output.write_text("".join(f"{found[row]}\n" for row in range(len(lines))), encoding="utf-8")
    with options.log.open("w", buffering=1) as log:
        while True:
            for rows, ids in batches:
                decoder.search(ids)
                log.write(f"{len(rows)}\n")


class Decoder:
    """The model and the tokenizer of a folder."""

    def __init__(self, folder: Path, early_stopping: str | bool, extra_length: int) -> None:
        self._tokenizer: Any = AutoTokenizer.from_pretrained(str(folder))
        self._model: Any = AutoModelForSeq2SeqLM.from_pretrained(str(folder), dtype=torch.float32).eval()
        self._early_stopping, self._extra_length = early_stopping, extra_length

    def batches(self, lines: list[str], size: int) -> Iterator[tuple[list[int], Any]]:
        """Numbers of lines of like length, longest first, with their ids."""
        lengths = [len(ids) for ids in self._tokenizer(lines)["input_ids"]]
        by_length = sorted(range(len(lines)), key=lambda row: -lengths[row])
        for start in range(0, len(lines), size):
            rows = by_length[start : start + size]
            yield rows, self._tokenizer([lines[row] for row in rows], return_tensors="pt", padding=True)

    @torch.inference_mode()
    def search(self, ids: Any) -> Any:
        """The ids of the translations."""
        longest = min(ids["input_ids"].shape[1] + self._extra_length, self._model.generation_config.max_length)
        return self._model.generate(**ids, max_length=longest, early_stopping=self._early_stopping)

    def text(self, ids: Any) -> list[str]:
        texts: list[str] = self._tokenizer.batch_decode(ids, skip_special_tokens=True)
        return texts


if __name__ == "__main__":
    main()
