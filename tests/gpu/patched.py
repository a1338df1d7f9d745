"""Runs tandem's command line on the rehearsal device with something in it replaced.

    python -m rehearsal --module tests.gpu.patched -- NAME train ...

NAME is a fault that a programmer could make on a machine without a card, or a change that makes a test affordable.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor

from rehearsal.session import current
from tandem.cli.command_line import program
from tandem.cluster import world
from tandem.doctor import examination
from tandem.model import loss, search, transformer
from tandem.model.batch import Batch, PackedBatch
from tandem.training import batches, step


def float32_mask() -> Any:
    """CUDA's attention takes no mask of another number format than the queries'."""
    real = transformer.Transformer.padding_mask
    return patch.object(transformer.Transformer, "padding_mask", lambda self, ids: real(self, ids).float())


def control_messages_on_the_card() -> Any:
    """A vote that goes over NCCL makes the host wait for the device."""

    def total(self: world.World, *numbers: float) -> list[float]:
        if self.size == 1:
            return list(numbers)
        packed = torch.tensor(numbers, device=self.device)
        dist.all_reduce(packed)
        return [float(number) for number in packed.tolist()]

    return patch.object(world.World, "total", total)


def pageable_batches() -> Any:
    """Without pinned memory the host waits for every copy."""
    real = batches.packed
    return patch.object(batches, "packed", lambda *args, **options: real(*args, **{**options, "pinned": False}))


def item_in_the_loss() -> Any:
    """A look at the loss of every micro-batch waits for the device."""
    real = loss.translation_loss

    def looked_at(*args: Any) -> Any:
        sums = real(*args)
        assert sums.objective.item() == sums.objective.item()
        return sums

    return patch.object(step, "translation_loss", looked_at)


def labels_on_the_host() -> Any:
    """An operator takes tensors of one device."""
    real = PackedBatch.to

    def to(self: PackedBatch, device: torch.device) -> Batch:
        batch = real(self, device)
        return Batch(batch.source_BS, batch.source_padded, batch.target_BT, batch.labels_N.cpu(), batch.places_N)

    return patch.object(PackedBatch, "to", to)


def float64_in_the_loss() -> Any:
    """Exact sums that most cards compute at a thirty-second of their speed."""
    real = loss.hidden_states

    def hidden_states(*args: Any) -> Tensor:
        hidden = real(*args)
        return hidden * hidden.double().mean().sign().abs().to(hidden.dtype)

    return patch.object(loss, "hidden_states", hidden_states)


def places_as_a_list() -> Any:
    """An index from the host is copied to the card, and waited for, at every use."""

    def hidden_states(model: Any, batch: Batch) -> Tensor:
        hidden = model(batch.source_BS, batch.target_BT, source_padded=batch.source_padded)
        flat: Tensor = hidden.flatten(0, 1)
        return flat[list(range(len(batch.places_N)))] * 0 + flat.index_select(0, batch.places_N)

    return patch.object(loss, "hidden_states", hidden_states)


def causal_mask_for_flash() -> Any:
    """A mask where the kernel could work it out: no Flash attention."""
    real = torch.nn.functional.scaled_dot_product_attention

    def attention(q: Tensor, k: Tensor, v: Tensor, *, attn_mask: Any, dropout_p: float, is_causal: bool) -> Tensor:
        if is_causal:
            attn_mask = torch.full((q.shape[2], k.shape[2]), float("-inf"), dtype=q.dtype, device=q.device).triu(1)
        return real(q, k, v, attn_mask=attn_mask, dropout_p=dropout_p)

    return patch.object(torch.nn.functional, "scaled_dot_product_attention", attention)


def numbers_read_too_early() -> Any:
    """A step's results are read before the copy that brings them has arrived."""
    return patch.object(step, "wait_for", lambda instant: None)


def looks_at_every_position() -> Any:
    """Beam search that asks the card at every position whether a sentence is done."""
    return patch.dict(search.LOOK_EVERY, {"cuda": 1})


def nothing() -> Any:
    """To compare with."""
    return nullcontext()


def full_at_the_first_trial() -> Any:
    """The first allocation of half a megabyte fails: the logits of a micro-batch that is tried."""
    current().fail_allocation(above_bytes=500_000)
    return nullcontext()


def full_in_the_update() -> Any:
    """An allocation of the first update fails."""
    real = step.Stepper._update

    def update(self: Any, rate: float) -> Tensor:
        current().fail_allocation(above_bytes=100_000)
        return real(self, rate)

    return patch.object(step.Stepper, "_update", update)


def little_room() -> Any:
    """The card of the second process has less memory to spare than that of the first."""
    return patch.object(transformer, "largest_search_batch", lambda *_: (20, 3)[int(os.environ["RANK"])])


def small_products() -> Any:
    """A card's speed is told by products of 8,192 rows, which take a processor half a minute."""
    return patch.dict(examination.MATRIX_WIDTH, {"cuda": 256})


PATCHES = {
    function.__name__.replace("_", "-"): function
    for function in (
        *(float32_mask, control_messages_on_the_card, pageable_batches, item_in_the_loss, labels_on_the_host),
        *(float64_in_the_loss, places_as_a_list, causal_mask_for_flash, numbers_read_too_early),
        *(looks_at_every_position, nothing, full_at_the_first_trial, full_in_the_update),
        *(little_room, small_products),
    )
}

if __name__ == "__main__":
    _, name, *arguments = sys.argv
    sys.argv = ["tandem", *arguments]
    with PATCHES[name]():
        program()
