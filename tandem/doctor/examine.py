"""The examination: measure machines, compute, corpus and network, all processes together, and draw conclusions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from tandem.cluster.devices import configure_device, memory_explained
from tandem.cluster.probe import Curve, Link, Sums, measure_low_rank, measure_sums
from tandem.cluster.strategies import Circumstances
from tandem.cluster.world import World, joined_world
from tandem.config import Config, dump
from tandem.corpus.prepared import PreparedCorpus
from tandem.doctor.advise import Findings, advise
from tandem.doctor.card_prediction import EXCHANGE_VECTORS, batching_on, fitting_batching
from tandem.doctor.diagnosis import Computing, Diagnosis, Needs, Network
from tandem.doctor.machine import Machine, every_machine
from tandem.doctor.measure import Reading, Sentences, matrix_gflops, reading_speed, sentences
from tandem.doctor.predict import (
    MBIT,
    OTHER_FACTORS,
    USUAL_MBIT,
    OtherLink,
    Task,
    other_links,
    predictions,
    with_second_host,
)
from tandem.model.memory_estimate import estimate_memory
from tandem.model.transformer import Transformer
from tandem.train.batches import Batches, check_everyone_has_work
from tandem.train.calibration import Calibration, calibrate
from tandem.train.choices import settle_choices
from tandem.train.plan import circumstances, may_remember

# Together with the start of the program less than a minute, even over a slow link.
CALIBRATION_SECONDS, SECONDS_A_SUM = 8.0, 6.0
FLOAT_BYTES = 4
# Weights, gradient and Adam's two means; a checkpoint leaves the gradient out, one of the best the means, too.
TRAINING_FLOATS, CHECKPOINT_FLOATS, BEST_FLOATS = 4, 3, 1
SMALLER = "lower batch.tokens, or take a smaller model"
Progress = Callable[[str, int, int | None], None]


def examine(
    config: Config,
    corpus_directory: Path | None,
    price_per_hour: float | None,
    disk: Path,
    progress: Progress = lambda _stage, _done, _total: None,
) -> Diagnosis:
    """What a run with these settings would take; called by every process that is to train, under any launcher.

    `disk` is where the run would be put, and the price that of one machine.
    """
    with sentences(config, corpus_directory) as used, joined_world(config.cluster) as world:
        configure_device(world.device, tf32=config.train.tf32, deterministic=config.train.deterministic)
        world.check_same("the configuration", dump(config))
        if used.corpus is not None:
            world.check_same("the corpus", used.corpus.digest)
        if config.model.compile == "auto":
            # To find out takes longer than all else here.
            config = config.model_copy(update={"model": config.model.model_copy(update={"compile": "off"})})
        config = settle_choices(config, world, used.vocabulary, used.batches)
        check_everyone_has_work(config, world)
        batches = used.batches(config)
        shapes = _shapes(config, used.vocabulary)
        values = sum(shape.numel() for shape in shapes)
        with _stage("machines", progress):
            machines = every_machine(world, disk)
            gflops = -world.largest(-matrix_gflops(world, config.train.precision))
        with _stage("corpus", progress):
            reading = _slowest_reading(used.corpus, batches, world)
        with (
            _stage("steps without exchange", progress),
            memory_explained(SMALLER),
        ):
            calibration = calibrate(config, world, batches, used.vocabulary, CALIBRATION_SECONDS)
        with _stage("sums over the network", progress):
            sums = measure_sums(world, values, SECONDS_A_SUM) if world.size > 1 else None
            seen = _seen(config, world, shapes, calibration, sums)
        task = Task(config, len(world.hosts), values, price_per_hour)
        found = Findings(
            machines=machines,
            hosts_of_ranks=[_host_of(world, rank) for rank in range(world.size)],
            needs=_needs(config, values, used.vocabulary, machines),
            computing=_computing(calibration, used, gflops),
            network=None if sums is None else _network(sums),
            reading=reading,
            predictions=predictions(task, seen),
            other_links=_other_links(task, seen, calibration, sums),
        )
        return _diagnosis(found, task)


@contextmanager
def _stage(name: str, progress: Progress) -> Iterator[None]:
    progress(name, 0, 1)
    yield
    progress(name, 1, 1)


def _shapes(config: Config, vocabulary: int) -> list[torch.Size]:
    """Of all weights, without making them."""
    with torch.device("meta"):
        return [parameter.shape for parameter in Transformer(config.model, vocabulary).parameters()]


def _slowest_reading(corpus: PreparedCorpus | None, batches: Batches, world: World) -> Reading | None:
    if corpus is None:
        return None
    mine = reading_speed(corpus, batches, world)
    return replace(
        mine,
        mb_per_second=-world.largest(-mine.mb_per_second),
        batches_per_second=-world.largest(-mine.batches_per_second),
    )


def _seen(
    config: Config, world: World, shapes: list[torch.Size], calibration: Calibration, sums: Sums | None
) -> Circumstances:
    """What predictions are made from; a process alone exchanges nothing."""
    if sums is None:
        sums = Sums(Link(math.inf, 0.0), {"allreduce": Curve(((1, 0.0),))}, {})
    seen = circumstances(config, world, calibration, shapes, sums)
    if len(world.hosts) == 1 or not may_remember(config):
        return seen
    low_rank = measure_low_rank(world, shapes, config.exchange.powersgd_rank)
    return replace(seen, sum_seconds={**seen.sum_seconds, "powersgd": low_rank})


def _host_of(world: World, rank: int) -> str:
    return next(name for name, ranks in zip(world.host_names, world.hosts, strict=True) if rank in ranks)


def _needs(config: Config, values: int, vocabulary: int, machines: Sequence[Machine]) -> Needs:
    floats, kept = values * FLOAT_BYTES, config.checkpoint
    checkpoint = CHECKPOINT_FLOATS * floats
    memory, fitting = None, None
    if smallest := min((gpu.memory_bytes for machine in machines for gpu in machine.gpus), default=None):
        processes = sum(machine.processes for machine in machines)
        batching = batching_on(config, vocabulary, smallest, processes)
        vectors = EXCHANGE_VECTORS if len(machines) > 1 else 0
        memory = estimate_memory(
            config.model, vocabulary, batching.tokens, config.train.precision, exchange_vectors=vectors
        )
        fitting = fitting_batching(config, vocabulary, smallest, batching)
    return Needs(
        parameters=values,
        memory_bytes=TRAINING_FLOATS * floats,
        gpu_memory=memory,
        fitting=fitting,
        checkpoint_bytes=checkpoint,
        disk_bytes=(kept.keep_last + 1) * checkpoint + kept.keep_best * BEST_FLOATS * floats,
    )


def _computing(calibration: Calibration, used: Sentences, gflops: float) -> Computing:
    return Computing(
        together_seconds=calibration.together_seconds,
        apart_seconds=calibration.apart_seconds,
        process_seconds=tuple(statistics.mean(seconds) for seconds in calibration.step_seconds),
        parts=calibration.parts,
        worked_out=calibration.worked_out,
        made_up_sentences=used.corpus is None,
        gflops=gflops,
    )


def _network(sums: Sums) -> Network:
    return Network(
        mbit_per_second=sums.link.bytes_per_second / MBIT,
        latency_seconds=sums.link.latency,
        measured={kind: curve.points for kind, curve in sums.curves.items()},
    )


def _other_links(task: Task, seen: Circumstances, calibration: Calibration, sums: Sums | None) -> list[OtherLink]:
    if task.hosts > 1:
        assert sums is not None, "several hosts have measured their link"
        measured = sums.link.bytes_per_second / MBIT
        return other_links(task, seen, sums.coding, [*USUAL_MBIT, *(measured * factor for factor in OTHER_FACTORS)])
    once = calibration.parts.get("optimizer", 0.0)
    return other_links(task, with_second_host(seen, once, task.values), {}, USUAL_MBIT)


def _diagnosis(found: Findings, task: Task) -> Diagnosis:
    advice = advise(found)
    return Diagnosis(
        machines=tuple(found.machines),
        needs=found.needs,
        computing=found.computing,
        network=found.network,
        reading=found.reading,
        price_per_hour=task.price_per_hour,
        max_steps=task.config.train.max_steps,
        predictions=tuple(found.predictions),
        other_links=tuple(found.other_links),
        bottleneck=advice.bottleneck,
        advice=advice.sentence,
        notes=advice.notes,
        reasons_against=advice.reasons_against,
    )
