"""The table of a timeline, and the files that it writes."""

import json

import pytest

from foldbatch.timelines import MOST, Span, Timeline, trace_json


def test_a_row_of_many_names_lists_the_longest_and_sums_the_others():
    spans = [Span("host", f"name {number:02}", number, 0.001 * (number + 1)) for number in range(MOST + 3)]
    lines = repr(Timeline(spans, "of the host")).splitlines()
    assert len(lines) == 1 + MOST + 1
    assert lines[1].split()[:4] == ["host", "name", "14", "1"]
    assert lines[MOST].split() == ["4", "others", "4", "10.000", "0%"]


def test_files_are_whole_or_not_there(tmp_path):
    timeline = Timeline([Span("host", "plan", 0, 1)], "of the host")
    timeline.save(tmp_path / "one.json")
    assert (tmp_path / "one.json").read_text().startswith('{"traceEvents"')
    with pytest.raises(OSError, match="missing"):
        timeline.save(tmp_path / "missing" / "one.json")


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
