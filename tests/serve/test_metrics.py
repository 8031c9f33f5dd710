"""Figures are counted, each server for itself."""

import pytest

from tests.serve.conftest import NEEDS

ServerMetrics = pytest.importorskip("foldbatch.serve.predict", reason=NEEDS).ServerMetrics


def test_everything_is_counted():
    metrics, other = ServerMetrics(), ServerMetrics()
    metrics.watch_queue(lambda: 3, lambda: 90)
    metrics.batch(4, 100, 0.02)
    metrics.request(200, 0.03)
    metrics.request(200, 0.03)
    metrics.refusals.labels("size").inc()
    metrics.reloads.labels("failed").inc()
    lines = metrics.text().decode().splitlines()
    for line in (
        "foldbatch_queue_examples 3.0",
        "foldbatch_queue_nodes 90.0",
        'foldbatch_batch_examples_bucket{le="4.0"} 1.0',
        "foldbatch_batch_nodes_sum 100.0",
        "foldbatch_request_seconds_count 2.0",
        'foldbatch_requests_total{status="200"} 2.0',
        'foldbatch_refused_examples_total{reason="size"} 1.0',
        'foldbatch_reloads_total{outcome="failed"} 1.0',
    ):
        assert line in lines
    assert b"foldbatch_request_seconds_count 0.0" in other.text()
