"""Evaluation on held-out splits: loss per token, and BLEU and other metrics on detokenised text."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch

from tandem.cluster.devices import explain_out_of_memory
from tandem.cluster.world import World, joined_world
from tandem.config import Config, SearchConfig
from tandem.corpus.prepared import PreparedCorpus
from tandem.errors import TandemError
from tandem.metrics import BLEU, DEV, METRICS, USUAL_METRICS
from tandem.model.loss import exact_nll
from tandem.model.search import sentences_at_once, translate_ids
from tandem.model.translation_model import TranslationModel
from tandem.monitor.records import Evaluated, MetricValue, Sample
from tandem.scoring import bleu_score, make_scorer, metric_score
from tandem.training.batches import LengthOrder, packed
from tandem.training.checkpoints.checkpoint import Checkpoint
from tandem.training.checkpoints.restore import load_model
from tandem.training.run_directory import Run

BatchesDone = Callable[[int, int], None]
"""Called with the number of batches done, and of all."""
SMALLER_SEARCH = "lower search.batch_sentences or search.beam"
# Tokens of a micro-batch, whatever the training's: the loss should not depend on how the model was trained.
BATCH_TOKENS = 4096
# Sentences of a split that are translated first, while a model trains. One that is worth no BLEU there cannot translate
# yet: it would run into the limit of length with every sentence of the rest, and learn nothing new about itself.
FIRST_SENTENCES = 100
WORTHLESS_BLEU = 2.0


class EvaluationStoppedError(Exception):
    """An evaluation that all processes have agreed to break off, because some of them were asked to stop."""

    def __init__(self, votes: float) -> None:
        super().__init__("the evaluation was broken off")
        self.votes = votes
        """Sum of all processes' wishes to stop."""


class _AskedToStopError(Exception):
    """This process was asked to stop in the middle of its share of the work."""

    def __init__(self, vote: float) -> None:
        super().__init__("asked to stop")
        self.vote = vote


class StopWish:
    """A process's wish to stop, and the agreement of all processes to break off an evaluation.

    A process that has the wish gives up its share of the work, at the next batch or position of a search; one that has
    not does its share first.
    """

    def __init__(
        self, vote: Callable[[], float] = lambda: 0.0, tell: Callable[[float], None] = lambda votes: None
    ) -> None:
        self._vote, self._tell = vote, tell
        self._told = False

    def check(self) -> None:
        """Leave `sharing` if this process was asked to stop."""
        if mine := self._vote():
            raise _AskedToStopError(mine)

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """Around a share of the work; a wish to stop ends it, and is told at once."""
        try:
            yield
        except _AskedToStopError as asked:
            self._tell_once(asked.vote)

    def agree(self, world: World) -> None:
        """Go on together, or break off together, which those tell now that have only heard of it from the others."""
        if mine := self._vote():
            self._tell_once(mine)
        if votes := world.total(mine)[0]:
            self._tell_once(votes)
            raise EvaluationStoppedError(votes)

    def _tell_once(self, votes: float) -> None:
        if not self._told:
            self._told = True
            self._tell(votes)


def evaluate(
    model: TranslationModel,
    corpus: PreparedCorpus,
    config: Config,
    world: World,
    *,
    split: str,
    step: int,
    metrics: Sequence[str] = (),
    progress: BatchesDone = lambda done, total: None,
    may_give_up: bool = False,
    stop: StopWish | None = None,
) -> Evaluated:
    """Measure the model on a split in full precision, the work shared by all processes; all get the same answer.

    Loss and BLEU are always measured, `metrics` with them. With `may_give_up` a model that cannot translate yet
    translates the first sentences alone. An evaluation that is to `stop` ends in an EvaluationStoppedError, in all
    processes alike.
    """
    assert not model.training, "dropout would change the figures"
    start, stop = time.perf_counter(), stop or StopWish()
    with explain_out_of_memory(SMALLER_SEARCH):
        loss = split_loss(model, corpus, world, split, stop)
        sources, references = corpus.text(split)
        first = len(references) if not may_give_up else min(FIRST_SENTENCES, len(references))
        translate = partial(translate_split, model, corpus, config.search, world, split, progress, stop)
        hypotheses = translate(slice(first))
        bleu, signature = bleu_score(hypotheses, references[:first])
        if first < len(references) and bleu >= WORTHLESS_BLEU:
            hypotheses += translate(slice(first, None))
            bleu, signature = bleu_score(hypotheses, references)
    more = [name for name in metrics if name != BLEU]
    found = _shared_metrics(more, hypotheses, references[: len(hypotheses)], corpus.facts.target_language, world)
    shown = list(zip(sources, references, hypotheses, strict=False))[: config.evaluation.samples]
    return Evaluated(
        step=step,
        split=split,
        eval_loss=loss,
        # Capped: an untrained model's perplexity may be too large for JSON.
        perplexity=math.exp(min(loss, 100.0)),
        bleu=bleu,
        signature=signature,
        sentences=len(hypotheses),
        all_sentences=len(references),
        seconds=time.perf_counter() - start,
        samples=[Sample(source=source, reference=reference, hypothesis=text) for source, reference, text in shown],
        metrics=found,
    )


def evaluate_dev_sets(
    model: TranslationModel,
    corpus: PreparedCorpus,
    config: Config,
    world: World,
    *,
    step: int,
    progress: BatchesDone,
    stop: StopWish,
) -> list[Evaluated]:
    """Measure the model in training on every dev set that its settings name, dev first."""
    return [
        evaluate(
            model,
            corpus,
            config,
            world,
            split=split,
            step=step,
            metrics=measured_metrics(config, split),
            progress=progress,
            may_give_up=True,
            stop=stop,
        )
        for split in measured_dev_sets(config, corpus)
    ]


def measured_dev_sets(config: Config, corpus: PreparedCorpus) -> list[str]:
    """The dev sets that a training is measured on, dev first; a fault in the settings names what there is."""
    there, named = corpus.facts.dev_sets, config.evaluation.dev_sets
    listed = ", ".join(there)
    for name in named or ():
        if name not in there:
            raise TandemError(f"evaluation.dev_sets: {corpus.directory} has no dev set {name}; it has {listed}")
    chosen = config.checkpoint.criterion.dev_set
    if chosen not in there:
        raise TandemError(f"checkpoint.best_by: {corpus.directory} has no dev set {chosen}; it has {listed}")
    return [name for name in there if name == DEV or named is None or name in named]


def measured_metrics(config: Config, dev_set: str) -> list[str]:
    """The metrics that a training takes on a dev set, where loss and BLEU always are."""
    criterion = config.checkpoint.criterion
    wanted = [*config.evaluation.metrics, *([criterion.metric] if criterion.dev_set == dev_set else [])]
    return [name for name in METRICS if name in wanted]


def check_measures(config: Config, corpus: PreparedCorpus) -> None:
    """Refuse dev sets that the corpus does not have, and metrics that cannot be computed here."""
    for dev_set in measured_dev_sets(config, corpus):
        for name in measured_metrics(config, dev_set):
            make_scorer(name, corpus.facts.target_language)


def _shared_metrics(
    names: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], language: str, world: World
) -> list[MetricValue]:
    """Each metric computed by one process; all get all values."""
    mine = [[name, *metric_score(name, hypotheses, references, language)] for name in names[world.rank :: world.size]]
    parts = world.gather(mine) if names else []
    found = {name: (value, signature) for part in parts for name, value, signature in part}
    return [MetricValue(metric=name, value=found[name][0], signature=found[name][1]) for name in names]


def evaluate_run(
    run: Run,
    *,
    corpus: PreparedCorpus,
    checkpoint: Checkpoint,
    split: str,
    metrics: Sequence[str] = USUAL_METRICS,
    progress: BatchesDone = lambda done, total: None,
) -> Evaluated:
    """Measure a checkpoint of a run, with all the processes that were started; loss and BLEU are always taken."""
    with joined_world(run.config.cluster, run.directory) as world:
        world.together(lambda: [make_scorer(name, corpus.facts.target_language) for name in metrics])
        world.check_same("the checkpoint", f"{checkpoint.step} {checkpoint.state['files']}")
        model = world.together(lambda: load_model(run, checkpoint, world.device))
        return evaluate(
            model,
            corpus,
            run.config,
            world,
            split=split,
            step=checkpoint.step,
            metrics=metrics,
            progress=progress,
        )


def split_loss(model: TranslationModel, corpus: PreparedCorpus, world: World, split: str, stop: StopWish) -> float:
    """Mean negative log-likelihood in nats per target token, without label smoothing.

    Pairs longer than the model can hold are left out here; BLEU counts their translations, of what fits.
    """
    pairs = corpus.pairs(split)
    order = LengthOrder(pairs, max(BATCH_TOKENS, model.config.max_length), model.config.max_length)
    sums, count = [], 0
    with stop.sharing():
        for index in range(world.rank, len(order), world.size):
            stop.check()
            batch = packed(pairs, order.rows(index), pinned=world.device.type == "cuda").to(world.device)
            sums.append(exact_nll(model, batch))
            count += len(batch.labels_N)
    stop.agree(world)
    nll = math.fsum(torch.stack(sums).tolist()) if sums else 0.0
    total_nll, total_count = world.total(nll, count)
    return total_nll / total_count


def translate_split(
    model: TranslationModel,
    corpus: PreparedCorpus,
    search: SearchConfig,
    world: World,
    split: str,
    progress: BatchesDone,
    stop: StopWish,
    lines: slice,
) -> list[str]:
    """Translate lines of a split, each process a share; all get all translations."""
    pairs = corpus.pairs(split)
    sources = [pairs.source(index).tolist() for index in range(len(pairs))[lines]]
    share = slice(world.rank, None, world.size)
    # The card with the least memory to spare decides for all.
    at_once = -int(world.largest(-sentences_at_once(model, search)))
    mine: dict[int, list[int]] = {}
    with stop.sharing():
        mine = translate_ids(model, sources, search, share, progress, at_once=at_once, check=stop.check)
    stop.agree(world)
    ids_by_index = dict(pair for part in world.gather(list(mine.items())) for pair in part)
    # Empty lines are not translated.
    return corpus.tokenizer.decode([ids_by_index.get(index, []) for index in range(len(sources))])
