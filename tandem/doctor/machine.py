"""What a host has: processors, memory, GPUs, disk, network card, versions."""

from __future__ import annotations

import os
import platform
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pynvml
import torch
from pydantic import TypeAdapter

from tandem.cluster.devices import visible_gpus
from tandem.cluster.source_version import package_version
from tandem.cluster.world import World
from tandem.monitor.network_interfaces import host_name, link_speed

PROCESSORS_FILE = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Gpu:
    """A GPU that PyTorch can compute on."""

    name: str
    memory_bytes: int


@dataclass(frozen=True)
class Machine:
    """A host that would train."""

    host: str
    processes: int
    processor: str
    cores: int
    """Logical cores that this host's first process may use."""
    threads: int
    """Threads that each process computes with."""
    memory_bytes: int
    memory_free_bytes: int
    gpus: tuple[Gpu, ...]
    versions: str
    driver: str | None
    disk: str
    """The directory that the run would be put in, or the nearest one above it that exists."""
    disk_free_bytes: int
    interface: str | None
    """The network card that leads to the other hosts."""
    interface_mbit: int | None
    """Its speed, where the system knows it; what lies behind it may be slower."""


def every_machine(world: World, disk: Path) -> tuple[Machine, ...]:
    """All hosts, in their order; all processes take part."""
    form = TypeAdapter(Machine)
    mine = form.dump_python(_this_machine(world, disk), mode="json") if world.is_host_leader else None
    return tuple(form.validate_python(said) for said in filter(None, world.gather(mine)))


def _this_machine(world: World, disk: Path) -> Machine:
    memory = psutil.virtual_memory()
    directory = next(parent for parent in (disk.absolute(), *disk.absolute().parents) if parent.is_dir())
    interface = None if world.interface is None else world.interface.name
    return Machine(
        host=world.host_names[world.host] or host_name(),
        processes=len(world.hosts[world.host]),
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        threads=torch.get_num_threads(),
        memory_bytes=memory.total,
        memory_free_bytes=memory.available,
        gpus=tuple(Gpu(gpu.name, gpu.memory_bytes) for gpu in visible_gpus()),
        versions=f"{package_version()}, Python {platform.python_version()}",
        driver=driver_version(),
        disk=str(directory),
        disk_free_bytes=shutil.disk_usage(directory).free,
        interface=interface,
        interface_mbit=link_speed(interface),
    )


def driver_version() -> str | None:
    """Version of NVIDIA's driver; None without one."""
    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        try:
            return str(pynvml.nvmlSystemGetDriverVersion())
        finally:
            pynvml.nvmlShutdown()
    return None


def _processor() -> str:
    """Name of the CPU's model, where the system tells."""
    with suppress(OSError):
        for line in PROCESSORS_FILE.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
