"""Evaluation: loss in nats per token, and BLEU on text as people write it."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import sacrebleu
import torch
import torch.nn.functional as F

from tandem.cluster.world import World
from tandem.config import Config
from tandem.corpus.prepared import PreparedCorpus
from tandem.monitor.console_view import evaluation_lines
from tandem.scoring import bleu_score
from tandem.training import evaluate as evaluate_module
from tandem.training.batches import packed
from tandem.training.evaluate import EvaluationStoppedError, StopWish, evaluate, split_loss
from tandem.training.train_state import TrainState

ALONE = World(0, 1, torch.device("cpu"))


@pytest.fixture
def state(tiny_corpus: PreparedCorpus, tiny_config: Callable[..., Config]) -> TrainState:
    return TrainState.fresh(tiny_config(), tiny_corpus.tokenizer.vocab_size, ALONE.device)


def test_bleu_is_sacrebleus_own_with_its_signature() -> None:
    references = ["Der Hund schläft im Garten.", "Wir lesen ein Buch, weil es regnet."]
    hypotheses = ["Der Hund schläft in dem Garten.", "Wir lesen ein Buch, weil es regnet."]
    bleu, signature = bleu_score(hypotheses, references)
    assert bleu == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score)
    for part in ("nrefs:1", "case:mixed", "tok:13a", "smooth:exp", "version:"):
        assert part in signature


def test_bleu_counts_case_and_words_not_pieces() -> None:
    assert bleu_score(["der hund schläft im garten ."], ["Der Hund schläft im Garten."])[0] < 50
    assert bleu_score(["▁Der ▁Hund ▁schläf t ▁im ▁Garten ."], ["Der Hund schläft im Garten."])[0] < 10


def test_the_loss_is_the_mean_over_all_target_tokens(state: TrainState, tiny_corpus: PreparedCorpus) -> None:
    pairs = tiny_corpus.pairs("dev")
    nll, tokens = 0.0, 0
    with torch.no_grad():
        for row in range(len(pairs)):
            batch = packed(pairs, [row], pinned=False).to(ALONE.device)
            weight_VD = state.model.output_weight()[: state.model.vocab_size]
            logits = F.linear(state.model(batch.source_BS, batch.target_BT), weight_VD)
            nll += float(F.cross_entropy(logits[0], batch.labels_N, reduction="sum"))
            tokens += len(batch.labels_N)
    assert split_loss(state.model, tiny_corpus, ALONE, "dev", StopWish()) == pytest.approx(nll / tokens, rel=1e-5)


def test_an_evaluation_says_everything_about_itself(
    state: TrainState, tiny_corpus: PreparedCorpus, tiny_config: Callable[..., Config]
) -> None:
    config = tiny_config("evaluation.samples=2")
    done = []
    evaluated = evaluate(
        state.model,
        tiny_corpus,
        config,
        ALONE,
        split="test",
        step=7,
        progress=lambda batch, batches: done.append((batch, batches)),
    )
    sources, references = tiny_corpus.text("test")
    assert (evaluated.step, evaluated.split, evaluated.sentences) == (7, "test", len(references))
    assert evaluated.perplexity == pytest.approx(math.exp(evaluated.eval_loss))
    assert [(sample.source, sample.reference) for sample in evaluated.samples] == list(
        zip(sources, references, strict=True)
    )[:2]
    assert done[-1][0] == done[-1][1]


@pytest.mark.parametrize(
    ("may_give_up", "worthless", "counted"),
    [(True, 101.0, 5), (True, 0.0, 20), (False, 101.0, 20)],
)
def test_a_model_that_cannot_translate_yet_is_measured_on_the_first_sentences(
    may_give_up: bool,
    worthless: float,
    counted: int,
    state: TrainState,
    tiny_corpus: PreparedCorpus,
    tiny_config: Callable[..., Config],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever is translated first, the loss is of all sentences, and so are translations, in their order."""
    monkeypatch.setattr(evaluate_module, "FIRST_SENTENCES", 5)
    monkeypatch.setattr(evaluate_module, "WORTHLESS_BLEU", worthless)
    config = tiny_config("evaluation.samples=20")
    whole, evaluated = (
        evaluate(state.model, tiny_corpus, config, ALONE, split="dev", step=1, may_give_up=each)
        for each in (False, may_give_up)
    )
    assert (evaluated.sentences, evaluated.all_sentences) == (counted, 20)
    assert evaluated.eval_loss == whole.eval_loss
    assert evaluated.samples == whole.samples[:counted]
    hypotheses, references = zip(*((each.hypothesis, each.reference) for each in evaluated.samples), strict=True)
    assert evaluated.bleu == bleu_score(hypotheses, references)[0]
    said = evaluation_lines(evaluated)[0]
    assert ("the first 5 sentences of 20: it cannot translate yet" in said) == (counted == 5)


@pytest.mark.parametrize("checks", [0, 1, 3], ids=["in the loss", "in the agreement after it", "in the first search"])
def test_a_request_to_stop_ends_an_evaluation_at_the_next_batch_or_position(
    checks: int, state: TrainState, tiny_corpus: PreparedCorpus, tiny_config: Callable[..., Config]
) -> None:
    """The wish comes up after so many looks at it, the second of which is the agreement after the loss."""
    looks, told = [0], list[float]()

    def vote() -> float:
        looks[0] += 1
        return 7.0 if looks[0] > checks else 0.0

    config, stop = tiny_config("search.batch_sentences=1"), StopWish(vote, told.append)
    with pytest.raises(EvaluationStoppedError) as stopped:
        evaluate(state.model, tiny_corpus, config, ALONE, split="dev", step=1, stop=stop)
    assert stopped.value.votes == 7.0
    # The look that saw it, and that of the agreement.
    assert looks[0] <= checks + 2
    assert told == [7.0]
