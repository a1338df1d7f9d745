"""COMET's estimator: a number for a translation from the encoder's view of source, translation and reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from tandem.comet.comet_folder import CometFolder, EstimatorSettings
from tandem.comet.xlm_roberta import PAD, XlmrEncoder, encoder_weights
from tandem.errors import TandemError

# What the estimator is given of each sentence pair: translation, reference, and products and distances of both pairs.
FEATURES = 6
_ENCODER, _MIX = "encoder.model.", "layerwise_attention."


class CometEstimator(nn.Module):
    """A whole COMET model."""

    def __init__(self, folder: CometFolder) -> None:
        super().__init__()
        settings, width = folder.estimator, folder.encoder.hidden_size
        self.encoder = XlmrEncoder(folder.encoder)
        self.mix = LayerMix(settings, folder.encoder.num_hidden_layers + 1)
        self.pool = settings.pool
        self.ff = feed_forward(settings, FEATURES * width)

    @classmethod
    def load(cls, folder: CometFolder) -> CometEstimator:
        """The model with its weights, ready to score."""
        try:
            # First, so that settings with more layers than there are weights are not built.
            weights = {name: weight.float() for name, weight in _our_weights(folder).items()}
            # Without memory for weights that are replaced at once.
            with torch.device("meta"):
                model = cls(folder)
            model.load_state_dict(weights, assign=True)
        except KeyError as error:
            raise TandemError(f"{folder.path}: the checkpoint has no weights {error}; copy it again") from error
        except (RuntimeError, ValueError, AssertionError) as error:
            why = " ".join(str(error).split())
            raise TandemError(f"{folder.path}: the weights do not fit the settings ({why}); copy all again") from error
        return model.eval()

    def forward(self, source_BS: Tensor, translation_BT: Tensor, reference_BR: Tensor) -> Tensor:
        """A score for each row."""
        source, translation, reference = map(self.embed, (source_BS, translation_BT, reference_BR))
        pairs = [(translation * other, (translation - other).abs()) for other in (reference, source)]
        features = torch.cat([translation, reference, *pairs[0], *pairs[1]], dim=1)
        scores: Tensor = self.ff(features)
        return scores.view(-1)

    def embed(self, ids_BS: Tensor) -> Tensor:
        """A vector for each sentence."""
        there_BS1 = (ids_BS != PAD).unsqueeze(-1)
        hidden: Tensor = self.mix(self.encoder(ids_BS), there_BS1)
        if self.pool == "cls":
            return hidden[:, 0]
        if self.pool == "max":
            return hidden.masked_fill(~there_BS1, -torch.inf).amax(1)
        return hidden.masked_fill(~there_BS1, 0.0).sum(1) / there_BS1.sum(1)


class LayerMix(nn.Module):
    """One layer of the encoder, or the weighted mean of all."""

    def __init__(self, settings: EstimatorSettings, layers: int) -> None:
        super().__init__()
        self._layer = None if isinstance(settings.layer, str) else settings.layer
        if self._layer is not None and not 0 <= self._layer < layers:
            raise ValueError(f"there is no layer {self._layer}")
        self._normalise = settings.layer_norm
        self._sparse = settings.layer_transformation == "sparsemax"
        if self._layer is None:
            self.weights, self.gamma = nn.Parameter(torch.zeros(layers)), nn.Parameter(torch.ones(1))

    def forward(self, layers: Sequence[Tensor], there_BS1: Tensor) -> Tensor:
        if self._layer is not None:
            return layers[self._layer]
        weights = sparsemax(self.weights) if self._sparse else self.weights.softmax(0)
        shown = [_normalised(layer, there_BS1) for layer in layers] if self._normalise else layers
        mixed: Tensor = self.gamma * torch.einsum("l,lbsd->bsd", weights, torch.stack(list(shown)))
        return mixed


def _normalised(hidden: Tensor, there_BS1: Tensor) -> Tensor:
    """Hidden states with the mean and the variance of each whole sentence taken out."""
    count = there_BS1.sum((1, 2), keepdim=True) * hidden.shape[2]
    mean = (hidden * there_BS1).sum((1, 2), keepdim=True) / count
    variance = (((hidden - mean) * there_BS1) ** 2).sum((1, 2), keepdim=True) / count
    return (hidden - mean) / (variance + 1e-12).sqrt()


def sparsemax(values: Tensor) -> Tensor:
    """The point of the probability simplex that is nearest to a vector: a softmax that has zeros."""
    descending = values.sort(descending=True).values
    sums = descending.cumsum(0) - 1
    counts = torch.arange(1, len(values) + 1, device=values.device)
    kept = int((counts * descending > sums).sum())
    return (values - sums[kept - 1] / kept).clamp(min=0)


def feed_forward(settings: EstimatorSettings, width: int) -> nn.Sequential:
    """The layers from the features to the score, in the places that COMET's checkpoints number."""
    parts: list[nn.Module] = []
    for before, after in pairwise([width, *settings.hidden_sizes]):
        # The third of each is dropout, which is never on here.
        parts += [nn.Linear(before, after), getattr(nn, settings.activations.title())(), nn.Identity()]
    parts.append(nn.Linear(settings.hidden_sizes[-1], 1))
    if settings.final_activation is not None:
        parts.append(getattr(nn, settings.final_activation.title())())
    return nn.Sequential(*parts)


def _our_weights(folder: CometFolder) -> dict[str, Tensor]:
    """The weights of the whole model under our names."""
    theirs, settings = folder.weights, folder.encoder
    encoder = encoder_weights(_below(_ENCODER, theirs), settings)
    ours = {f"encoder.{name}": weight for name, weight in encoder.items()}
    ours |= {f"ff.{name}": weight for name, weight in _below("estimator.ff.", theirs).items()}
    if folder.estimator.layer == "mix":
        count = settings.num_hidden_layers + 1
        parts = [theirs[f"{_MIX}scalar_parameters.{number}"] for number in range(count)]
        ours |= {"mix.weights": torch.cat(parts), "mix.gamma": theirs[f"{_MIX}gamma"]}
    return ours


def _below(prefix: str, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}
