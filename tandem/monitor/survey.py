"""What all hosts of a run do: each samples itself, and at every log line they tell each other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

from tandem.cluster.world import World
from tandem.monitor.journal import Recorder
from tandem.monitor.records import HostSummary, HostUse, Sampled
from tandem.monitor.sampler import Sampler, summarise


class Survey:
    """Lets the first process of this host sample it, and puts the hosts' summaries together."""

    def __init__(self, world: World, recorder: Recorder, step: Callable[[], int]) -> None:
        self._world = world
        interface = None if world.interface is None else world.interface.name

        def record(use: HostUse) -> None:
            # The step under way, which is one more than have been taken.
            recorder.record(Sampled(step=step() + 1, use=use))

        self._sampler = Sampler(interface, record) if world.leads_host else None

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Sample while the block lasts."""
        if self._sampler is None:
            yield
            return
        self._sampler.start()
        try:
            yield
        finally:
            self._sampler.stop()

    def take(self, seconds: dict[str, float]) -> list[HostSummary]:
        """Every host's summary of the time since this was last asked; all processes take part."""
        mine = b""
        if self._sampler is not None:
            mine = json.dumps(asdict(summarise(self._sampler.take(), seconds))).encode()
        return [HostSummary(**json.loads(said)) for said in self._world.from_each_host(mine)]
