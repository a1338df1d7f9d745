"""What a host does: real counters, a thread that looks every second, and stretches summed up."""

from __future__ import annotations

import dataclasses
import queue
import socket
import time
from typing import Any

import psutil
import pynvml
import pytest

from tandem.monitor import sampler as sampler_module
from tandem.monitor.gpus import Gpus
from tandem.monitor.records import GpuUse, HostUse
from tandem.monitor.sampler import HostMeter, Sampler, summarise

GPU = GpuUse(name="card", utilisation=1.0, memory_used_bytes=4, memory_total_bytes=16, watts=100.0, watts_cap=250.0)


def use(**values: Any) -> HostUse:
    made = HostUse(
        host="vm1",
        seconds=1.0,
        cpu=0.5,
        memory_used_bytes=10,
        memory_total_bytes=40,
        disk_read_mbyte_per_second=0.0,
        disk_written_mbyte_per_second=0.0,
        interface="eth0",
        link_mbit_per_second=1000,
        sent_mbyte_per_second=0.0,
        sent_mbit_per_second=0.0,
        received_mbyte_per_second=0.0,
        received_mbit_per_second=0.0,
        gpus=[],
    )
    return dataclasses.replace(made, **values)


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
    assert len(sampler.take()) == 3 + count
    # After it was stopped nothing comes.
    assert reported.qsize() == count


def test_between_two_looks_the_newest_is_told_again() -> None:
    reported: list[HostUse] = []
    sampler = Sampler("lo", reported.append)
    assert sampler.take() == sampler.take() == reported
    assert len(reported) == 1


def test_a_stretch_is_the_mean_of_its_seconds() -> None:
    seen = [use(cpu=1.0, seconds=3.0, sent_mbit_per_second=80.0), use(cpu=0.0, seconds=1.0)]
    summary = summarise(seen, {"compute": 4.0})
    assert (summary.cpu, summary.sent_mbit_per_second, summary.memory) == (0.75, 60.0, 0.25)
    assert (summary.gpu_count, summary.gpu_utilisation, summary.gpu_power) == (0, None, None)
    assert summary.seconds == {"compute": 4.0}


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
        assert Gpus().read() == []
    else:
        pynvml.nvmlShutdown()
        pytest.skip("this machine has an NVIDIA driver")


class StandIn:
    """What NVML would say, on a machine without a GPU."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


def test_gpus_as_nvml_tells_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_supported(_handle: int) -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    answers: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: "Tesla V100",
        "nvmlDeviceGetMemoryInfo": lambda handle: StandIn(used=3, total=16),
        "nvmlDeviceGetUtilizationRates": lambda handle: StandIn(gpu=87),
        "nvmlDeviceGetPowerUsage": lambda handle: 41_500,
        "nvmlDeviceGetEnforcedPowerLimit": not_supported,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, answer)
    gpus = Gpus()
    assert gpus.read() == [
        GpuUse(
            name="Tesla V100",
            utilisation=0.87,
            memory_used_bytes=3,
            memory_total_bytes=16,
            watts=41.5,
            watts_cap=None,
        )
    ]
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUtilizationRates", not_supported)
    assert gpus.read() == []
    gpus.close()
