"""What the server counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class ServerMetrics:
    """Counters of one app, in a registry of its own."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self.requests = Counter("tandem_requests", "Requests answered", ["path", "status"], registry=registry)
        self.seconds = Histogram(
            "tandem_request_seconds", "Time to the end of an answer", ["path"], buckets=_SECONDS, registry=registry
        )
        self.open_requests = Gauge("tandem_open_requests", "Requests being worked on", registry=registry)
        self.queue = Gauge("tandem_queue_sentences", "Sentences waiting for a batch", registry=registry)
        self.batches = Histogram(
            "tandem_batch_sentences", "Sentences of a batch", buckets=_SENTENCES, registry=registry
        )
        self.sentences = Counter("tandem_sentences", "Sentences translated", registry=registry)
        self.dropped = Counter("tandem_dropped_sentences", "Sentences nobody waited for any more", registry=registry)
        self.characters = Counter("tandem_characters", "Characters taken in for translation", registry=registry)
        self.step = Gauge("tandem_model_step", "Training step of the model", ["source", "target"], registry=registry)
        self.reloads = Counter("tandem_reloads", "New models taken or refused", ["result"], registry=registry)

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self._registry)
