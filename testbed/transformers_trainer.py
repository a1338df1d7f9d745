"""transformers' own training of a model from scratch, counted; runs in its environment, without Tandem.

    PYTHON_OF_TRANSFORMERS -m testbed.transformers_trainer SETTINGS LOG

SETTINGS is a file that testbed/peer_settings.py writes: the model, the trainer's arguments, the corpus and the size of
a batch. LOG gains a line with the number of target tokens, without padding and with EOS, for every step of the
optimizer. transformers counts the sentences of a batch: batches of alike pairs within a budget of tokens, as they are
made here, are what its user would have to add.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import AutoConfig, AutoModelForSeq2SeqLM, Seq2SeqTrainer, Seq2SeqTrainingArguments

from testbed.token_log import TokenLog

Pair = tuple[list[int], list[int]]
NO_LABEL = -100
"""What the loss passes over."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("settings", "log"):
        arguments.add_argument(name, type=Path)
    options = arguments.parse_args()
    settings = json.loads(options.settings.read_text(encoding="utf-8"))
    model: Any = AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model(**settings["model"]))
    pairs: Any = read_pairs(settings, model.config.eos_token_id)
    batches = BatchesByLength(pairs, settings["batch_tokens"])
    trainer = CountedTrainer(model=model, args=Seq2SeqTrainingArguments(**settings["training"]))
    trainer.loader = DataLoader(pairs, batch_sampler=batches, collate_fn=partial(model_inputs, model))
    trainer.token_log = TokenLog(options.log)
    trainer.train()


class CountedTrainer(Seq2SeqTrainer):
    """The stock trainer, with batches that were cut elsewhere, and counted."""

    loader: DataLoader[Pair]
    token_log: TokenLog

    def get_train_dataloader(self) -> Any:
        return self.accelerator.prepare(self.loader)

    def training_step(self, model: Any, inputs: dict[str, Any], *arguments: Any, **settings: Any) -> Any:
        self.token_log.add(int(inputs["labels"].ne(NO_LABEL).sum()))
        return super().training_step(model, inputs, *arguments, **settings)


class BatchesByLength:
    """Batches of alike pairs, in a new order in each epoch; the padded positions of the longer side fit the budget."""

    def __init__(self, pairs: Sequence[Pair], tokens: int) -> None:
        self.batches: list[list[int]] = [[]]
        longest = 0
        for row in sorted(range(len(pairs)), key=lambda row: self._place(*pairs[row])):
            length = max(map(len, pairs[row]))
            longest = max(longest, length)
            if self.batches[-1] and (len(self.batches[-1]) + 1) * longest > tokens:
                self.batches.append([])
                longest = length
            self.batches[-1].append(row)

    @staticmethod
    def _place(source: Sequence[int], target: Sequence[int]) -> tuple[int, int]:
        """By target length; sources run up under odd ones and down under even ones, as in our own batches."""
        return len(target), len(source) if len(target) % 2 else -len(source)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        return iter(random.sample(self.batches, len(self.batches)))


def read_pairs(settings: Mapping[str, Any], eos: int) -> list[Pair]:
    """The numbers of the corpus' pieces; targets get EOS, which the sources have already."""
    numbers = {piece: number for number, piece in enumerate(lines_of(settings["vocabulary"]))}
    sources, targets = (
        [[numbers[piece] for piece in line.split(" ")] for line in lines_of(settings[side])]
        for side in ("source", "target")
    )
    return [(source, [*target, eos]) for source, target in zip(sources, targets, strict=True)]


def lines_of(path: str) -> list[str]:
    # Not splitlines(): a piece may be what Python takes for the end of a line.
    return Path(path).read_text(encoding="utf-8").split("\n")[:-1]


def model_inputs(model: Any, pairs: Sequence[Pair]) -> dict[str, Tensor]:
    """Padded ids, the mask of the sources, and the targets moved by one place for the decoder."""
    sources, targets = ([torch.tensor(ids) for ids in side] for side in zip(*pairs, strict=True))
    padding = model.config.pad_token_id
    source_ids = pad_sequence(sources, batch_first=True, padding_value=padding)
    labels = pad_sequence(targets, batch_first=True, padding_value=NO_LABEL)
    return {
        "input_ids": source_ids,
        "attention_mask": source_ids.ne(padding).long(),
        "labels": labels,
        "decoder_input_ids": model.prepare_decoder_input_ids_from_labels(labels),
    }


if __name__ == "__main__":
    main()
