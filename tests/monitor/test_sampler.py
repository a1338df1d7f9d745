"""What a host does: real counters, a thread that looks every second, and stretches summed up."""

from __future__ import annotations

import dataclasses
import os
import queue
import socket
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml
import pytest

from tandem.monitor import sampler as sampler_module
from tandem.monitor.gpus import GpuMeter
from tandem.monitor.host_summary import summarise
from tandem.monitor.records import GpuUse, HostUse
from tandem.monitor.sampler import HostMeter, Sampler
from tests.monitor.example_records import example

GPU = example(GpuUse, utilisation=1.0, memory_used_bytes=4, memory_total_bytes=16, watts=100.0, watts_cap=250.0)


def use(**values: Any) -> HostUse:
    usual = {"seconds": 1.0, "memory_used_bytes": 10, "memory_total_bytes": 40, "sent_mbit_per_second": 0.0}
    return example(HostUse, **usual | values)


def send_over_loopback(size: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        other, _ = server.accept()
        with other:
            for _ in range(size // 10_000):
                one.sendall(bytes(10_000))
                received = 0
                while received < 10_000:
                    received += len(other.recv(10_000))


def test_a_lap_tells_what_the_machine_did() -> None:
    meter = HostMeter("lo")
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    send_over_loopback(1_000_000)
    seen = meter.lap()
    assert 0 < seen.cpu <= 1
    assert 0 < seen.memory_used_bytes < seen.memory_total_bytes
    # Whoever else speaks on the loopback only adds to it.
    assert seen.sent_mbyte_per_second * seen.seconds >= 1
    assert seen.received_mbyte_per_second * seen.seconds >= 1
    assert seen.sent_mbit_per_second == pytest.approx(8 * seen.sent_mbyte_per_second, abs=1e-3)
    assert seen.received_mbit_per_second == pytest.approx(8 * seen.received_mbyte_per_second, abs=1e-3)
    assert (seen.interface, seen.link_mbit_per_second) == ("lo", None)


def test_whose_the_processors_were() -> None:
    own, parents, gone = (HostMeter(None, processes=[pid]) for pid in (os.getpid(), os.getppid(), 2**30))
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    mine, others, unknown = (meter.lap() for meter in (own, parents, gone))
    for seen in (mine, others):
        assert seen.cpu_own is not None
        assert seen.cpu_others is not None
        assert seen.cpu_own + seen.cpu_others + (seen.cpu_steal or 0.0) == pytest.approx(seen.cpu, abs=0.01)
    # To its parent, this process is another program.
    assert mine.cpu_own is not None
    assert others.cpu_own is not None
    assert mine.cpu_own > others.cpu_own
    assert (unknown.cpu_own, unknown.cpu_others) == (None, None)


def test_a_counter_that_fails_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_module, "EVERY_SECONDS", 0.01)
    reported: queue.Queue[HostUse] = queue.Queue()
    sampler = Sampler("lo", reported.put)
    failing = iter([True, True, False])
    real = psutil.virtual_memory

    def sometimes() -> Any:
        if next(failing, False):
            raise OSError("for once")
        return real()

    monkeypatch.setattr(psutil, "virtual_memory", sometimes)
    monkeypatch.setattr(psutil, "disk_io_counters", lambda: exec("raise NotImplementedError"))
    sampler.start()
    assert reported.get(timeout=10).disk_read_mbyte_per_second == 0
    sampler.stop()


def test_without_a_card_nothing_is_counted() -> None:
    seen = HostMeter(None).lap()
    assert (seen.sent_mbyte_per_second, seen.received_mbyte_per_second, seen.interface) == (0.0, 0.0, None)


def test_a_sampler_reports_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_module, "EVERY_SECONDS", 0.01)
    reported: queue.Queue[HostUse] = queue.Queue()
    sampler = Sampler("lo", reported.put)
    sampler.start()
    first = [reported.get(timeout=10) for _ in range(3)]
    sampler.stop()
    count = reported.qsize()
    assert all(seen.seconds > 0 for seen in first)
    assert len(sampler.drain()) == 3 + count
    # After it was stopped nothing comes.
    assert reported.qsize() == count


def test_between_two_looks_the_newest_is_told_again() -> None:
    reported: list[HostUse] = []
    sampler = Sampler("lo", reported.append)
    assert sampler.drain() == sampler.drain() == reported
    assert len(reported) == 1


def test_a_stretch_is_the_mean_of_its_seconds() -> None:
    seen = [use(cpu=1.0, seconds=3.0, sent_mbit_per_second=80.0), use(cpu=0.0, seconds=1.0)]
    summary = summarise(seen, {"compute": 4.0})
    assert (summary.cpu, summary.sent_mbit_per_second, summary.memory) == (0.75, 60.0, 0.25)
    assert (summary.gpu_count, summary.gpu_utilisation, summary.gpu_power) == (0, None, None)
    assert summary.seconds == {"compute": 4.0}
    assert (summary.cpu_own, summary.cpu_others, summary.cpu_steal) == (None, None, None)
    shared = [use(cpu=1.0, cpu_own=0.5, cpu_steal=0.25), use(cpu=0.5, cpu_own=0.5, cpu_steal=0.0)]
    summary = summarise(shared, {})
    assert (summary.cpu_own, summary.cpu_others, summary.cpu_steal) == (0.5, 0.125, 0.125)


def test_gpus_are_averaged_and_power_is_against_the_cap() -> None:
    half = dataclasses.replace(GPU, utilisation=0.5, watts=50.0)
    summary = summarise([use(gpus=[GPU, half])], {})
    assert (summary.gpu_count, summary.gpu_utilisation, summary.gpu_memory) == (2, 0.75, 0.25)
    assert summary.gpu_power == pytest.approx(0.3)
    unknown = dataclasses.replace(GPU, watts=None)
    assert summarise([use(gpus=[unknown])], {}).gpu_power is None


def test_without_a_driver_there_are_no_gpus() -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        assert GpuMeter(["GPU-a"]).read() == []
    else:
        pynvml.nvmlShutdown()
        pytest.skip("this machine has an NVIDIA driver")


PHYSICAL = ("GPU-a", "GPU-b", "GPU-c", "GPU-d")


class StandIn:
    """NVML on a host with four cards; a card is its own handle, and some calls may be refused for some of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused: set[tuple[str, str]] = set()
        self.running = 0
        self.asked: set[str] = set()
        answers: dict[str, Any] = {
            "nvmlDeviceGetHandleByUUID": str,
            "nvmlDeviceGetIndex": PHYSICAL.index,
            "nvmlDeviceGetName": lambda card: f"Tesla {card}",
            "nvmlDeviceGetMemoryInfo": lambda card: SimpleNamespace(used=4, total=16),
            "nvmlDeviceGetUtilizationRates": lambda card: SimpleNamespace(gpu=10 * PHYSICAL.index(card) + 60),
            "nvmlDeviceGetPowerUsage": lambda card: 125_000,
            "nvmlDeviceGetEnforcedPowerLimit": lambda card: 250_000,
        }
        monkeypatch.setattr(pynvml, "nvmlInit", lambda: self._count(+1))
        monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: self._count(-1))
        for name, answer in answers.items():
            monkeypatch.setattr(pynvml, name, partial(self._ask, name, answer))

    def lose(self, card: str) -> None:
        """The card falls off the bus."""
        self.refused |= {
            (call, card) for call in ("MemoryInfo", "UtilizationRates", "PowerUsage", "EnforcedPowerLimit")
        }

    def _count(self, change: int) -> None:
        self.running += change

    def _ask(self, name: str, answer: Callable[[str], Any], card: str) -> Any:
        if card not in PHYSICAL:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        if (name.removeprefix("nvmlDeviceGet"), card) in self.refused:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        self.asked.add(card)
        return answer(card)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return StandIn(monkeypatch)


def test_only_the_cards_of_the_run_are_read(nvml: StandIn) -> None:
    gpus = GpuMeter(["GPU-b", "GPU-d"])
    first = dataclasses.replace(GPU, name="Tesla GPU-b", uuid="GPU-b", index=1, utilisation=0.7, watts=125.0)
    second = dataclasses.replace(first, name="Tesla GPU-d", uuid="GPU-d", index=3, utilisation=0.9)
    assert gpus.read() == [first, second]
    assert nvml.asked == {"GPU-b", "GPU-d"}
    assert nvml.running == 1
    gpus.close()
    gpus.close()
    assert nvml.running == 0
    assert gpus.read() == []


def test_a_run_without_cards_does_not_open_nvml(nvml: StandIn) -> None:
    gpus = GpuMeter()
    assert gpus.read() == []
    assert nvml.running == 0
    gpus.close()
    assert nvml.running == 0


def test_a_card_that_nvml_does_not_know_is_passed_over(nvml: StandIn) -> None:
    nvml.refused.add(("HandleByUUID", "GPU-a"))
    assert [use.uuid for use in GpuMeter(["MIG-x", "GPU-a", "GPU-c"]).read()] == ["GPU-c"]


def test_a_card_that_fails_does_not_hide_the_others(nvml: StandIn) -> None:
    gpus = GpuMeter(["GPU-b", "GPU-d"])
    nvml.lose("GPU-b")
    assert [use.uuid for use in gpus.read()] == ["GPU-d"]


@pytest.mark.parametrize(
    ("call", "missing"),
    [
        ("UtilizationRates", {"utilisation"}),
        ("MemoryInfo", {"memory_used_bytes", "memory_total_bytes"}),
        ("PowerUsage", {"watts"}),
        ("EnforcedPowerLimit", {"watts_cap"}),
    ],
)
def test_what_a_card_refuses_is_all_that_is_missing(nvml: StandIn, call: str, missing: set[str]) -> None:
    nvml.refused.add((call, "GPU-b"))
    one, other = (dataclasses.asdict(use) for use in GpuMeter(["GPU-b", "GPU-d"]).read())
    assert {name for name, value in one.items() if value is None} == missing
    assert None not in other.values()


def test_a_sampler_reads_the_cards_it_is_told_of(nvml: StandIn) -> None:
    reported: list[HostUse] = []
    sampler = Sampler("lo", reported.append, ["GPU-a", "GPU-c"])
    sampler.drain()
    sampler.stop()
    assert [(gpu.index, gpu.utilisation) for gpu in reported[0].gpus] == [(0, 0.6), (2, 0.8)]
    assert nvml.running == 0


def test_the_spread_of_the_cards_is_that_of_their_means() -> None:
    busy, idle = (dataclasses.replace(GPU, uuid=uuid, utilisation=share) for uuid, share in (("a", 1.0), ("b", 0.2)))
    # In the second look the first card does not answer, so that the other takes its place.
    summary = summarise([use(gpus=[busy, idle]), use(gpus=[dataclasses.replace(idle, utilisation=0.4)])], {})
    assert (summary.gpu_utilisation_least, summary.gpu_utilisation_most) == (0.3, 1.0)
    silent = dataclasses.replace(GPU, utilisation=None, memory_used_bytes=None, memory_total_bytes=None)
    summary = summarise([use(gpus=[silent])], {})
    assert (summary.gpu_utilisation, summary.gpu_utilisation_least, summary.gpu_memory) == (None, None, None)
    assert summary.gpu_power == pytest.approx(0.4)
    summary = summarise([use(gpus=[silent, busy])], {})
    assert (summary.gpu_utilisation, summary.gpu_memory) == (1.0, 0.25)
