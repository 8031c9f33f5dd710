"""Traces in Chrome's format: what its description demands of each event."""

from __future__ import annotations

import json

from foldbatch.timelines.chrome import trace_json
from foldbatch.timelines.spans import Span


def checked(text: str) -> tuple[dict[int, str], list[dict]]:
    """Return the names of threads and the complete events of a trace, checked against the format."""
    trace = json.loads(text)
    threads, events = {}, []
    for event in trace["traceEvents"]:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert isinstance(event["args"], dict)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name", "thread_sort_index")
            if event["name"] == "thread_name":
                threads[event["tid"]] = event["args"]["name"]
        else:
            assert event["ph"] == "X"
            assert isinstance(event["cat"], str)
            assert event["ts"] >= 0 and event["dur"] >= 0
            events.append(event)
    assert {event["tid"] for event in events} <= set(threads)
    assert trace["displayTimeUnit"] in ("ms", "ns")
    return threads, events


def test_rows_are_threads_and_times_are_in_microseconds():
    spans = [Span("host", "plan", 0.5, 0.25), Span("compute", "lstm", 1.0, 0.5, {"level": 3, "cell": "tree"})]
    threads, events = checked(trace_json(spans, "of the host"))
    assert threads == {1: "host", 2: "compute"}
    assert [(event["name"], event["ts"], event["dur"], event["tid"]) for event in events] == [
        ("plan", 500_000, 250_000, 1),
        ("lstm", 1_000_000, 500_000, 2),
    ]
    assert events[1]["args"] == {"level": 3, "cell": "tree"}
    assert json.loads(trace_json([], "here"))["otherData"] == {"note": "here"}
