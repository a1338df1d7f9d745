"""The chunked loss against PyTorch's dense one: value, gradients, padding and number formats."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tandem.model import loss as loss_module
from tandem.model.flat_weights import FlatWeights, WorkingCopy
from tandem.model.loss import CPU_CHUNK_ROWS, ChunkedCrossEntropy, exact_nll, translation_loss
from tandem.vocabulary import BOS, EOS, PAD
from tests.model.models import batch_of, random_ids, random_model

SMOOTHINGS = [0.0, 0.1, 0.9]
# Fewer rows than a chunk, one chunk, one more row, and several chunks with a rest.
ROWS = [1, 60, CPU_CHUNK_ROWS, CPU_CHUNK_ROWS + 1, 2 * CPU_CHUNK_ROWS + 100]


def problem(rows: int, vocabulary: int = 37, width: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(rows)
    hidden_ND = torch.randn(rows, width, generator=random, dtype=torch.float64)
    weight_VD = 0.7 * torch.randn(vocabulary, width, generator=random, dtype=torch.float64)
    return hidden_ND.requires_grad_(), weight_VD.requires_grad_(), torch.randint(vocabulary, (rows,), generator=random)


def dense(hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, smoothing: float) -> Tensor:
    return F.cross_entropy(hidden_ND @ weight_VD.T, targets_N, label_smoothing=smoothing, reduction="sum")


def chunked(hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The objective that backward goes through, and the plain likelihood."""
    projection_VD = weight_VD.detach().to(hidden_ND.dtype)
    scaled, objective, nll = ChunkedCrossEntropy.apply(
        hidden_ND, weight_VD, projection_VD, targets_N, smoothing, len(weight_VD), 1.0, None
    )
    assert torch.equal(scaled, objective)
    return scaled, nll


# --- against the dense loss


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("rows", ROWS)
def test_value_and_gradients_in_double_precision(rows: int, smoothing: float) -> None:
    hidden_ND, weight_VD, targets_N = problem(rows)
    objective, nll = chunked(hidden_ND, weight_VD, targets_N, smoothing)
    expected = dense(hidden_ND, weight_VD, targets_N, smoothing)
    # Logarithms are taken in float32 whatever the inputs are.
    torch.testing.assert_close(objective, expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(nll, dense(hidden_ND, weight_VD, targets_N, 0.0), rtol=1e-6, atol=0)
    # A factor other than one, as when the sum is divided by the tokens of the step.
    ours = torch.autograd.grad(objective / 7, (hidden_ND, weight_VD))
    theirs = torch.autograd.grad(expected / 7, (hidden_ND, weight_VD))
    for mine, reference in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_value_and_gradients_in_single_precision(smoothing: float) -> None:
    hidden_ND, weight_VD, targets_N = problem(700)
    exact = dense(hidden_ND, weight_VD, targets_N, smoothing)
    singles = hidden, weight = [x.detach().float().requires_grad_() for x in (hidden_ND, weight_VD)]
    objective, _ = chunked(hidden, weight, targets_N, smoothing)
    assert objective.dtype == torch.float32
    torch.testing.assert_close(objective.double(), exact, rtol=1e-5, atol=0)
    for mine, reference in zip(
        torch.autograd.grad(objective, singles), torch.autograd.grad(exact, (hidden_ND, weight_VD)), strict=True
    ):
        torch.testing.assert_close(mine.double(), reference, rtol=1e-4, atol=1e-4)


def test_gradients_against_differences() -> None:
    """The gradient is written by hand, so it is also held against the slope of the value itself."""
    hidden_ND, weight_VD, targets_N = problem(5, vocabulary=6, width=3)
    objective, _ = chunked(hidden_ND, weight_VD, targets_N, 0.3)
    for x, grad in zip((hidden_ND, weight_VD), torch.autograd.grad(objective, (hidden_ND, weight_VD)), strict=True):
        for index in range(x.numel()):
            values = []
            for sign in (1, -1):
                with torch.no_grad():
                    x.view(-1)[index] += sign * 1e-2
                    values.append(chunked(hidden_ND, weight_VD, targets_N, 0.3)[0].item())
                    x.view(-1)[index] -= sign * 1e-2
            assert (values[0] - values[1]) / 2e-2 == pytest.approx(grad.view(-1)[index].item(), abs=1e-3)


def test_the_size_of_the_chunks_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden_ND, weight_VD, targets_N = problem(50)
    results = []
    for rows in (1, 7, 50, 1000):
        monkeypatch.setattr(loss_module, "CPU_CHUNK_ROWS", rows)
        objective, nll = chunked(hidden_ND, weight_VD, targets_N, 0.1)
        results.append((objective, nll, *torch.autograd.grad(objective, (hidden_ND, weight_VD))))
    for other in results[1:]:
        for mine, reference in zip(other, results[0], strict=True):
            torch.testing.assert_close(mine, reference, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_half_precision_is_close(smoothing: float) -> None:
    hidden_ND, weight_VD, targets_N = problem(1500)
    exact = dense(hidden_ND, weight_VD, targets_N, smoothing)
    hidden = hidden_ND.detach().bfloat16().requires_grad_()
    weight = weight_VD.detach().float().requires_grad_()
    objective, nll = chunked(hidden, weight, targets_N, smoothing)
    assert objective.dtype == nll.dtype == torch.float32
    assert objective.item() == pytest.approx(exact.item(), rel=5e-3)
    grads = torch.autograd.grad(objective, (hidden, weight))
    assert [grad.dtype for grad in grads] == [torch.bfloat16, torch.float32]
    for mine, reference in zip(grads, torch.autograd.grad(exact, (hidden_ND, weight_VD)), strict=True):
        error = (mine.double() - reference).norm() / reference.norm()
        assert float(error) < 0.02


def test_a_probability_of_zero_costs_much_but_not_infinitely() -> None:
    hidden_ND = torch.tensor([[1000.0, 0.0]], requires_grad=True)
    weight_VD = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], requires_grad=True)
    objective, nll = chunked(hidden_ND, weight_VD, torch.tensor([1]), 0.1)
    assert 60 < float(nll) < 80
    assert bool(objective.isfinite())
    for grad in torch.autograd.grad(objective, (hidden_ND, weight_VD)):
        assert bool(grad.isfinite().all())


def test_the_plain_likelihood_is_only_for_reading() -> None:
    objective, nll = chunked(*problem(5), 0.1)
    assert objective.requires_grad
    assert not nll.requires_grad


# --- with the model


def a_batch(seed: int = 0, lengths: tuple[int, ...] = (4, 2, 6)) -> tuple[Tensor, Tensor]:
    """Sources and targets of several lengths, padded."""
    source_BS = random_ids(len(lengths), 8, seed=seed)
    target_BT = torch.full((len(lengths), max(lengths) + 2), PAD)
    for row, length in enumerate(lengths):
        source_BS[row, 8 - row :] = PAD
        ids = random_ids(length, seed=seed + row + 1).tolist()
        target_BT[row, : length + 2] = torch.tensor([BOS, *ids, EOS])
    return source_BS, target_BT


def test_loss_of_the_model_is_the_dense_loss_over_real_labels_and_real_pieces() -> None:
    model = random_model(21)  # the vocabulary's matrix has 24 rows
    source_BS, target_BT = a_batch()
    objective, _, nll = translation_loss(model, batch_of(source_BS, target_BT), 0.1)
    ours = torch.autograd.grad(objective, list(model.parameters()))
    logits_BTV = model(source_BS, target_BT[:, :-1]) @ model.embedding.weight[:21].T
    logits, labels = logits_BTV.flatten(0, 1), target_BT[:, 1:].flatten()
    expected = F.cross_entropy(logits, labels, label_smoothing=0.1, reduction="sum", ignore_index=PAD)
    theirs = torch.autograd.grad(expected, list(model.parameters()), retain_graph=True)
    torch.testing.assert_close(objective, expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(
        nll, F.cross_entropy(logits, labels, reduction="sum", ignore_index=PAD), rtol=1e-6, atol=0
    )
    for mine, reference in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-8, atol=1e-10)
    embedding_grad = dict(zip((name for name, _ in model.named_parameters()), ours, strict=True))["embedding.weight"]
    assert float(embedding_grad[21:].abs().sum()) == 0, "rows that only pad the vocabulary learn nothing"


def test_padding_costs_nothing() -> None:
    model = random_model()
    source_BS, target_BT = a_batch()
    plain = translation_loss(model, batch_of(source_BS, target_BT), 0.1)
    wider = batch_of(F.pad(source_BS, (0, 3), value=PAD), F.pad(target_BT, (0, 4), value=PAD))
    padded = translation_loss(model, wider, 0.1)
    for mine, reference in zip(padded, plain, strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-7, atol=0)


def test_the_loss_of_two_batches_is_the_sum_of_their_losses() -> None:
    """What rule 1 rests on: micro-batches add up, however the sentences are dealt to them."""
    model = random_model()
    source_BS, target_BT = a_batch()
    whole, _, whole_nll = translation_loss(model, batch_of(source_BS, target_BT), 0.1)
    whole_grads = torch.autograd.grad(whole, list(model.parameters()))
    halves = [batch_of(source_BS[rows], target_BT[rows]) for rows in (slice(0, 1), slice(1, 3))]
    parts = [translation_loss(model, half, 0.1) for half in halves]
    total = parts[0][0] + parts[1][0]
    torch.testing.assert_close(total, whole, rtol=1e-7, atol=0)
    torch.testing.assert_close(parts[0].nll + parts[1].nll, whole_nll, rtol=1e-7, atol=0)
    for mine, reference in zip(torch.autograd.grad(total, list(model.parameters())), whole_grads, strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-9, atol=1e-11)


def test_exact_likelihood_agrees_and_counts_the_tokens() -> None:
    model = random_model().float()
    source_BS, target_BT = a_batch()
    batch = batch_of(source_BS, target_BT)
    nll = float(exact_nll(model, batch))
    assert len(batch.labels_N) == (4 + 1) + (2 + 1) + (6 + 1)
    assert nll == pytest.approx(float(translation_loss(model, batch, 0.1).nll), rel=1e-5)
    # One token at a time, by the definition.
    by_hand = 0.0
    for row in range(3):
        logits_TV = model(source_BS, target_BT[:, :-1])[row] @ model.output_weight()[: model.vocab_size].T
        for position, label in enumerate(target_BT[row, 1:].tolist()):
            if label != PAD:
                by_hand -= float(logits_TV[position].log_softmax(-1)[label].detach())
    assert nll == pytest.approx(by_hand, rel=1e-5)


def test_exact_likelihood_is_in_full_precision_even_if_the_model_is_not() -> None:
    model = random_model(spread=0.0).float()
    batch, flat = batch_of(*a_batch()), FlatWeights(model)
    values = {}
    for dtype in (torch.float32, torch.bfloat16):
        working = WorkingCopy(model, flat, dtype)
        working.refresh()
        values[dtype] = float(exact_nll(working.models[0].eval(), batch))
    assert values[torch.bfloat16] == pytest.approx(values[torch.float32], rel=5e-3)
    assert values[torch.bfloat16] != values[torch.float32]


def test_rows_that_only_pad_the_vocabulary_change_nothing() -> None:
    hidden_ND, weight_VD, targets_N = problem(600)
    # Rows that would win every softmax, were they words.
    padded_VD = torch.cat([weight_VD.detach(), torch.full((3, weight_VD.shape[1]), 50.0)]).requires_grad_()
    expected = chunked(hidden_ND, weight_VD, targets_N, 0.1)
    sums = ChunkedCrossEntropy.apply(
        hidden_ND, padded_VD, padded_VD.detach(), targets_N, 0.1, len(weight_VD), 1.0, None
    )
    torch.testing.assert_close((sums[0], sums[2]), expected)
    theirs = torch.autograd.grad(expected[0], (hidden_ND, weight_VD))
    ours = torch.autograd.grad(sums[0], (hidden_ND, padded_VD))
    torch.testing.assert_close(ours[0], theirs[0])
    torch.testing.assert_close(ours[1][: len(weight_VD)], theirs[1])
    assert not ours[1][len(weight_VD) :].any()


def test_an_unlikely_target_in_float16_keeps_its_loss() -> None:
    """exp(-20) is below the smallest float16 number."""
    hidden = torch.tensor([[1.0]], dtype=torch.float16)
    weight = torch.tensor([[20.0], [0.0]])
    _, nll = chunked(hidden, weight, torch.tensor([1]), 0.0)
    assert float(nll) == pytest.approx(20.0, rel=1e-3)
