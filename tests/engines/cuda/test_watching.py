"""Calls of a device, timed on their streams."""

import numpy as np

from foldbatch.engines.cuda.engine import TimingDriver


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
