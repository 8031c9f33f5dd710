"""Timelines: what ran when, as data, as a table and as a trace for browsers."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foldbatch.system.files import write_whole
from foldbatch.system.showing import table

__all__ = ["Timeline"]


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of work.

    Attributes:
        row: who did it, such as ``host`` or ``compute``.
        name: what was done.
        start: when it began, in seconds.
        seconds: how long it took.
        arguments: what else there is to say, such as its cell, level and rows.
    """

    row: str
    name: str
    start: float
    seconds: float
    arguments: Mapping[str, int | str] = field(default_factory=dict)

    @property
    def end(self) -> float:
        """When it ended, in seconds."""
        return self.start + self.seconds


def rows_of(spans: Sequence[Span]) -> list[str]:
    """Return the rows of spans, in the order in which they first appear."""
    return list(dict.fromkeys(span.row for span in spans))


def totals(spans: Sequence[Span]) -> list[tuple[str, float, int]]:
    """Return each name's seconds and number of spans, the longest first.

    >>> totals([Span("host", "plan", 0, 1), Span("host", "run", 1, 4), Span("host", "plan", 5, 2)])
    [('run', 4, 1), ('plan', 3, 2)]
    """
    sums: dict[str, tuple[float, int]] = {}
    for span in spans:
        seconds, count = sums.get(span.name, (0, 0))
        sums[span.name] = seconds + span.seconds, count + 1
    listed = [(name, seconds, count) for name, (seconds, count) in sums.items()]
    return sorted(listed, key=lambda entry: -entry[1])


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


MAX_TABLE_LINES = 12  # lines of the table for a row


@dataclass(frozen=True, slots=True, repr=False)
class Timeline:
    """The spans of a profiled run; see `foldbatch.Program.profile`. Printed: time by row and name.

    Attributes:
        spans: by row, in the order in which they ran.
        note: where the times come from.

    >>> Timeline((Span("host", "plan", 0, 0.001), Span("host", "forward", 0.001, 0.003)), "of the host")
    row   name     count  total ms  share
    host  forward      1     3.000    75%
          plan         1     1.000    25%
    4.000 ms in all; times of the host
    """

    spans: Sequence[Span]
    note: str

    @property
    def seconds(self) -> float:
        """From the beginning of the first span to the end of the last."""
        first = min((span.start for span in self.spans), default=0.0)
        return max((span.end for span in self.spans), default=0.0) - first

    def __repr__(self) -> str:
        shown = table(("row", "name", "count", "total ms", "share"), self._lines(), left_columns=2)
        return f"{shown}\n{self.seconds * 1e3:.3f} ms in all; times {self.note}"

    def _lines(self) -> Iterator[tuple[str, ...]]:
        """Yield the lines of the table: a row's names, the longest first; the others are one line."""
        total = self.seconds or 1.0
        for row in rows_of(self.spans):
            entries = totals([span for span in self.spans if span.row == row])
            if len(entries) > MAX_TABLE_LINES:
                unlisted = entries[MAX_TABLE_LINES - 1 :]
                seconds, count = sum(entry[1] for entry in unlisted), sum(entry[2] for entry in unlisted)
                entries = [*entries[: MAX_TABLE_LINES - 1], (f"{len(unlisted)} others", seconds, count)]
            for number, (name, seconds, count) in enumerate(entries):
                figures = f"{count}", f"{seconds * 1e3:.3f}", f"{seconds / total:.0%}"
                yield ("" if number else row, name, *figures)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a trace in Chrome's format (JSON), for https://ui.perfetto.dev or chrome://tracing.

        Args:
            path: of the file, which is replaced.

        Raises:
            OSError: when the file cannot be written.
        """
        write_whole(Path(path), trace_json(self.spans, self.note).encode())
