"""The table of a timeline, and the files that it writes."""

import json
from xml.etree import ElementTree as ET

import pytest

from foldbatch.timelines import _LEFT, _WIDE, MOST, Span, Timeline, svg, trace_json


def test_a_row_of_many_names_lists_the_longest_and_sums_the_others():
    spans = [Span("host", f"name {number:02}", number, 0.001 * (number + 1)) for number in range(MOST + 3)]
    lines = repr(Timeline(spans, "of the host")).splitlines()
    assert len(lines) == 1 + MOST + 1
    assert lines[1].split()[:4] == ["host", "name", "14", "1"]
    assert lines[MOST].split() == ["4", "others", "4", "10.000", "0%"]


def test_files_are_whole_or_not_there(tmp_path):
    timeline = Timeline([Span("host", "plan", 0, 1)], "of the host")
    timeline.save(tmp_path / "one.json")
    timeline.plot(tmp_path / "one.svg")
    assert (tmp_path / "one.json").read_text().startswith('{"traceEvents"')
    assert (tmp_path / "one.svg").read_text().endswith("</svg>\n")
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


BOX = "{http://www.w3.org/2000/svg}rect"


def test_a_box_stands_where_and_as_long_as_its_span():
    spans = [Span("host", "a < b", 2, 1, {"level": 1}), Span("compute", "c", 3, 3)]
    root = ET.fromstring(svg(spans, "of the host"))
    boxes = [box for box in root.iter(BOX) if len(box)]
    assert [float(box.get("x")) for box in boxes] == pytest.approx([_LEFT, _LEFT + _WIDE / 4])
    assert [float(box.get("width")) for box in boxes] == pytest.approx([_WIDE / 4, _WIDE * 3 / 4])
    assert boxes[0].get("y") != boxes[1].get("y")
    assert boxes[0][0].text == "a < b: 1000 ms, level 1"
    assert "of the host" in [text.text for text in root.iter() if text.tag.endswith("text")]


def test_names_may_have_any_sign():
    names = ["é", "\x0b", "\ud800", "\uffff", "a\nb", "<&\"'>"]
    root = ET.fromstring(svg([Span("host", name, 0, 1) for name in names], "").encode())
    titles = [box[0].text.partition(":")[0] for box in root.iter(BOX) if len(box)]
    assert titles == ["é", "\\x0b", "\\ud800", "\\uffff", "a\\nb", "<&\"'>"]


def test_many_names_and_none_are_drawn():
    spans = [Span("host", f"name {number}", number, 1) for number in range(2 * MOST)]
    root = ET.fromstring(svg(spans, ""))
    boxes = [box for box in root.iter(BOX) if len(box)]
    assert len({box.get("fill") for box in boxes}) == MOST + 1
    assert len(list(ET.fromstring(svg([], "")).iter(BOX))) == 1
