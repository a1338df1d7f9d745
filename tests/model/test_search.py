"""Beam search against enumeration and against a loop without a cache; sentences do not know their batch."""

from __future__ import annotations

import copy
import itertools
import math
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tandem.config import SearchConfig
from tandem.model import length_rules
from tandem.model import search as search_module
from tandem.model.length_rules import length_limit, length_penalty
from tandem.model.search import translate_ids
from tandem.model.transformer import Transformer
from tandem.vocabulary import BOS, EOS, PAD, UNK
from tests.model.models import padded, random_ids, random_model, search_padded

SENTENCE_MARKS = {PAD, BOS, EOS}
VARIED_SOURCES = [[4], [4, 5], [7, 6, 5], [5, 4, 6, 7], [5, 5, 4, 4, 7, 6], [4, 6, 7, 5, 4, 6, 7], [6] * 7, [7, 4, 4]]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Translations of at most one step more than their source has pieces."""
    monkeypatch.setattr(length_rules, "EXTRA_LENGTH", 1)


@torch.no_grad()
def log_probabilities(model: Transformer, source: list[int], targets_BT: Tensor) -> Tensor:
    """For each position of BOS and the targets, the log-probabilities of what follows, by teacher forcing."""
    source_BS = torch.tensor([source]).expand(len(targets_BT), -1)
    hidden_BTD: Tensor = model(source_BS, F.pad(targets_BT, (1, 0), value=BOS))
    return (hidden_BTD @ model.output_weight()[: model.vocab_size].T).log_softmax(-1)


def best_by_enumeration(model: Transformer, source: list[int], limit: int, alpha: float) -> list[int]:
    """Of all translations that end within the limit, EOS included, the one with the best score."""
    pieces = [piece for piece in range(model.vocab_size) if piece not in SENTENCE_MARKS]
    best_score, best = -math.inf, []
    for length in range(limit):
        all_BT = torch.tensor(list(itertools.product(pieces, repeat=length)), dtype=torch.int64)
        labels_BT1 = F.pad(all_BT, (0, 1), value=EOS).unsqueeze(2)
        totals_B = log_probabilities(model, source, all_BT).gather(2, labels_BT1).sum((1, 2))
        score = float(totals_B.max()) / ((5 + length + 1) / 6) ** alpha
        if score > best_score:
            best_score, best = score, all_BT[totals_B.argmax()].tolist()
    return best


def constant_model(probabilities: dict[int, float], vocab_size: int = 8, **settings: float) -> Transformer:
    """A model that gives every next piece the same probability at every position; what is not named is unlikely."""
    model = random_model(vocab_size, **settings)
    with torch.no_grad():
        model.decoder_norm.weight.zero_()
        model.decoder_norm.bias.zero_()[0] = 1
        model.embedding.weight[:, 0] = -50
        for piece, probability in probabilities.items():
            model.embedding.weight[piece, 0] = math.log(probability)
    return model


# --- exactness

SHORT_SOURCES = [[7, 6, 5], [4, 4, 4], [5, 4, 6], [6, 7], [4, 5], [4], [6], [UNK]]


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0, 4.0])
def test_a_wide_beam_finds_what_enumeration_finds(half_trained: Transformer, alpha: float) -> None:
    sources = [[*ids, EOS] for ids in SHORT_SOURCES]
    # Five pieces can go on, so 625 hypotheses are all that there are after four steps of at most five.
    found = search_padded(half_trained, padded(sources), beam=625, alpha=alpha)
    # A source has a piece and EOS less than its translation may take steps.
    assert found == [best_by_enumeration(half_trained, source, len(source) + 1, alpha) for source in sources]
    # It would mean little if all were alike.
    assert len({len(ids) for ids in found}) > 1
    assert len({tuple(ids) for ids in found}) > 3


@pytest.mark.usefixtures("short")
def test_a_stronger_length_penalty_never_makes_the_best_translation_shorter(half_trained: Transformer) -> None:
    source_BS = padded([[*ids, EOS] for ids in SHORT_SOURCES])
    lengths = [[len(ids) for ids in search_padded(half_trained, source_BS, 625, alpha)] for alpha in (0.0, 1.0, 4.0)]
    for of_a_source in zip(*lengths, strict=True):
        assert list(of_a_source) == sorted(of_a_source)
    assert sum(lengths[0]) < sum(lengths[-1])


def test_a_wider_beam_finds_something_else(half_trained: Transformer) -> None:
    """Or the tests with several hypotheses would not tell them apart."""
    source_BS = padded([[*ids, EOS] for ids in VARIED_SOURCES])
    assert search_padded(half_trained, source_BS, 4, 0.6) != search_padded(half_trained, source_BS, 1, 0.6)


@pytest.mark.parametrize(
    ("ending", "going_on", "alpha", "expected_length"),
    [
        # Without a penalty every further piece only costs; but a translation has one piece at least.
        (0.3, 0.7, 0.0, 1),
        # (log 0.3 + n log 0.7) / ((6 + n) / 6) is -1.338, -1.438, -1.516 for n = 1, 2, 3 and goes on to fall.
        (0.3, 0.7, 1.0, 1),
        # log 0.1 = -2.303; n log 0.9 adds -0.105 a piece: -2.303, -2.064, -1.885, ... up to the limit.
        (0.1, 0.9, 1.0, 10),
        (0.1, 0.9, 0.0, 1),
    ],
)
def test_the_length_penalty_decides(
    monkeypatch: pytest.MonkeyPatch, ending: float, going_on: float, alpha: float, expected_length: int
) -> None:
    monkeypatch.setattr(length_rules, "EXTRA_LENGTH", 8)
    model = constant_model({EOS: ending, 5: going_on})
    found = search_padded(model, torch.tensor([[6, 7, EOS]]), beam=2, alpha=alpha)
    assert found == [[5] * expected_length]


@pytest.mark.parametrize(
    ("length", "alpha", "expected"),
    [(1, 0.6, 1.0), (7, 1.0, 2.0), (13, 0.5, 3**0.5), (40, 0.0, 1.0), (25, 0.6, 5**0.6)],
)
def test_length_penalty_by_hand(length: int, alpha: float, expected: float) -> None:
    assert length_penalty(length, alpha) == pytest.approx(expected, rel=1e-12)


# --- one hypothesis


def follow_the_best(model: Transformer, source: list[int], limit: int, alpha: float) -> list[int]:
    """Beam search with one hypothesis as a plain loop, without a cache.

    The path goes on with the best piece that is not EOS; each ending on the way that is among the two best
    choices counts, and the ending with the best score wins.
    """
    path: list[int] = []
    path_score, best_score, best = 0.0, -math.inf, []
    for length in range(1, limit + 1):
        next_V = log_probabilities(model, source, torch.tensor([path], dtype=torch.int64))[0, -1]
        next_V[[PAD, BOS]] = -math.inf
        if length == limit:
            next_V[[piece for piece in range(model.vocab_size) if piece != EOS]] = -math.inf
        first, second = next_V.topk(2).indices.tolist()
        if EOS in (first, second):
            ended = (path_score + float(next_V[EOS])) / ((5 + length) / 6) ** alpha
            if ended > best_score:
                best_score, best = ended, list(path)
        path.append(second if first == EOS else first)
        path_score += float(next_V[path[-1]])
    return best


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_one_hypothesis_is_a_loop_without_a_cache(
    monkeypatch: pytest.MonkeyPatch, half_trained: Transformer, alpha: float
) -> None:
    monkeypatch.setattr(length_rules, "EXTRA_LENGTH", 6)
    sources = [[*ids, EOS] for ids in VARIED_SOURCES]
    found = search_padded(half_trained, padded(sources), beam=1, alpha=alpha)
    assert found == [follow_the_best(half_trained, source, len(source) + 6, alpha) for source in sources]


def test_one_hypothesis_takes_the_best_piece_each_time_where_only_the_limit_ends_it(
    half_trained: Transformer,
) -> None:
    model = copy.deepcopy(half_trained)
    with torch.no_grad():  # EOS never comes by itself
        model.decoder_norm.bias[0] += 5
        model.embedding.weight[EOS, 0] -= 50
    source = [4, 7, 6, 5, EOS]
    expected: list[int] = []
    for _ in range(39):
        next_V = log_probabilities(model, source, torch.tensor([expected], dtype=torch.int64))[0, -1]
        next_V[[PAD, BOS, EOS]] = -math.inf
        expected.append(int(next_V.argmax()))
    assert search_padded(model, torch.tensor([source]), beam=1, alpha=0.6) == [expected]
    assert len(set(expected)) > 1


# --- batches


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_a_sentence_alone_and_in_a_padded_batch(
    monkeypatch: pytest.MonkeyPatch, half_trained: Transformer, beam: int, alpha: float
) -> None:
    monkeypatch.setattr(length_rules, "EXTRA_LENGTH", 8)
    sources = [[*ids, EOS] for ids in VARIED_SOURCES]
    alone = [search_padded(half_trained, torch.tensor([source]), beam, alpha)[0] for source in sources]
    assert search_padded(half_trained, padded(sources), beam, alpha) == alone
    # Whoever comes first, and however many others are done sooner.
    assert search_padded(half_trained, padded(sources[::-1]), beam, alpha) == alone[::-1]
    assert search_padded(half_trained, F.pad(padded(sources), (0, 5), value=PAD), beam, alpha) == alone
    assert len({tuple(ids) for ids in alone}) > 3, "the sentences differ"


def test_a_translation_that_never_ends_is_cut_at_its_own_limit_not_that_of_its_batch() -> None:
    model = constant_model({5: 0.9, 6: 0.1}, max_length=70)
    batch = padded([[7, EOS], [*[7] * 11, EOS]])
    # The last step is for EOS.
    assert search_padded(model, batch, beam=3, alpha=0.6) == [[5] * (2 + 50 - 1), [5] * (12 + 50 - 1)]


@pytest.mark.parametrize("batch_sentences", [1, 2, 3, 64])
def test_the_size_of_the_batches_does_not_matter(half_trained: Transformer, batch_sentences: int) -> None:
    search = SearchConfig(beam=3, length_penalty=1.0, batch_sentences=batch_sentences)
    expected = {
        i: search_padded(half_trained, torch.tensor([[*ids, EOS]]), 3, 1.0)[0] for i, ids in enumerate(VARIED_SOURCES)
    }
    assert translate_ids(half_trained, VARIED_SOURCES, search) == expected


def test_sentences_of_like_length_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = []

    def record(model: Transformer, sources: list[list[int]], *_: object) -> list[list[int]]:
        lengths.append(list(map(len, sources)))
        return [[]] * len(sources)

    monkeypatch.setattr(search_module, "beam_search", record)
    translate_ids(random_model(), [[5] * n for n in (9, 1, 8, 2, 7)], SearchConfig(batch_sentences=2))
    assert lengths == [[9, 8], [7, 2], [1]]


@pytest.mark.parametrize("processes", [1, 2, 3, 5])
def test_shares_partition_the_sentences(half_trained: Transformer, processes: int) -> None:
    sources = [[], *VARIED_SOURCES, []]
    search = SearchConfig(beam=2, batch_sentences=2)
    whole = translate_ids(half_trained, sources, search)
    shares = [translate_ids(half_trained, sources, search, slice(rank, None, processes)) for rank in range(processes)]
    assert sorted(whole) == list(range(1, 9))
    assert sum(map(len, shares)) == len(whole)
    assert {index: ids for share in shares for index, ids in share.items()} == whole


def test_progress_counts_batches() -> None:
    heard: list[tuple[int, int]] = []
    sources = [[5], [6], [7]]
    search = SearchConfig(beam=1, batch_sentences=1)
    translate_ids(random_model(), sources, search, progress=lambda done, total: heard.append((done, total)))
    translate_ids(random_model(), sources, search, slice(1, None, 2), lambda done, total: heard.append((done, total)))
    assert heard == [(1, 3), (2, 3), (3, 3), (1, 1)]


def test_searches_in_parallel_change_nothing(half_trained: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is told by the calling thread alone, and a failure in any search is raised."""
    search, caller, told = SearchConfig(beam=2, batch_sentences=1), threading.get_ident(), set()
    alone = translate_ids(half_trained, VARIED_SOURCES, search)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)

    def progress(done: int, total: int) -> None:
        told.add(threading.get_ident())
        assert 1 <= done <= total == len(VARIED_SOURCES)

    assert translate_ids(half_trained, VARIED_SOURCES, search, progress=progress) == alone
    assert told <= {caller}

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(search_module, "beam_search", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        translate_ids(half_trained, VARIED_SOURCES, search)


# --- edges


def test_an_empty_source_has_an_empty_translation(half_trained: Transformer) -> None:
    found = translate_ids(half_trained, [[], [5, 6], []], SearchConfig(beam=2))
    # What is not in the answer is empty: the caller's table of zeros is PAD.
    assert found.get(0, []) == found.get(2, []) == []
    assert found[1] == search_padded(half_trained, torch.tensor([[5, 6, EOS]]), 2, 0.6)[0]
    assert translate_ids(half_trained, [], SearchConfig()) == {}


@pytest.mark.parametrize(
    ("source_length", "max_length", "expected"), [(1, 256, 51), (100, 256, 150), (206, 256, 256), (250, 256, 256)]
)
def test_length_limit(source_length: int, max_length: int, expected: int) -> None:
    assert length_limit(source_length, max_length) == expected


@pytest.mark.parametrize("pieces", [3, 39])
def test_the_limit_is_respected_up_to_the_last_position(pieces: int) -> None:
    model = constant_model({5: 0.6, 6: 0.4}, max_length=40)
    (found,) = translate_ids(model, [[7] * pieces], SearchConfig(beam=2)).values()
    assert found == [5] * 39


def test_a_source_that_is_too_long_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[list[int]] = []

    def searching(model: Transformer, sources: list[list[int]], *_: object) -> list[list[int]]:
        searched.extend(sources)
        return [[]]

    monkeypatch.setattr(search_module, "beam_search", searching)
    source = random_ids(60).tolist()
    translate_ids(random_model(max_length=40), [source], SearchConfig())
    assert searched == [source[:39]]


def test_padding_and_the_start_of_a_sentence_are_never_written() -> None:
    model = constant_model({PAD: 0.5, BOS: 0.3, UNK: 0.1, EOS: 0.1})
    # Nothing but UNK and EOS is left to choose from.
    for ids in search_padded(model, torch.tensor([[5, EOS]]), beam=4, alpha=3.0):
        assert set(ids) == {UNK}


def test_half_precision_scores_are_added_up_in_full() -> None:
    model = constant_model({5: 0.9, EOS: 0.1}).bfloat16()
    assert search_padded(model, torch.tensor([[6, EOS]]), beam=2, alpha=1.0) == [[5] * 39]


def test_search_leaves_no_trace(half_trained: Transformer) -> None:
    before = copy.deepcopy(half_trained.state_dict())
    source_BS = torch.tensor([[5, 6, EOS]])
    found = search_padded(half_trained, source_BS, 3, 0.6)
    assert search_padded(half_trained, source_BS, 3, 0.6) == found
    assert source_BS.tolist() == [[5, 6, EOS]]
    assert all(torch.equal(value, before[name]) for name, value in half_trained.state_dict().items())
