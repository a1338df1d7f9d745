"""Advice from findings that were made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tandem.cluster.exchange.choose_strategy import StepCosts
from tandem.config import Config
from tandem.doctor.diagnosis import Computing, Diagnosis, Needs, Network
from tandem.doctor.gpu_memory import Batching
from tandem.doctor.machine import Gpu, Machine
from tandem.doctor.measure import Reading
from tandem.doctor.predict import MBIT, PlannedRun, other_links, over_link, predictions
from tandem.model.memory_estimate import estimate_memory
from tests.doctor.test_predict import CAPPED, CODING, SHAPES

GB = 10**9
MACHINE = Machine(
    host="vm1",
    processes=1,
    processor="a processor",
    cores=8,
    threads=8,
    memory_bytes=32 * GB,
    memory_free_bytes=30 * GB,
    gpus=(),
    versions="tandem 0.1.0",
    driver=None,
    disk="/runs",
    disk_free_bytes=100 * GB,
    interface="eth0",
    interface_mbit=1_000,
)
COMPUTING = Computing(
    together_seconds=1.5,
    apart_seconds=1.4,
    process_seconds=(1.4, 1.35),
    parts={"data": 0.01, "compute": 1.3, "optimizer": 0.1},
    worked_out=False,
    made_up_sentences=False,
    gflops=500,
)
NEEDS = Needs(
    parameters=61_000_000, memory_bytes=GB, gpu_memory=None, fitting=None, checkpoint_bytes=GB, disk_bytes=3 * GB
)


def findings(*overrides: str, mbit: float = 100.0, seen: StepCosts = CAPPED) -> Diagnosis:
    """Two hosts over a link of some rate."""
    task = PlannedRun(Config.load("transformer-base", overrides), 2, SHAPES, None)
    seen = replace(over_link(seen, CODING, mbit * MBIT), settings=task.config.exchange)
    return Diagnosis(
        machines=(MACHINE, replace(MACHINE, host="vm2")),
        hosts_of_ranks=("vm1", "vm2"),
        needs=NEEDS,
        computing=COMPUTING,
        network=Network(mbit, 0.001, {}),
        reading=None,
        price_per_hour=None,
        max_steps=task.config.train.max_steps,
        predictions=predictions(task, seen),
        other_links=tuple(other_links(task, seen, CODING, [100, 1_000, 10_000])),
    )


def test_a_good_network_leaves_compute_to_be_the_bottleneck() -> None:
    advice = findings(mbit=50_000)
    assert advice.bottleneck == "compute"
    assert advice.reasons_against == ()


def test_all_reduce_over_a_capped_port_is_advised_against() -> None:
    advice = findings("exchange.kind=allreduce")
    assert advice.bottleneck == "network"
    assert advice.advice == (
        "The network will be the bottleneck with 93% of a step (allreduce); exchange.kind=auto (diloco with 32 local "
        "steps) makes a step 13.6 times shorter, at some cost in quality."
    )
    (reason,) = advice.reasons_against
    assert reason.startswith("allreduce makes a step 14.0 times longer than its compute: exchange.kind=auto (diloco")


def test_what_auto_takes_over_a_capped_port_is_not() -> None:
    advice = findings()
    assert advice.bottleneck == "compute"
    assert advice.reasons_against == ()
    assert advice.notes[0] == (
        "A link of 100 Mbit/s makes an all-reduce step 6.1 times longer than one of 1 Gbit/s; diloco with 32 local "
        "steps avoids it."
    )
    # The port is slower than the card.
    assert advice.notes[1] == "vm1: eth0 is a card of 1 Gbit/s, but only 100 Mbit/s pass: look for a cap on the port."


@pytest.mark.parametrize(
    ("process_seconds", "slow"),
    [((1.4, 1.35), []), ((1.4, 2.0), []), ((1.4, 2.2), ["vm2"]), ((3.0, 1.0), ["vm1"])],
)
def test_a_host_that_holds_up_the_others_is_named(process_seconds: tuple[float, ...], slow: Sequence[str]) -> None:
    uneven = replace(
        COMPUTING,
        process_seconds=process_seconds,
        together_seconds=max(process_seconds),
        apart_seconds=max(process_seconds),
    )
    advice = replace(findings(mbit=50_000), computing=uneven)
    assert [reason.partition(":")[0] for reason in advice.reasons_against] == slow


def test_waiting_is_not_called_network() -> None:
    seen = replace(CAPPED, together_seconds=3.0, apart_seconds=3.0)
    uneven = replace(COMPUTING, process_seconds=(3.0, 1.0), together_seconds=3.0, apart_seconds=3.0)
    advice = replace(findings(mbit=50_000, seen=seen), computing=uneven)
    assert advice.bottleneck == "waiting"
    assert "replace or relieve vm1" in advice.advice


def _against(changed: Diagnosis) -> str:
    (reason,) = changed.reasons_against
    return reason


def test_too_little_room_is_a_reason() -> None:
    good = findings(mbit=50_000)
    full, small = replace(MACHINE, disk_free_bytes=2 * GB), replace(MACHINE, memory_free_bytes=GB // 2)
    assert _against(replace(good, machines=(full, MACHINE))) == (
        "vm1: the checkpoints need 3.00 GB, but /runs has only 2.00 GB: make room, or lower checkpoint.keep_last"
    )
    # Only the first host keeps checkpoints.
    assert not replace(good, machines=(MACHINE, full)).reasons_against
    assert "each process needs 1.00 GB for the model alone" in _against(replace(good, machines=(MACHINE, small)))


def test_a_card_that_cannot_hold_the_training_is_a_reason() -> None:
    good = findings(mbit=50_000)
    memory = estimate_memory(Config.load("transformer-base").model, 32_000, 8_192, "bfloat16")
    needs = replace(NEEDS, gpu_memory=memory, fitting=Batching(2_048, 16))
    small, large = (replace(MACHINE, gpus=(Gpu("a card", gigabytes * GB),)) for gigabytes in (4, 16))
    assert _against(replace(good, machines=(large, small), needs=needs)) == (
        "vm1: training needs 5.72 GB on a GPU, which has 4.00 GB: set batch.tokens=2048 batch.micro_batches=16"
    )
    hopeless = replace(needs, fitting=None)
    assert "too little for any micro-batch" in _against(replace(good, machines=(large, small), needs=hopeless))
    assert not replace(good, machines=(large, large), needs=needs).reasons_against


def test_a_corpus_that_comes_slower_than_it_is_used_is_a_reason() -> None:
    good = findings(mbit=50_000)
    slow = Reading(mb_per_second=0.1, step_mb=1.0, batches_per_second=1.0)
    assert _against(replace(good, reading=slow)).startswith("the corpus comes with 0.1 MB/s")
    assert not replace(good, reading=replace(slow, mb_per_second=100.0)).reasons_against


def test_what_was_not_really_measured_is_said() -> None:
    guessed = replace(COMPUTING, made_up_sentences=True, worked_out=True)
    advice = replace(findings(mbit=50_000), computing=guessed)
    assert any("made-up sentences" in note for note in advice.notes)
    assert any("worked out" in note for note in advice.notes)
