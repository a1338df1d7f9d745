"""Exponential moving average (EMA) of the weights over the steps of a training.

Steps go on with the weights themselves; their average, in which the noise of single steps cancels out, is what is
evaluated and used.
"""

from __future__ import annotations

import copy

from tandem.model.flat_weights import FlatWeights
from tandem.model.translation_model import TranslationModel

# Early weights are soon worth nothing: until `decay` takes over, the average follows those of the last tenth of all
# steps or so. As a function of the step it needs no state.
SHORTEST_MEMORY = 10


class WeightAverage:
    """The average of all weights as one vector, and the model that has it for its weights."""

    def __init__(self, model: TranslationModel, flat: FlatWeights, decay: float) -> None:
        self._flat, self._decay = flat, decay
        self.vector = flat.vector.detach().clone()
        self.model = copy.deepcopy(model).eval()
        for name, view in flat.named(self.vector).items():
            self.model.get_parameter(name).data = view

    def update(self, step: int, steps: int = 1) -> None:
        """Take up the weights as they are after a step, for this one and those before it, `steps` together."""
        # The same bits on any number of threads, because every value is rounded by itself.
        self.vector.lerp_(self._flat.vector.detach(), 1.0 - self.decay_at(step) ** steps)

    def decay_at(self, step: int) -> float:
        """The share of the average that outlives a step."""
        return min(self._decay, step / (step + SHORTEST_MEMORY))
