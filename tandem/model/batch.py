"""Batches of sentence pairs: ids padded to rectangles, and where the labels are.

Whatever depends on lengths is worked out on the host, so that no step has to wait for a GPU to tell.

Shapes: B sentences, S source positions, T target positions, N labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tandem.vocabulary import PAD

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Sentence pairs on the device that computes."""

    source_BS: Tensor
    """Sources, each ended by EOS."""
    source_padded: bool
    """Whether any source is shorter than the longest."""
    target_BT: Tensor
    """Targets as the decoder sees them: BOS first, without EOS."""
    labels_N: Tensor
    """The tokens to predict, sentence by sentence, without padding."""
    places_N: Tensor
    """Where these are among all B x T positions."""


@dataclass(frozen=True)
class PackedBatch:
    """The same on the host: all ids side by side, so that one copy takes them to the device."""

    ids: Tensor
    source_shape: tuple[int, int]
    source_padded: bool
    target_shape: tuple[int, int]

    @classmethod
    def pack(cls, source_BS: IntArray, target_BT: IntArray, *, pinned: bool = False) -> PackedBatch:
        """Pack padded ids; targets still have both BOS and EOS. Without pinned memory the host waits for every copy."""
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
