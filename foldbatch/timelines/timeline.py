"""A timeline: what the host, its threads and the streams of a device did, and when."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from foldbatch.output import write_whole
from foldbatch.timelines.chrome import trace_json
from foldbatch.timelines.picture import svg
from foldbatch.timelines.spans import Span, rows_of, totals

MOST = 12  # lines of the table for a row


@dataclass(frozen=True, slots=True, repr=False)
class Timeline:
    """What ran when; see `foldbatch.Program.profile`. Printed, it is a table: time by row and name.

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
        lines = [("row", "name", "count", "total ms", "share"), *self._lines()]
        widths = [max(len(line[column]) for line in lines) for column in range(5)]
        listed = [
            "  ".join(
                [text.ljust(width) for text, width in zip(line[:2], widths[:2], strict=True)]
                + [text.rjust(width) for text, width in zip(line[2:], widths[2:], strict=True)]
            )
            for line in lines
        ]
        return "\n".join([*listed, f"{self.seconds * 1e3:.3f} ms in all; times {self.note}"])

    def _lines(self) -> Iterator[tuple[str, ...]]:
        """Yield the lines of the table: a row's names, the longest first; the others are one line."""
        whole = self.seconds or 1.0
        for row in rows_of(self.spans):
            entries = totals([span for span in self.spans if span.row == row])
            if len(entries) > MOST:
                rest = entries[MOST - 1 :]
                seconds, count = sum(entry[1] for entry in rest), sum(entry[2] for entry in rest)
                entries = [*entries[: MOST - 1], (f"{len(rest)} others", seconds, count)]
            for number, (name, seconds, count) in enumerate(entries):
                figures = f"{count}", f"{seconds * 1e3:.3f}", f"{seconds / whole:.0%}"
                yield ("" if number else row, name, *figures)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a trace in Chrome's format (JSON), for https://ui.perfetto.dev or chrome://tracing.

        Args:
            path: of the file, which is replaced.

        Raises:
            OSError: when the file cannot be written.
        """
        write_whole(Path(path), trace_json(self.spans, self.note).encode())

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Write a picture (SVG): a lane for each row, a box for each span.

        Args:
            path: of the file, which is replaced.

        Raises:
            OSError: when the file cannot be written.
        """
        write_whole(Path(path), svg(self.spans, self.note).encode())
