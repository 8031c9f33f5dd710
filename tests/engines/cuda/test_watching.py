"""Calls of a device, timed on their streams."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines.cuda.watching import BY_EVENTS, StreamsWatched, TimingDriver
from tests.engines.cuda.emulated import needs_compiler

EXAMPLES = [[[1, 2], [3, 4]], [[0, 1]]]


def _program():
    block = (
        fb.Map(fb.Vector(2)) >> fb.RNN(fb.GRUCell(2)) >> fb.GetItem(1) >> fb.Function(fb.ops.sum) >> fb.Loss()
    )
    return fb.compile(block, "cuda-on-cpu", seed=1)


class Driver:
    """It enqueues nothing, and has a clock of its own that counts what it is asked."""

    def __init__(self):
        self.count = 0

    def clock(self, stream):
        return self

    def mark(self, stream):
        self.count += 1
        return self.count

    def seconds(self, mark):
        return float(mark)

    def copy_in(self, pointer, source, stream):
        return "copied"

    def launch(self, function, blocks, threads, arguments, stream):
        return "launched"

    def begin_capture(self, stream):
        self.capturing = stream

    def end_capture(self, stream):
        return "graph"

    def event(self):
        return "event"


def test_what_is_enqueued_is_marked_on_its_stream_and_nothing_else_is():
    driver, compute, copies, other = Driver(), object(), object(), object()
    timed = TimingDriver(
        driver, {id(compute): "compute", id(copies): "copies"}, driver, {id(driver): "named"}
    )
    assert timed.copy_in(0, np.zeros(3, np.uint8), copies) == "copied"
    assert timed.launch(driver, 1, (1, 1), [], compute) == "launched"
    timed.label = "step", {"level": 2}
    timed.launch(driver, 1, (1, 1), [], stream=compute)
    assert timed.event() == "event"
    timed.launch(driver, 1, (1, 1), [], other)
    timed.begin_capture(compute)
    timed.launch(driver, 1, (1, 1), [], compute)
    assert timed.end_capture(compute) == "graph"
    assert timed.marks == [
        ("copies", "copy_in", {"bytes": 3}, 1, 2),
        ("compute", "named", {}, 3, 4),
        ("compute", "step", {"level": 2}, 5, 6),
    ]


@needs_compiler
def test_copies_and_steps_have_rows_of_their_own_and_the_driver_comes_back():
    program = _program()
    device = program.engine.device
    before = device.driver
    timeline = program.profile(EXAMPLES, steps=2)
    assert device.driver is before
    assert timeline.note == BY_EVENTS
    assert {span.row for span in timeline.spans} == {"host", "copies", "compute"}
    copied = [span for span in timeline.spans if span.name == "copy_in"]
    assert len(copied) == 2
    assert copied[0].arguments["bytes"] > 0
    steps = [span for span in timeline.spans if span.name.endswith("forward_step")]
    assert [(span.arguments["level"], span.arguments["rows"]) for span in steps[:2]] == [(0, 2), (1, 1)]
    assert any("product" in span.arguments for span in timeline.spans)


@needs_compiler
def test_the_driver_comes_back_after_an_error():
    device = _program().engine.device
    before = device.driver
    with pytest.raises(ZeroDivisionError), StreamsWatched(device):
        assert device.driver is not before
        raise ZeroDivisionError
    assert device.driver is before


@needs_compiler
def test_the_driver_comes_back_whichever_of_two_timelines_ends_first():
    device = _program().engine.device
    before = device.driver
    one, other = StreamsWatched(device), StreamsWatched(device)
    for first, second in ((one, other), (other, one)):
        one.__enter__()
        other.__enter__()
        first.__exit__()
        assert device.driver is not before
        second.__exit__()
        assert device.driver is before


@needs_compiler
def test_a_step_that_is_due_is_watched_when_it_is_launched():
    program = _program()
    timeline = program.profile(EXAMPLES, steps=3)
    assert len([span for span in timeline.spans if span.name == "copy_in"]) == 3
