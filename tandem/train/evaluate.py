"""How good the model is on a held-out split: loss per token, and BLEU on detokenised text."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from sacrebleu.metrics.bleu import BLEU

from tandem.cluster.devices import memory_explained
from tandem.cluster.world import World, joined_world
from tandem.config import Config, SearchConfig
from tandem.corpus.prepared import PreparedCorpus
from tandem.corpus.tokenizer import PAD
from tandem.model.loss import exact_nll
from tandem.model.search import length_limit, sentences_at_once, translate_ids
from tandem.model.transformer import Transformer
from tandem.monitor.records import Evaluated, Sample
from tandem.train.batches import LengthOrder, packed
from tandem.train.checkpoint import Checkpoint
from tandem.train.restore import load_model
from tandem.train.run import Run

SMALLER_SEARCH = "lower search.batch_sentences or search.beam"
# Of a micro-batch, whatever the training's: the loss should not depend on how it was trained.
BATCH_TOKENS = 4096


@dataclass(frozen=True)
class Score:
    """A BLEU with the signature that says how it was computed."""

    bleu: float
    signature: str


def score(hypotheses: list[str], references: list[str]) -> Score:
    """The one scorer: cased sacreBLEU on detokenised text, 0 to 100."""
    metric = BLEU()
    bleu = metric.corpus_score(hypotheses, [references]).score
    return Score(bleu, str(metric.get_signature()))


def evaluate(
    model: Transformer,
    corpus: PreparedCorpus,
    config: Config,
    world: World,
    *,
    split: str,
    step: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Evaluated:
    """Measure the model on a split, the work dealt out to all processes; all get the same answer.

    In full precision, whatever the training's: the figures should not depend on rounding.
    """
    start = time.perf_counter()
    model.eval()
    with memory_explained(SMALLER_SEARCH):
        loss = split_loss(model, corpus, world, split)
        hypotheses = translate_split(model, corpus, config.search, world, split, progress)
    sources, references = corpus.text(split)
    scored = score(hypotheses, references)
    shown = list(zip(sources, references, hypotheses, strict=True))[: config.evaluation.samples]
    return Evaluated(
        step=step,
        split=split,
        eval_loss=loss,
        # Capped: an untrained model's perplexity need not be a number too large for JSON.
        perplexity=math.exp(min(loss, 100.0)),
        bleu=scored.bleu,
        signature=scored.signature,
        sentences=len(references),
        seconds=time.perf_counter() - start,
        samples=[Sample(source=source, reference=reference, hypothesis=text) for source, reference, text in shown],
    )


def evaluate_run(
    run: Run,
    *,
    corpus: PreparedCorpus,
    checkpoint: Checkpoint,
    split: str,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Evaluated:
    """Measure a checkpoint of a run, with all the processes that were started."""
    with joined_world(run.config.cluster) as world:
        world.check_same("the checkpoint", f"{checkpoint.step} {checkpoint.state['files']}")
        model = load_model(checkpoint, run.config.model, run.tokenizer().vocab_size, world.device)
        return evaluate(model, corpus, run.config, world, split=split, step=checkpoint.step, progress=progress)


def split_loss(model: Transformer, corpus: PreparedCorpus, world: World, split: str) -> float:
    """Mean negative log-likelihood in nats per target token, without label smoothing.

    Pairs longer than the model can hold have no loss; their translations, of what fits, count in BLEU all the same.
    """
    pairs = corpus.pairs(split)
    order = LengthOrder(pairs, max(BATCH_TOKENS, model.config.max_length), model.config.max_length)
    sums, count = [], 0
    for index in range(world.rank, len(order), world.size):
        batch = packed(pairs, order.rows(index), pinned=world.device.type == "cuda").to(world.device)
        sums.append(exact_nll(model, batch))
        count += len(batch.labels_N)
    nll = math.fsum(torch.stack(sums).tolist()) if sums else 0.0
    total_nll, total_count = world.total(nll, count)
    return total_nll / total_count


def translate_split(
    model: Transformer,
    corpus: PreparedCorpus,
    search: SearchConfig,
    world: World,
    split: str,
    progress: Callable[[int, int], None],
) -> list[str]:
    """Translate a split, each process a share; the ids are put together by one sum over a table of zeros."""
    pairs = corpus.pairs(split)
    sources = [pairs.source(index).tolist() for index in range(len(pairs))]
    longest = max((length_limit(len(ids) + 1, model.config.max_length) for ids in sources), default=0)
    table = torch.full((len(sources), longest), PAD)
    share = slice(world.rank, None, world.size)
    # The card with the least memory to spare decides for all.
    at_once = -int(world.largest(-sentences_at_once(model, search)))
    for index, ids in translate_ids(model, sources, search, share, progress, at_once=at_once).items():
        table[index, : len(ids)] = torch.tensor(ids)
    return corpus.tokenizer.decode(world.sum_(table).tolist())
