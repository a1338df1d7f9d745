"""What all hosts of a run do: each samples itself, and every now and then they tell each other."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

from tandem.cluster.world import World
from tandem.monitor.journal import Recorder
from tandem.monitor.records import HostSummary, HostUse, Sampled, Surveyed
from tandem.monitor.sampler import Sampler, summarise

# Every host writes down what all of them did: often enough for a picture, seldom enough for a hundred hosts.
EVERY_SECONDS = 10.0


class Survey:
    """Lets the first process of this host sample it, and puts the hosts' summaries together."""

    def __init__(self, world: World, recorder: Recorder, step: Callable[[], int]) -> None:
        self._world, self._recorder = world, recorder
        self._next = time.monotonic()
        interface = None if world.interface is None else world.interface.name

        def record(use: HostUse) -> None:
            # The step under way, which is one more than have been taken.
            recorder.record(Sampled(step=step() + 1, use=use))

        self._sampler = Sampler(interface, record, world.host_cards) if world.leads_host else None

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

    @property
    def due(self) -> bool:
        """Whether this process would like the hosts to tell each other; the first one's wish counts for all."""
        return self._world.leads and time.monotonic() >= self._next

    def take(self, step: int, seconds: dict[str, float]) -> None:
        """Put down every host's summary of the time since the last one; all processes take part."""
        self._next = time.monotonic() + EVERY_SECONDS
        mine = b""
        if self._sampler is not None:
            mine = json.dumps(asdict(summarise(self._sampler.take(), seconds))).encode()
        hosts = [HostSummary(**json.loads(said)) for said in self._world.from_each_host(mine)]
        # One journal on each host is enough to know of all of them there.
        if self._sampler is not None:
            self._recorder.record(Surveyed(step=step, hosts=hosts))
