"""Figures of a server in the form of Prometheus: queue, batches, latencies, refusals, reloads."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
NODES = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)


class Metrics:
    """Counters of one server, in a registry of its own.

    Attributes:
        content_type: of `text`.

    >>> metrics = Metrics()
    >>> metrics.batch(3, 90, 0.002)
    >>> b"foldbatch_batch_examples_sum 3.0" in metrics.text()
    True
    """

    content_type: str = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()

        def histogram(name: str, what: str, bounds: tuple[float, ...]) -> Histogram:
            return Histogram(f"foldbatch_{name}", what, buckets=bounds, registry=registry)

        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(f"foldbatch_{name}", what, labels, registry=registry)

        self._seconds = histogram("request_seconds", "Time from a request's arrival to its answer", SECONDS)
        self._batch_examples = histogram("batch_examples", "Examples of a batch", SIZES)
        self._batch_nodes = histogram("batch_nodes", "Nodes of a batch", NODES)
        self._batch_seconds = histogram("batch_seconds", "Time that a batch ran", SECONDS)
        self._requests = counter("requests", "Requests for predictions, by status", "status")
        self._refusals = counter("refused_examples", "Examples that were refused, by reason", "reason")
        self._reloads = counter("reloads", "Models read anew, by outcome", "outcome")
        self._statuses: dict[int, Counter] = {}

    def watch_queue(self, examples: Callable[[], int], nodes: Callable[[], int]) -> None:
        """Tell what functions return as the present length of the queue."""
        for name, what, length in (
            ("queue_examples", "Examples that wait", examples),
            ("queue_nodes", "Nodes that wait", nodes),
        ):
            Gauge(f"foldbatch_{name}", what, registry=self._registry).set_function(length)

    def batch(self, examples: int, nodes: int, seconds: float) -> None:
        """Take note of a batch that ran."""
        self._batch_examples.observe(examples)
        self._batch_nodes.observe(nodes)
        self._batch_seconds.observe(seconds)

    def request(self, status: int, seconds: float) -> None:
        """Take note of a request that was answered."""
        if status not in self._statuses:
            self._statuses[status] = self._requests.labels(status)
        self._statuses[status].inc()
        self._seconds.observe(seconds)

    def refused(self, reason: str) -> None:
        """Take note of an example that was refused; the reason is a single word."""
        self._refusals.labels(reason).inc()

    def reloaded(self, outcome: str) -> None:
        """Take note of a model that was read anew: ``ok`` or ``failed``."""
        self._reloads.labels(outcome).inc()

    def text(self) -> bytes:
        """Return all figures in Prometheus' text format."""
        written: bytes = generate_latest(self._registry)
        return written
