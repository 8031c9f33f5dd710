"""Spans, their rows and sums."""

from __future__ import annotations

from foldbatch.timelines.spans import Span, rows_of, totals

SPANS = [Span("host", "plan", 0, 1), Span("copies", "copy_in", 1, 2), Span("host", "plan", 3, 3)]


def test_rows_come_in_the_order_of_their_first_spans():
    assert rows_of(SPANS) == ["host", "copies"]
    assert rows_of([]) == []


def test_totals_are_by_name_the_longest_first():
    assert totals(SPANS) == [("plan", 4, 2), ("copy_in", 2, 1)]
    assert SPANS[1].end == 3
