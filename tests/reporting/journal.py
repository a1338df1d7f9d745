"""Journals for the tests of the report: real records, in the order in which a training writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tandem.config import Config
from tandem.monitor.records import (
    Ended,
    Evaluated,
    GpuUse,
    HostUse,
    Planned,
    Progressed,
    Record,
    Sampled,
    Started,
    Surveyed,
)
from tandem.schedules.schedule import learning_rate
from tandem.training.run_directory import save_settings
from tests.monitor.example_records import example

EVERY = 10
START = datetime(2026, 1, 2, tzinfo=UTC)
SETTINGS = ("schedule.warmup_steps=50", "train.max_steps=400")
CONFIG = Config.load("demo", SETTINGS)


def settings(run: Path) -> Path:
    """A run's directory with nothing but its settings."""
    (run / "journal").mkdir(parents=True)
    save_settings(run, CONFIG)
    return run


def write_journal(run: Path, records: Sequence[Record], rank: int = 0, start: datetime = START) -> None:
    """Append records, one a second; those of steps when these are over."""
    moment = start
    with (run / f"journal/rank-{rank}.jsonl").open("a", encoding="utf-8") as file:
        for record in records:
            moment += timedelta(seconds=sum(record.seconds.values()) if isinstance(record, Progressed) else 1)
            file.write(json.dumps({"time": moment.isoformat(), **record.as_dict()}) + "\n")


def started(step: int = 0, hosts: Sequence[str] = ("vm1",), host: str | None = None) -> Started:
    return example(
        Started,
        step=step,
        max_steps=400,
        host=host or hosts[0],
        hosts=list(hosts),
        world_size=len(hosts),
        device="cpu",
        precision="float32",
        parameters=1_000_000,
        startup_seconds=2.0,
    )


def progressed(step: int, communication: float = 0.0, waiting: float = 0.0, **values: float) -> Progressed:
    """A stretch of ten steps of a second each."""
    compute = EVERY * (1.0 - communication - waiting)
    return example(
        Progressed,
        step=step,
        steps=EVERY,
        max_steps=400,
        train_loss=values.get("train_loss", 3.0 + 300 / (step + 100)),
        learning_rate=learning_rate(CONFIG, step),
        step_seconds=values.get("step_seconds", 1.0),
        exchanged_bytes=int(EVERY * 4e6) if communication else 0,
        network_sent_bytes=int(EVERY * 4.1e6) if communication else 0,
        network_received_bytes=int(EVERY * 4.0e6) if communication else 0,
        seconds={
            "data": 0.0,
            "compute": compute,
            "communication": EVERY * communication,
            "waiting": EVERY * waiting,
            "optimizer": 0.0,
            "evaluation": 0.0,
            "checkpoint": 0.0,
            "other": 0.0,
        },
    )


def evaluated(step: int) -> Evaluated:
    return example(
        Evaluated, step=step, split="dev", eval_loss=2.0 + 30 / (step + 10), bleu=5 * step**0.3, signature="nrefs:1"
    )


def gpu(index: int, utilisation: float | None = 0.9, watts: float | None = 200.0) -> GpuUse:
    """A card in use, half full, with a cap of 250 watts."""
    return GpuUse(
        name="NVIDIA A100-SXM4-80GB",
        uuid=f"GPU-{index}",
        index=index,
        utilisation=utilisation,
        memory_used_bytes=40,
        memory_total_bytes=80,
        watts=watts,
        watts_cap=250.0,
    )


def use(host: str, sent: float = 32.0, gpus: Sequence[GpuUse] = ()) -> HostUse:
    return HostUse(
        host=host,
        seconds=1.0,
        cpu=0.9,
        memory_used_bytes=10,
        memory_total_bytes=40,
        disk_read_mbyte_per_second=1.0,
        disk_written_mbyte_per_second=2.0,
        interface="eth7",
        link_mbit_per_second=1000,
        sent_mbyte_per_second=sent / 8,
        sent_mbit_per_second=sent,
        received_mbyte_per_second=sent / 8,
        received_mbit_per_second=sent,
        gpus=list(gpus),
    )


def surveyed(step: int, hosts: Sequence[str]) -> Surveyed:
    from tandem.monitor.host_summary import summarise

    return Surveyed(step=step, hosts=[summarise([use(host)], {"compute": 10.0}) for host in hosts])


def session(
    first: int, last: int, hosts: Sequence[str] = ("vm1",), communication: float = 0.0, waiting: float = 0.0
) -> Iterator[Record]:
    """The records of one session, without its end."""
    yield started(first, hosts)
    if len(hosts) > 1:
        yield example(Planned, step=first, exchange="allreduce", local_steps=1)
    for step in range(first + EVERY, last + 1, EVERY):
        yield Sampled(step=step, use=use(hosts[0]))
        yield progressed(step, communication, waiting)
        yield surveyed(step, hosts)
        if step % 50 == 0:
            yield evaluated(step)


def ended(step: int, reason: str = "finished") -> Ended:
    return example(Ended, step=step, reason=reason, best_bleu=None, best_step=None, seconds={"evaluation": 1.0})
