"""How soon a silent process or host is named, and what heartbeats cost.

    python -m bench.liveness [--rounds 3] [--seconds 60]

Processes with a heartbeat and nothing else, with the timing that trainings have: one of two is stopped (SIGSTOP), and
the cable of one of two hosts in network namespaces is pulled (that needs root), until the other process tells. Then
some rest for a while, and the processor time of the first one, which hears all, is read.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import time
from collections.abc import Callable, Sequence

from testbed.beating_processes import BeatingProcess, members
from testbed.network_rig import Rig, unavailable


def seconds_until_named(first: BeatingProcess, fault: Callable[[], None]) -> float:
    start = time.perf_counter()
    fault()
    told = first.hears()
    assert told is not None
    assert told[0] == "silent", told
    return time.perf_counter() - start


def stopped() -> float:
    with members("vm1", "vm2", impatient=False) as (first, second):
        return seconds_until_named(first, lambda: second.signal(signal.SIGSTOP))


def cut_off() -> float:
    with Rig() as rig:
        hosts = rig.hosts

        def start(rank: int, command: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[str]:
            pipe = subprocess.PIPE
            return rig.run(hosts[rank], command, environment, stdin=pipe, stdout=pipe)

        names, addresses = [host.name for host in hosts], [host.address for host in hosts]
        with members(*names, addresses=addresses, start=start, impatient=False) as (first, _):
            return seconds_until_named(first, lambda: rig.pull_cable(hosts[1]))


def processor_share(processes: int, seconds: float) -> tuple[float, float]:
    """Shares of a processor that the first and the last of some processes use for their heartbeats."""
    with members(*(f"vm{number}" for number in range(processes)), impatient=False) as running:
        ends = (running[0], running[-1])
        before, start = [process.processor_seconds() for process in ends], time.perf_counter()
        time.sleep(seconds)
        lasted = time.perf_counter() - start
        first, last = (process.processor_seconds() - used for process, used in zip(ends, before, strict=True))
        return first / lasted, last / lasted


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--seconds", type=float, default=60)
    options = arguments.parse_args()
    for what, measure in (("a stopped process", stopped), ("a host off the network", cut_off)):
        if measure is cut_off and (reason := unavailable()):
            print(f"{what}: {reason}")
            continue
        times = [measure() for _ in range(options.rounds)]
        print(f"{what} is named after {', '.join(f'{seconds:.1f}' for seconds in times)} s")
    for processes in (2, 8):
        first, last = processor_share(processes, options.seconds)
        print(f"heartbeats of {processes} processes: {first:.3%} of a processor in the first, {last:.3%} in the last")


if __name__ == "__main__":
    main()
