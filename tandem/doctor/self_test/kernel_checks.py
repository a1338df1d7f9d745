"""Checks of a small Transformer on the card against the CPU: losses, gradients, attention, translations."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tandem.cluster.exchange.exchange import NoExchange, Votes
from tandem.config import Config
from tandem.doctor.self_test.check_result import Outcome
from tandem.doctor.self_test.check_setup import Setup
from tandem.model.batch import PackedBatch
from tandem.model.layers import attend
from tandem.model.length_rules import length_penalty
from tandem.model.loss import exact_nll, translation_loss
from tandem.model.search import beam_search
from tandem.model.translation_model import TranslationModel
from tandem.training.train_state import PRECISIONS, TrainState
from tandem.vocabulary import BOS, EOS, PAD

CPU = torch.device("cpu")
VOCABULARY = 1003
"""Not a multiple of the tile, so that padding of the vocabulary takes part."""
SMALL = (
    *("model.d_model=128", "model.heads=2", "model.d_ff=256", "model.encoder_layers=2", "model.decoder_layers=2"),
    *("model.dropout=0.0", "model.attention_dropout=0.0", "model.activation_dropout=0.0"),
    *("model.max_length=32", "model.compile=off", "optimizer.label_smoothing=0.1", "train.seed=1"),
)
"""Heads of 64 values, as in most models: no attention kernel refuses them."""
SENTENCES, LONGEST = 12, 23
# Largest relative difference of the objective, and of the gradient as a vector, from the CPU's in float32. A rounding
# is off by 2^-24 in float32, 2^-11 in float16 and 2^-8 in bfloat16, and some dozens of them follow each other; sums
# of many differences of either sign cancel in the objective. On the rehearsal device, which rounds as a card does but
# adds up in the CPU's order, gradients are off by 3e-7, 0.009 and 0.025: other orders of sums may get somewhat more.
# A mask that is not heeded or a wrong scale changes the gradient by tens of percent.
TOLERANCES = {"float32": (1e-5, 1e-4), "float16": (2e-3, 0.03), "bfloat16": (1e-2, 0.1)}
# Scores are sums over tokens in float32; hypotheses that differ by less are equally good.
TIE = 1e-3
BEAM, ALPHA = 4, 0.6
# Queries with heads of 64 values; the mask hides the last keys.
HEAD_SHAPE, HIDDEN_KEYS = (2, 2, 32, 64), 5
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION}
CAPABILITY_FOR_FLASH = (8, 0)


def forward_backward(setup: Setup, precision: str) -> Outcome:
    """Loss and gradient of a small Transformer as on the CPU, with and without padding."""
    if not setup.can_compute(precision):
        return Outcome.not_applicable(f"{setup.card.name} has no {precision}")
    most, most_of_gradient = TOLERANCES[precision]
    figures: dict[str, float] = {}
    for kind, packed in (("padded", _batch(padded=True)), ("unpadded", _batch(padded=False))):
        expected, expected_gradient = _objective_gradient(packed, "float32", CPU)
        found, gradient = _objective_gradient(packed, precision, setup.device)
        figures[f"{kind}_objective_difference"] = abs(found / expected - 1)
        figures[f"{kind}_gradient_difference"] = float((gradient - expected_gradient).norm() / expected_gradient.norm())
    padded, padded_gradient, unpadded, unpadded_gradient = figures.values()
    return Outcome.of(
        # Each by itself, so that what is not a number fails.
        all(off <= limit for off, limit in zip(figures.values(), 2 * TOLERANCES[precision], strict=True)),
        f"objective off by {max(padded, unpadded):.1e} (at most {most:.0e}), gradient by "
        f"{max(padded_gradient, unpadded_gradient):.1e} (at most {most_of_gradient:.0e}) of the CPU's in float32",
        **figures,
    )


def _small(precision: str = "float32") -> Config:
    return Config.load("demo", [*SMALL, f"train.precision={precision}"])


def _batch(*, padded: bool) -> PackedBatch:
    """Random sentence pairs of many lengths, or of one."""
    random = np.random.default_rng(1)
    lengths = random.integers(1, LONGEST, size=(SENTENCES, 2)) if padded else np.full((SENTENCES, 2), LONGEST)
    source_BS = np.full((SENTENCES, lengths[:, 0].max() + 1), PAD)
    target_BT = np.full((SENTENCES, lengths[:, 1].max() + 2), PAD)
    for row, (source, target) in enumerate(lengths):
        source_BS[row, : source + 1] = [*random.integers(EOS + 1, VOCABULARY, source), EOS]
        target_BT[row, : target + 2] = [BOS, *random.integers(EOS + 1, VOCABULARY, target), EOS]
    return PackedBatch.pack(source_BS, target_BT)


def _objective_gradient(packed: PackedBatch, precision: str, device: torch.device) -> tuple[float, Tensor]:
    """A mean over target tokens, and its gradient as training steps get it, on the CPU."""
    config = _small(precision)
    state = TrainState.fresh(config, VOCABULARY, device)
    state.working.refresh()
    exchange, batch = NoExchange(state.flat_vectors(), device), packed.to(device)
    exchange.before_backward(1, first=True, last=True)
    tokens, scale = len(batch.labels_N), None if state.loss_scale is None else state.loss_scale.value
    sums = translation_loss(state.working.models[0], batch, config.optimizer.label_smoothing, 1 / tokens, scale)
    sums.scaled.backward()  # type: ignore[no-untyped-call]
    exchange.after_backward(1, Votes(full=0, stop=0, writing=0))
    gradient = state.flat.gradient if scale is None else state.flat.gradient / scale
    return float(sums.objective) / tokens, gradient.cpu()


def attention(setup: Setup) -> Outcome:
    """Flash without a mask, efficient with padding, where the card has them."""
    works, chosen, missing = {}, {}, []
    for precision in filter(setup.can_compute, PRECISIONS):
        # Flash takes no mask; where card and format do not allow it, efficient attention has to do.
        flash = precision != "float32" and setup.card.capability >= CAPABILITY_FOR_FLASH
        unmasked = "flash" if flash else "efficient"
        for kind, wish in (("without a mask", unmasked), ("causal", unmasked), ("with padding", "efficient")):
            name = f"{kind} in {precision}"
            works[name] = [backend for backend in BACKENDS if _works(setup, precision, kind, BACKENDS[backend])]
            chosen[name] = _chosen(setup, precision, kind)
            if wish not in works[name]:
                missing.append(f"{wish} attention {name}")
    auto = setup.config.train.precision
    told = "; ".join(f"{name}: {found}" for name, found in chosen.items() if name.endswith(auto))
    lacking = f"does not work: {', '.join(missing)}; " if missing else ""
    return Outcome.of(not missing, f"{lacking}chosen {told}", chosen=chosen, works=works)


def _attended(setup: Setup, precision: str, kind: str) -> Tensor:
    device, dtype, mask = setup.device, PRECISIONS[precision], None
    q, k, v = (torch.randn(HEAD_SHAPE, device=device, dtype=dtype, requires_grad=True) for _ in "qkv")
    if kind == "with padding":
        batch, _, length, _ = HEAD_SHAPE
        mask = torch.zeros(batch, 1, 1, length, device=device, dtype=dtype)
        mask[..., -HIDDEN_KEYS:] = float("-inf")
    return attend(q, k, v, mask=mask, causal=kind == "causal", rate=0.0)


def _works(setup: Setup, precision: str, kind: str, backend: SDPBackend) -> bool:
    """Whether attention can be computed, there and back, if nothing but this backend is allowed."""
    with warnings.catch_warnings(), sdpa_kernel([backend]):
        # PyTorch says at length why it would not.
        warnings.simplefilter("ignore")
        try:
            attended = _attended(setup, precision, kind)
            attended.sum().backward()  # type: ignore[no-untyped-call]
        except RuntimeError:
            return False
    return bool(attended.isfinite().all())


def _chosen(setup: Setup, precision: str, kind: str) -> str:
    """The backend that PyTorch takes by itself, by the name of its backward pass."""
    function = _attended(setup, precision, kind).grad_fn
    name = "" if function is None else function.name()
    known = ("Flash", "Efficient", "Cudnn")
    return next((backend.lower() for backend in known if f"{backend}Attention" in name), f"math or other ({name})")


def translations(setup: Setup) -> Outcome:
    """The CPU's translations in float32."""
    random = np.random.default_rng(2)
    sources = [random.integers(EOS + 1, VOCABULARY, length).tolist() for length in range(1, 1 + SENTENCES)]
    on_cpu, on_card = (TrainState.fresh(_small(), VOCABULARY, device).model for device in (CPU, setup.device))
    expected, found = (beam_search(model, sources, BEAM, ALPHA) for model in (on_cpu, on_card))
    differing = [each for each in zip(sources, expected, found, strict=True) if each[1] != each[2]]
    gaps = [abs(_score(on_cpu, source, here) - _score(on_cpu, source, there)) for source, here, there in differing]
    worst = max(gaps, default=0.0)
    return Outcome.of(
        worst <= TIE,
        f"{len(sources) - len(differing)} of {len(sources)} translations are the same"
        + (f"; the others' scores differ by {worst:.1e} at most" if differing else ""),
        sentences=len(sources),
        differing=len(differing),
        largest_score_difference=worst,
    )


def _score(model: TranslationModel, source: list[int], translation: list[int]) -> float:
    """The score that the search ranks a translation by."""
    packed = PackedBatch.pack(np.array([[*source, EOS]]), np.array([[BOS, *translation, EOS]]))
    return -float(exact_nll(model, packed.to(CPU))) / length_penalty(len(translation) + 1, ALPHA)
