"""Resources of all hosts of a run: each host samples itself, and every now and then all of them exchange summaries."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

from tandem.cluster.world import World
from tandem.monitor.host_summary import summarise
from tandem.monitor.journal import Recorder
from tandem.monitor.records import HostSummary, HostUse, Sampled, Surveyed
from tandem.monitor.sampler import Sampler

# Every host writes down the summaries of all: often enough for `tandem watch`, seldom enough for a hundred hosts.
EVERY_SECONDS = 10.0
# After the first hour: each survey is as long as there are hosts.
FIRST_SECONDS, LATER_EVERY_SECONDS = 3600.0, 60.0


class HostMonitor:
    """Samples this host in its first process, and gathers the summaries of all hosts."""

    def __init__(self, world: World, recorder: Recorder, step: Callable[[], int]) -> None:
        self._world, self._recorder = world, recorder
        self._began = self._next_survey = time.monotonic()
        interface = None if world.interface is None else world.interface.name

        def record(use: HostUse) -> None:
            # The step under way, which is one more than have been taken.
            recorder.record(Sampled(step=step() + 1, use=use))

        here = world.hosts[world.host]
        processes = [number for rank, number in enumerate(world.gather(os.getpid())) if rank in here]
        self._sampler = Sampler(interface, record, world.host_cards, processes) if world.is_host_leader else None

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Sample while the block lasts."""
        if self._sampler is None:
            yield
            return
        self._sampler.start()
        try:
            yield
        finally:
            self._sampler.stop()

    @property
    def survey_due(self) -> bool:
        """Whether it is time to gather summaries; the first process decides for all."""
        return self._world.is_leader and time.monotonic() >= self._next_survey

    def survey(self, step: int, seconds: dict[str, float]) -> None:
        """Record every host's summary of the time since the last survey; all processes take part."""
        now = time.monotonic()
        self._next_survey = now + (EVERY_SECONDS if now - self._began < FIRST_SECONDS else LATER_EVERY_SECONDS)
        summary = None if self._sampler is None else asdict(summarise(self._sampler.drain(), seconds))
        hosts = [HostSummary(**other) for other in filter(None, self._world.gather(summary))]
        # One journal on each host is enough to know of all of them there.
        if self._sampler is not None:
            self._recorder.record(Surveyed(step=step, hosts=hosts))
