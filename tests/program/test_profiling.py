"""Timelines: of a program's runs, and as files and pictures."""

import json
from itertools import pairwise

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import BlockTypeError, BlockValueError, ExampleError
from foldbatch.timelines import MAX_TABLE_LINES, Span, Timeline, trace_json
from tests.backends import BACKENDS
from tests.knobs import knobs

EXAMPLES = [[[1, 2], [3, 4]], [[0, 1]]]
PHASES = ["trace", "merge", "schedule", "ready", "forward", "backward"]


def _program(backend, **options):
    block = (
        fb.Map(fb.Vector(2)) >> fb.RNN(fb.GRUCell(2)) >> fb.GetItem(1) >> fb.Function(fb.ops.sum) >> fb.Loss()
    )
    return fb.compile(block, backend, **knobs(options))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_host_goes_through_its_phases_step_by_step(backend, tmp_path):
    program = _program(backend)
    before = {name: np.array(value) for name, value in program.params.items()}
    timeline = program.profile(EXAMPLES, steps=2)
    host = [span for span in timeline.spans if span.row == "host"]
    names = [span.name for span in host if span.arguments["step"] == 1]
    assert list(dict.fromkeys(names)) == [*PHASES, "wait"]
    assert all(a.end <= b.start + 1e-6 for a, b in pairwise(host))
    assert host[0].start == 0
    assert timeline.seconds >= sum(span.seconds for span in host) - 1e-6
    for name, value in program.params.items():
        np.testing.assert_array_equal(value, before[name])
    timeline.save(tmp_path / "trace.json")
    assert len(json.loads((tmp_path / "trace.json").read_text())["traceEvents"]) > len(host)


@pytest.mark.parametrize("backend", BACKENDS)
def test_inference_has_no_backward_pass(backend):
    program = _program(backend)
    names = [span.name for span in program.profile(EXAMPLES, steps=1, training=False).spans]
    assert "forward" in names
    assert not any("backward" in name for name in names)


def test_kernels_of_parts_in_threads_have_rows_of_their_own(monkeypatch):
    monkeypatch.setattr("foldbatch.engines.threads.CALLS_PER_PART", 1)
    monkeypatch.setattr("foldbatch.engines.threads.MULTIPLICATIONS_PER_PART", 1)
    timeline = _program("numpy", threads=2).profile(EXAMPLES, steps=1)
    assert {span.row for span in timeline.spans} == {"host", "part 1", "part 2"}


def test_a_plan_and_no_example_can_be_profiled():
    program = _program("numpy")
    assert program.profile(program.plan(EXAMPLES), steps=1).seconds > 0
    assert [span.row for span in program.profile([], steps=1).spans if span.row != "host"] == []


def test_wrong_arguments_are_refused():
    program = _program("numpy")
    with pytest.raises(
        BlockValueError, match="profile steps: expected a whole number of 1 or more, found int 0"
    ):
        program.profile(EXAMPLES, steps=0)
    with pytest.raises(BlockTypeError, match="profile training: expected True or False"):
        program.profile(EXAMPLES, training="yes")
    with pytest.raises(ExampleError):
        program.profile(["no vectors"])


def test_a_row_of_many_names_lists_the_longest_and_sums_the_others():
    spans = [
        Span("host", f"name {number:02}", number, 0.001 * (number + 1))
        for number in range(MAX_TABLE_LINES + 3)
    ]
    lines = repr(Timeline(spans, "of the host")).splitlines()
    assert len(lines) == 1 + MAX_TABLE_LINES + 1
    assert lines[1].split()[:4] == ["host", "name", "14", "1"]
    assert lines[MAX_TABLE_LINES].split() == ["4", "others", "4", "10.000", "0%"]


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
