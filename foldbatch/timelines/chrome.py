"""The trace event format of Chrome, which Perfetto (https://ui.perfetto.dev) and chrome://tracing show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from foldbatch.timelines.spans import Span, rows_of

PROCESS = 1
MICRO = 1e6  # the format counts in microseconds


def trace_json(spans: Sequence[Span], note: str) -> str:
    """Return spans as a trace: each row is a thread of one process, and each span a complete event.

    Source: "Trace Event Format", Google 2016.
    """
    events: list[dict[str, Any]] = [_named("process_name", 0, {"name": "foldbatch"})]
    numbers = {row: number for number, row in enumerate(rows_of(spans), 1)}
    for row, number in numbers.items():
        events.append(_named("thread_name", number, {"name": row}))
        events.append(_named("thread_sort_index", number, {"sort_index": number}))
    for span in spans:
        times = {"ts": round(span.start * MICRO, 3), "dur": round(span.seconds * MICRO, 3)}
        event = {"name": span.name, "cat": span.row, "ph": "X", **times}
        events.append({**event, "pid": PROCESS, "tid": numbers[span.row], "args": dict(span.arguments)})
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"note": note}})


def _named(name: str, thread: int, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": PROCESS, "tid": thread, "args": arguments}
