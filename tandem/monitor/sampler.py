"""Resource samples of this host, every second or every few: processor, memory, disk, network interface and GPUs."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import psutil

from tandem.monitor.gpus import GpuMeter
from tandem.monitor.host_summary import DIGITS
from tandem.monitor.network_interfaces import TrafficMeter, host_name, link_speed
from tandem.monitor.records import HostUse

EVERY_SECONDS = 1.0
# After the first hour, when whatever is wrong from the start has shown: a month of samples then takes hundreds of
# megabytes of journal a host instead of gigabytes.
FIRST_SECONDS, LATER_EVERY_SECONDS = 3600.0, 5.0
MEGA = 1e6


class _Counters(NamedTuple):
    """What the system has counted since it started; seconds are those of all cores."""

    time: float
    busy_seconds: float
    idle_seconds: float
    steal_seconds: float
    own_seconds: float
    """What the run's processes had; nan if one of them is out of sight."""
    disk_read_bytes: int
    disk_written_bytes: int

    @classmethod
    def read(cls, processes: Sequence[psutil.Process]) -> _Counters:
        cpu, disk = psutil.cpu_times(), None
        # Some containers have no counters of disks.
        with suppress(OSError, RuntimeError):
            disk = psutil.disk_io_counters()
        # A guest's time is counted in user already; waiting for a disk is not computing.
        idle = cpu.idle + getattr(cpu, "iowait", 0.0)
        whole = sum(cpu) - getattr(cpu, "guest", 0.0) - getattr(cpu, "guest_nice", 0.0)
        read, written = (0, 0) if disk is None else (disk.read_bytes, disk.write_bytes)
        steal = getattr(cpu, "steal", math.nan)
        return cls(time.monotonic(), whole - idle, idle, steal, _seconds_of(processes), read, written)


def _seconds_of(processes: Sequence[psutil.Process]) -> float:
    """Processor time of processes and of their children that have ended; nan if one of them is gone."""
    try:
        return sum(sum(process.cpu_times()[:4]) for process in processes)
    except psutil.Error:
        return math.nan


class HostMeter:
    """Measures the host's use of resources between two calls of `lap`; of its GPUs, those with the given UUIDs.

    `processes` are the run's on this host by their numbers; this one alone, if none is given.
    """

    def __init__(self, interface: str | None, cards: Sequence[str] = (), processes: Sequence[int] = ()) -> None:
        self._interface = interface
        self._traffic = TrafficMeter(interface)
        self._gpus = GpuMeter(cards)
        self._processes = _in_sight(processes or [os.getpid()])
        self._before = self._read()

    def lap(self) -> HostUse:
        before, self._before = self._before, self._read()
        seconds, busy, idle, steal, own, disk_read, disk_written = (
            now - then for now, then in zip(self._before, before, strict=True)
        )
        # Asked twice within one tick of the clock there is nothing to divide by.
        seconds = max(seconds, 1e-9)
        memory = psutil.virtual_memory()
        sent, received, read, written = (
            count / seconds / MEGA for count in (*self._traffic.lap(), disk_read, disk_written)
        )
        return HostUse(
            host=host_name(),
            seconds=round(seconds, DIGITS),
            cpu=round(busy / (busy + idle) if busy + idle else 0.0, DIGITS),
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            disk_read_mbyte_per_second=round(read, DIGITS),
            disk_written_mbyte_per_second=round(written, DIGITS),
            interface=self._interface,
            link_mbit_per_second=link_speed(self._interface),
            sent_mbyte_per_second=round(sent, DIGITS),
            sent_mbit_per_second=round(8 * sent, DIGITS),
            received_mbyte_per_second=round(received, DIGITS),
            received_mbit_per_second=round(8 * received, DIGITS),
            gpus=self._gpus.read(),
            # Both are counted in ticks of their own: neither can be more than the whole.
            cpu_own=_share(min(own, busy), busy + idle),
            cpu_steal=_share(min(steal, busy), busy + idle),
        )

    def _read(self) -> _Counters:
        counters = _Counters.read(self._processes or ())
        return counters if self._processes is not None else counters._replace(own_seconds=math.nan)

    def close(self) -> None:
        self._gpus.close()


def _in_sight(processes: Sequence[int]) -> list[psutil.Process] | None:
    """Processes by their numbers; None if one cannot be seen, as from another container."""
    try:
        return [psutil.Process(number) for number in processes]
    except psutil.Error:
        return None


def _share(seconds: float, whole: float) -> float | None:
    """A share of the time of all cores; None if it is not known."""
    return round(max(seconds, 0.0) / whole, DIGITS) if whole and math.isfinite(seconds) else None


class Sampler:
    """Takes a resource sample of the host every second, in a thread of its own, and hands it to `report`.

    After the first hour it is one every five seconds, whose rates are means over all of them.
    The thread sleeps but for a few milliseconds of each second, so that the steps take as long with it as without.
    `cards` are the UUIDs of all GPUs that the run uses on this host, `processes` the numbers of all its processes
    there: the process that samples may see only its own.
    """

    def __init__(
        self,
        interface: str | None,
        report: Callable[[HostUse], None],
        cards: Sequence[str] = (),
        processes: Sequence[int] = (),
    ) -> None:
        self._meter, self._report = HostMeter(interface, cards, processes), report
        self._samples: list[HostUse] = []
        self._newest: HostUse | None = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._sample_every_second, name="sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; after this nothing is handed over."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._meter.close()

    def drain(self) -> list[HostUse]:
        """The samples taken since the last call; if there are none, the newest one again."""
        newest = self._newest or self._sample()
        with self._lock:
            samples, self._samples = self._samples, []
        return samples or [newest]

    def _sample_every_second(self) -> None:
        began = due = time.monotonic()
        while True:
            # Counted from when the last sample was due, not from when it was done: otherwise the seconds drift.
            every = EVERY_SECONDS if due - began < FIRST_SECONDS else LATER_EVERY_SECONDS
            due = max(due + every, time.monotonic())
            if self._stopping.wait(due - time.monotonic()):
                return
            # A counter that fails for once, or a card that is gone, must end neither the samples nor the training.
            with suppress(OSError, LookupError, RuntimeError, psutil.Error):
                self._sample()

    def _sample(self) -> HostUse:
        with self._lock:
            use = self._newest = self._meter.lap()
            self._samples.append(use)
        self._report(use)
        return use
