"""Sentence pairs as the model takes them: ids padded to rectangles, and what the host knows of their lengths.

A GPU works behind the host's back as long as nobody asks it a question. Where padding is, and how many labels there
are, is known before the ids leave the host, so it is worked out there: no step waits for the device to tell.

Shapes: B sentences, S source positions, T target positions, N labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tandem.corpus.tokenizer import PAD

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Sentence pairs on the device that works on them."""

    source_BS: Tensor
    """Sources, each ended by EOS."""
    source_padded: bool
    """Whether any source is shorter than the longest."""
    target_BT: Tensor
    """Targets as the decoder sees them: BOS first, without EOS."""
    labels_N: Tensor
    """The token that each target position has to predict, sentence by sentence, without padding."""
    places_N: Tensor
    """Where these stand among all B x T positions."""


@dataclass(frozen=True)
class PackedBatch:
    """The same on the host: all ids side by side, so that one copy takes them to the device."""

    ids: Tensor
    source_shape: tuple[int, int]
    source_padded: bool
    target_shape: tuple[int, int]

    @classmethod
    def pack(cls, source_BS: IntArray, target_BT: IntArray, *, pinned: bool = False) -> PackedBatch:
        """Pack padded ids; targets still have both BOS and EOS.

        Pinned memory is what a GPU fetches from by itself: without it the host waits for every copy.
        """
        inputs_BT, labels_BT = target_BT[:, :-1], target_BT[:, 1:]
        places_N = np.flatnonzero(labels_BT != PAD)
        parts = (source_BS.ravel(), inputs_BT.ravel(), labels_BT.ravel()[places_N], places_N)
        ids = torch.from_numpy(np.concatenate(parts))
        return cls(
            ids.pin_memory() if pinned else ids,
            (source_BS.shape[0], source_BS.shape[1]),
            bool((source_BS == PAD).any()),
            (inputs_BT.shape[0], inputs_BT.shape[1]),
        )

    def to(self, device: torch.device) -> Batch:
        """Copy it to a device; from pinned memory without waiting."""
        ids = self.ids.to(device, non_blocking=True)
        source_size, target_size = (rows * positions for rows, positions in (self.source_shape, self.target_shape))
        labels = (len(ids) - source_size - target_size) // 2
        source, target, labels_N, places_N = torch.split(ids, [source_size, target_size, labels, labels])
        return Batch(
            source.view(self.source_shape), self.source_padded, target.view(self.target_shape), labels_N, places_N
        )
