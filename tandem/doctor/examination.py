"""The examination: measure machines, compute, corpus and network, all processes together, and draw conclusions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tandem.cluster.devices import configure_device, explain_out_of_memory
from tandem.cluster.exchange.choose_strategy import Link, StepCosts
from tandem.cluster.exchange.link_probe import SumCosts, SumTimes, measure_sums
from tandem.cluster.exchange.strategy import usable_strategies, values_in
from tandem.cluster.exchange.traffic import BASELINE
from tandem.cluster.world import joined_world
from tandem.config import Config, dump
from tandem.corpus.progress import ProgressCallback, no_progress
from tandem.doctor import predict
from tandem.doctor.diagnosis import Computing, Diagnosis, Needs, Network
from tandem.doctor.gpu_memory import batching_on, needed_and_fitting
from tandem.doctor.machine import Machine, every_machine
from tandem.doctor.measure import Sentences, matrix_flops, reading_speed, sentences
from tandem.model.memory_estimate import FLOAT32, is_estimated
from tandem.training.batches import check_everyone_has_work
from tandem.training.startup.auto_settings import resolve_auto_settings
from tandem.training.startup.calibration import Calibration, calibrate
from tandem.training.startup.exchange_plan import gradient_shapes, step_costs
from tandem.training.train_state import PRECISIONS

# Together with the start of the program less than a minute, even over a slow link.
CALIBRATION_SECONDS, SECONDS_A_SUM = 8.0, 6.0
# Large enough that a multiplication is all arithmetic, small enough for a few of them in the time.
MATRIX_WIDTH, MATRIX_SECONDS = {"cpu": 1024, "cuda": 8192}, 0.5
# Weights, gradient and Adam's two means; a checkpoint leaves the gradient out, one of the best the means, too.
TRAINING_FLOATS, CHECKPOINT_FLOATS, BEST_FLOATS = 4, 3, 1
# What a process alone would measure: it exchanges nothing.
NO_SUMS = SumCosts(Link(math.inf, 0.0), {BASELINE: SumTimes(((1, 0.0),))}, {})
SMALLER = "lower batch.tokens, or take a smaller model"


def examine(
    config: Config,
    corpus_directory: Path | None,
    price_per_hour: float | None,
    disk: Path,
    progress: ProgressCallback = no_progress,
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
            config = config.with_settings("model", compile="off")
        config = resolve_auto_settings(config, world, used.vocabulary, used.batches)
        check_everyone_has_work(config, world)
        batches = used.batches(config)
        shapes = gradient_shapes(config, used.vocabulary)
        whole = gradient_shapes(config.with_settings("optimizer", freeze=[]), used.vocabulary)
        with _stage("machines", progress):
            machines = every_machine(world, disk)
            dtype, width = PRECISIONS[config.train.precision], MATRIX_WIDTH[world.device.type]
            gflops = -world.largest(-matrix_flops(world.device, dtype, width, MATRIX_SECONDS)) / 1e9
        with _stage("corpus", progress):
            reading = None if used.corpus is None else reading_speed(used.corpus, batches, world)
        with _stage("steps without exchange", progress), explain_out_of_memory(SMALLER):
            calibration = calibrate(config, world, batches, used.vocabulary, CALIBRATION_SECONDS)
        with _stage("sums over the network", progress):
            sums = NO_SUMS
            if world.size > 1:
                sums = measure_sums(world, shapes, config.exchange, usable_strategies(config), SECONDS_A_SUM)
            costs = step_costs(config, world.size, calibration, shapes, sums)
        planned = predict.PlannedRun(config, len(world.hosts), shapes, price_per_hour)
        return Diagnosis(
            machines=machines,
            hosts_of_ranks=tuple(world.host_names[world.host_of(rank)] for rank in range(world.size)),
            needs=needs_of_run(config, values_in(whole), used.vocabulary, machines),
            computing=_computing(calibration, used, gflops),
            network=None if world.size == 1 else Network.of(sums),
            reading=reading,
            price_per_hour=price_per_hour,
            max_steps=config.train.max_steps,
            predictions=predict.predictions(planned, costs),
            other_links=tuple(_other_links(planned, costs, calibration, sums)),
        )


@contextmanager
def _stage(name: str, progress: ProgressCallback) -> Iterator[None]:
    progress(name, 0, 1)
    yield
    progress(name, 1, 1)


def needs_of_run(config: Config, values: int, vocabulary: int, machines: Sequence[Machine]) -> Needs:
    floats, kept = values * FLOAT32, config.checkpoint
    # A moving average of the weights is one more vector, in memory and in a checkpoint.
    averages = int(config.train.ema_decay is not None)
    checkpoint = (CHECKPOINT_FLOATS + averages) * floats
    memory, fitting = None, None
    smallest = min((gpu.memory_bytes for machine in machines for gpu in machine.gpus), default=None)
    if smallest and is_estimated(config.model):
        processes = sum(machine.processes for machine in machines)
        batching = batching_on(config, vocabulary, smallest, processes)
        memory, fitting = needed_and_fitting(config, vocabulary, smallest, batching, len(machines))
    return Needs(
        parameters=values,
        memory_bytes=(TRAINING_FLOATS + averages) * floats,
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


def _other_links(
    planned: predict.PlannedRun, costs: StepCosts, calibration: Calibration, sums: SumCosts
) -> Iterator[predict.OtherLink]:
    if planned.hosts > 1:
        measured = sums.link.bytes_per_second / predict.MBIT
        rates = [*predict.USUAL_MBIT, *(measured * factor for factor in predict.OTHER_FACTORS)]
        return predict.other_links(planned, costs, sums.coding, rates)
    once = calibration.parts.get("optimizer", 0.0)
    return predict.other_links(planned, predict.with_second_host(planned, costs, once), {}, predict.USUAL_MBIT)
