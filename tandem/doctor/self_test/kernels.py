"""A small Transformer on the card against the CPU: losses, gradients, attention, translations."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tandem.cluster.exchange import Alone, Votes
from tandem.config import Config, load
from tandem.corpus.tokenizer import BOS, EOS, PAD
from tandem.doctor.self_test.card import can_compute
from tandem.doctor.self_test.result import Outcome
from tandem.doctor.self_test.setup import Setup
from tandem.model.batch import PackedBatch
from tandem.model.layers import attend
from tandem.model.loss import TranslationLoss, exact_nll
from tandem.model.search import beam_search, length_penalty
from tandem.model.transformer import Transformer
from tandem.train.state import PRECISIONS, TrainState

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
    """Objective and gradient of a padded and of an unpadded batch, beside the CPU's in float32."""
    if not can_compute(setup, precision):
        return Outcome.not_applicable(f"{setup.card.name} has no {precision}")
    figures: dict[str, float] = {}
    passed = True
    for kind, packed in (("padded", _batch(padded=True)), ("unpadded", _batch(padded=False))):
        expected, expected_gradient = _objective_gradient(packed, "float32", CPU)
        found, gradient = _objective_gradient(packed, precision, setup.device)
        off = abs(found / expected - 1)
        gradient_off = float((gradient - expected_gradient).norm() / expected_gradient.norm())
        figures |= {f"{kind}_objective_difference": off, f"{kind}_gradient_difference": gradient_off}
        most, most_of_gradient = TOLERANCES[precision]
        # Written so that what is not a number fails.
        passed = passed and off <= most and gradient_off <= most_of_gradient
    objective, gradient_worst = (
        max(value for name, value in figures.items() if name.endswith(f"{what}_difference"))
        for what in ("objective", "gradient")
    )
    return Outcome.of(
        passed,
        f"objective off by {objective:.1e} (at most {TOLERANCES[precision][0]:.0e}), gradient by {gradient_worst:.1e} "
        f"(at most {TOLERANCES[precision][1]:.0e}) of the CPU's in float32",
        **figures,
    )


def _small(precision: str = "float32") -> Config:
    return load("demo", [*SMALL, f"train.precision={precision}"])


def _batch(*, padded: bool) -> PackedBatch:
    """Made-up sentence pairs of one length, or of many."""
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
    exchange, batch = Alone(state.trained(), device), packed.to(device)
    exchange.before_backward(1, first=True, last=True)
    tokens, scale = len(batch.labels_N), None if state.loss_scale is None else state.loss_scale.value
    loss = TranslationLoss(state.working.model, config.optimizer.label_smoothing)
    sums = loss(batch, 1 / tokens, scale)
    sums.scaled.backward()
    exchange.after_backward(1, Votes(full=0, stop=0))
    gradient = state.flat.gradient if scale is None else state.flat.gradient / scale
    return float(sums.objective) / tokens, gradient.cpu()


def attention(setup: Setup) -> Outcome:
    """Which kernels take attention without a mask, with a causal one, and with padding; and which one is chosen."""
    works, chosen, missing = {}, {}, []
    for precision in (name for name in PRECISIONS if can_compute(setup, name)):
        wished = _wished_backends(setup, precision)
        for kind, wish in wished.items():
            name = f"{kind} in {precision}"
            works[name] = [backend for backend in BACKENDS if _works(setup, precision, kind, BACKENDS[backend])]
            chosen[name] = _chosen(setup, precision, kind)
            if wish not in works[name]:
                missing.append(f"{wish} attention {name}")
    auto = setup.config.train.precision
    told = "; ".join(f"{name}: {found}" for name, found in chosen.items() if name.endswith(auto))
    lacking = f"does not work: {', '.join(missing)}; " if missing else ""
    return Outcome.of(not missing, f"{lacking}chosen {told}", chosen=chosen, works=works)


def _wished_backends(setup: Setup, precision: str) -> dict[str, str]:
    """What should take each kind: flash where the card and the format allow it; it takes no mask."""
    flash = precision != "float32" and setup.card.capability >= CAPABILITY_FOR_FLASH
    unmasked = "flash" if flash else "efficient"
    return {"without a mask": unmasked, "causal": unmasked, "with padding": "efficient"}


def _attended(setup: Setup, precision: str, kind: str) -> Tensor:
    heads = [
        torch.randn(HEAD_SHAPE, device=setup.device, dtype=PRECISIONS[precision], requires_grad=True) for _ in "qkv"
    ]
    mask = None
    if kind == "with padding":
        batch, _, length, _ = HEAD_SHAPE
        mask = torch.zeros(batch, 1, 1, length, device=setup.device, dtype=PRECISIONS[precision])
        mask[..., -HIDDEN_KEYS:] = float("-inf")
    return attend(heads[0], heads[1], heads[2], mask=mask, causal=kind == "causal", rate=0.0)


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
    """Beam search in float32 on the card and on the CPU."""
    random = np.random.default_rng(2)
    sources = [random.integers(EOS + 1, VOCABULARY, length).tolist() for length in range(1, 1 + SENTENCES)]
    model = TrainState.fresh(_small(), VOCABULARY, CPU).model.eval()
    here = beam_search(model, sources, BEAM, ALPHA)
    there = beam_search(TrainState.fresh(_small(), VOCABULARY, setup.device).model.eval(), sources, BEAM, ALPHA)
    differing = [place for place, pair in enumerate(zip(here, there, strict=True)) if pair[0] != pair[1]]
    gaps = list(_score_gaps(model, [(sources[place], here[place], there[place]) for place in differing]))
    worst = max(gaps, default=0.0)
    return Outcome.of(
        worst <= TIE,
        f"{len(sources) - len(differing)} of {len(sources)} translations are the same"
        + (f"; the others' scores differ by {worst:.1e} at most" if differing else ""),
        sentences=len(sources),
        differing=len(differing),
        largest_score_difference=worst,
    )


def _score_gaps(model: Transformer, pairs: Sequence[tuple[list[int], list[int], list[int]]]) -> Iterator[float]:
    """By how much two translations of a source differ in the score that the search ranks them by."""
    for source, first, second in pairs:
        yield abs(_score(model, source, first) - _score(model, source, second))


def _score(model: Transformer, source: list[int], translation: list[int]) -> float:
    packed = PackedBatch.pack(np.array([[*source, EOS]]), np.array([[BOS, *translation, EOS]]))
    return -float(exact_nll(model, packed.to(CPU))) / length_penalty(len(translation) + 1, ALPHA)
