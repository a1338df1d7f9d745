"""A model plug-in whose second process is asked to stop in an evaluation, as by a notice of preemption."""

from __future__ import annotations

import os
import signal

from torch import Tensor

from tandem.model.transformer import Transformer, TransformerState
from tandem.process_signals import listen


class Signalled(Transformer):
    """A Transformer like any other, but for the first search."""

    def encode(self, source_BS: Tensor, *, padded: bool = True) -> TransformerState:
        if os.environ["RANK"] == "1" and listen().heard is None:
            os.kill(os.getpid(), signal.SIGUSR1)
            while listen().heard is None:
                pass
        return super().encode(source_BS, padded=padded)
