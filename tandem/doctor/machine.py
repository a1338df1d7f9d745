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

from tandem.cluster.network import host_name, link_speed
from tandem.cluster.version import package_version
from tandem.cluster.world import World

PROCESSORS_FILE = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Gpu:
    """A card that PyTorch can compute on."""

    name: str
    memory_bytes: int


@dataclass(frozen=True)
class Machine:
    """One host of those that would train."""

    host: str
    processes: int
    """Of this run, on this host."""
    processor: str
    cores: int
    """Logical ones that this host's first process may use."""
    threads: int
    """That each process computes with."""
    memory_bytes: int
    memory_free_bytes: int
    gpus: tuple[Gpu, ...]
    versions: str
    driver: str | None
    """Of the GPUs."""
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
    mine = form.dump_json(this_machine(world, disk)) if world.leads_host else b""
    return tuple(form.validate_json(said) for said in world.from_each_host(mine))


def this_machine(world: World, disk: Path) -> Machine:
    """This process's host."""
    memory, directory = psutil.virtual_memory(), nearest_directory(disk)
    interface = None if world.interface is None else world.interface.name
    return Machine(
        host=world.host_names[world.host] or host_name(),
        processes=len(world.hosts[world.host]),
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        threads=torch.get_num_threads(),
        memory_bytes=memory.total,
        memory_free_bytes=memory.available,
        gpus=_gpus(),
        versions=f"{package_version()}, Python {platform.python_version()}",
        driver=driver_version(),
        disk=str(directory),
        disk_free_bytes=shutil.disk_usage(directory).free,
        interface=interface,
        interface_mbit=link_speed(interface),
    )


def nearest_directory(path: Path) -> Path:
    """The path, or the directory above it that is there already."""
    return next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.is_dir())


def _gpus() -> tuple[Gpu, ...]:
    properties = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    return tuple(Gpu(card.name, card.total_memory) for card in properties)


def driver_version() -> str | None:
    """Of NVIDIA's driver; None without one."""
    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        try:
            return str(pynvml.nvmlSystemGetDriverVersion())
        finally:
            pynvml.nvmlShutdown()
    return None


def _processor() -> str:
    """Its name as people know it, where the system tells."""
    with suppress(OSError):
        for line in PROCESSORS_FILE.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
