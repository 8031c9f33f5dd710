"""Spans: pieces of work with their times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


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
    """Return the rows of spans, in the order in which they first appear.

    >>> rows_of([Span("host", "plan", 0, 1), Span("copies", "copy_in", 1, 1), Span("host", "plan", 2, 1)])
    ['host', 'copies']
    """
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
