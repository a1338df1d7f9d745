"""What this host does, looked at every second: processor, memory, disk, network card and GPUs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from statistics import fmean
from typing import Any, NamedTuple

import psutil

from tandem.cluster.network import TrafficMeter, host_name, link_speed
from tandem.monitor.gpus import Gpus
from tandem.monitor.records import GpuUse, HostSummary, HostUse

EVERY_SECONDS = 1.0
MEGA = 1e6
# After the point: a tenth of a per mille of a share, 100 bytes a second of a rate.
DIGITS = 4


class _Counters(NamedTuple):
    """What the system has counted since it started."""

    moment: float
    busy: float
    """Seconds of all cores."""
    idle: float
    disk_read: int
    disk_written: int


class HostMeter:
    """Tells what the host has done since it was last asked, of its GPUs those with the given UUIDs."""

    def __init__(self, interface: str | None, cards: Sequence[str] = ()) -> None:
        self._interface = interface
        self._traffic = TrafficMeter(interface)
        self._gpus = Gpus(cards)
        self._before = _counters()

    def lap(self) -> HostUse:
        before, self._before = self._before, _counters()
        traffic, memory = self._traffic.lap(), psutil.virtual_memory()
        # Asked twice within one tick of the clock there is nothing to divide by.
        seconds = max(self._before.moment - before.moment, 1e-9)
        busy, idle = self._before.busy - before.busy, self._before.idle - before.idle
        sent, received = (count / seconds / MEGA for count in traffic)
        return HostUse(
            host=host_name(),
            seconds=_rounded(seconds),
            cpu=_rounded(busy / (busy + idle) if busy + idle else 0.0),
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            disk_read_mbyte_per_second=_rounded((self._before.disk_read - before.disk_read) / seconds / MEGA),
            disk_written_mbyte_per_second=_rounded((self._before.disk_written - before.disk_written) / seconds / MEGA),
            interface=self._interface,
            link_mbit_per_second=link_speed(self._interface),
            sent_mbyte_per_second=_rounded(sent),
            sent_mbit_per_second=_rounded(8 * sent),
            received_mbyte_per_second=_rounded(received),
            received_mbit_per_second=_rounded(8 * received),
            gpus=self._gpus.read(),
        )

    def close(self) -> None:
        self._gpus.close()


def _rounded(value: float) -> float:
    """What a sample is good for: a day of them lies in every journal, and all digits would be half of it."""
    return round(value, DIGITS)


def _counters() -> _Counters:
    cpu, disk = psutil.cpu_times(), _disk()
    # A guest's time is counted in user already; waiting for a disk is not computing.
    idle = cpu.idle + getattr(cpu, "iowait", 0.0)
    whole = sum(cpu) - getattr(cpu, "guest", 0.0) - getattr(cpu, "guest_nice", 0.0)
    read, written = (0, 0) if disk is None else (disk.read_bytes, disk.write_bytes)
    return _Counters(time.monotonic(), whole - idle, idle, read, written)


def _disk() -> Any:
    """Its counters; None where the system keeps none, as in some containers."""
    with suppress(OSError, RuntimeError):
        return psutil.disk_io_counters()
    return None


class Sampler:
    """Looks at the host every second in a thread of its own, and hands over what it saw.

    The thread sleeps but for a few milliseconds of each second, so that the steps take as long with it as without.
    `cards` are the UUIDs of all GPUs that the run uses on this host: the process that samples may see only its own.
    """

    def __init__(self, interface: str | None, report: Callable[[HostUse], None], cards: Sequence[str] = ()) -> None:
        self._meter, self._report = HostMeter(interface, cards), report
        self._seen: list[HostUse] = []
        self._newest: HostUse | None = None
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; after this nothing is handed over."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        self._meter.close()

    def take(self) -> list[HostUse]:
        """The seconds seen since this was last asked; if none has passed, the newest one again."""
        if self._newest is None:
            self._look()
        with self._lock:
            seen, self._seen = self._seen, []
            assert self._newest is not None
            return seen or [self._newest]

    def _watch(self) -> None:
        due = time.monotonic()
        while True:
            # From the plan, not from the end of the last look: otherwise the seconds drift.
            due = max(due + EVERY_SECONDS, time.monotonic())
            if self._ending.wait(due - time.monotonic()):
                return
            # A counter that fails for once, or a card that is gone, must end neither the samples nor the training.
            with suppress(OSError, LookupError, RuntimeError, psutil.Error):
                self._look()

    def _look(self) -> None:
        with self._lock:
            use = self._meter.lap()
            self._newest = use
            self._seen.append(use)
        self._report(use)


def summarise(seen: Sequence[HostUse], seconds: dict[str, float]) -> HostSummary:
    """A stretch in one line: means over its samples, each as long as it lasted."""
    whole = sum(use.seconds for use in seen)

    def mean(value: Callable[[HostUse], float]) -> float:
        return _rounded(sum(value(use) * use.seconds for use in seen) / whole)

    def mean_of_gpus(value: Callable[[GpuUse], float | None]) -> float | None:
        told = [[share for gpu in use.gpus if (share := value(gpu)) is not None] for use in seen]
        if not all(told):
            return None
        return _rounded(sum(fmean(shares) * use.seconds for shares, use in zip(told, seen, strict=True)) / whole)

    last, by_card = seen[-1], _utilisation_by_card(seen)
    return HostSummary(
        host=last.host,
        cpu=mean(lambda use: use.cpu),
        memory=mean(lambda use: use.memory_used_bytes / use.memory_total_bytes),
        sent_mbit_per_second=mean(lambda use: use.sent_mbit_per_second),
        received_mbit_per_second=mean(lambda use: use.received_mbit_per_second),
        link_mbit_per_second=last.link_mbit_per_second,
        gpu_count=len(last.gpus),
        gpu_utilisation=mean_of_gpus(lambda gpu: gpu.utilisation),
        gpu_utilisation_least=min(by_card, default=None),
        gpu_utilisation_most=max(by_card, default=None),
        gpu_memory=mean_of_gpus(lambda gpu: _share(gpu.memory_used_bytes, gpu.memory_total_bytes)),
        gpu_power=mean_of_gpus(lambda gpu: _share(gpu.watts, gpu.watts_cap)),
        seconds={part: _rounded(spent) for part, spent in seconds.items()},
    )


def _utilisation_by_card(seen: Sequence[HostUse]) -> list[float]:
    """Mean utilisation of each card over the samples that tell it; cards without a UUID are known by their place."""
    told: dict[str | int, list[float]] = {}
    for use in seen:
        for place, gpu in enumerate(use.gpus):
            if gpu.utilisation is not None:
                told.setdefault(gpu.uuid or place, []).append(gpu.utilisation)
    return [_rounded(fmean(shares)) for shares in told.values()]


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
