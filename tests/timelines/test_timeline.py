"""The table of a timeline, and the files that it writes."""

from __future__ import annotations

import pytest

from foldbatch.timelines.spans import Span
from foldbatch.timelines.timeline import MOST, Timeline


def test_a_row_of_many_names_lists_the_longest_and_sums_the_others():
    spans = [Span("host", f"name {number:02}", number, 0.001 * (number + 1)) for number in range(MOST + 3)]
    lines = repr(Timeline(spans, "of the host")).splitlines()
    assert len(lines) == 1 + MOST + 1
    assert lines[1].split()[:4] == ["host", "name", "14", "1"]
    assert lines[MOST].split() == ["4", "others", "4", "10.000", "0%"]


def test_no_span_takes_no_time():
    assert Timeline((), "").seconds == 0
    assert "0.000 ms in all" in repr(Timeline((), ""))


def test_files_are_whole_or_not_there(tmp_path):
    timeline = Timeline([Span("host", "plan", 0, 1)], "of the host")
    timeline.save(tmp_path / "one.json")
    timeline.plot(tmp_path / "one.svg")
    assert (tmp_path / "one.json").read_text().startswith('{"traceEvents"')
    assert (tmp_path / "one.svg").read_text().endswith("</svg>\n")
    with pytest.raises(OSError, match="missing"):
        timeline.save(tmp_path / "missing" / "one.json")
