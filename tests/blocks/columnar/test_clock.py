"""The times of calls, found at once, are those found one by one."""

from __future__ import annotations

import numpy as np

from foldbatch.blocks.columnar.clock import Calls, Frame, Recursion, Turns, Visits


def test_calls_within_loops_and_visits_have_their_times():
    # a visit makes a call, visits what is below it in a loop with a call a turn, and makes another call;
    # node 2 has the children 0 and 1
    body = Frame(2)
    frame = Frame(3)
    recursion = Recursion(frame, np.array([0, 1, 0]))
    frame.events += [Calls(None, 0), Turns(None, body, np.array([0, 0, 2])), Calls(None, 3)]
    body.events += [Calls(None, 6), Visits(None, recursion, np.array([1, 0]))]  # the last child first
    recursion.count()
    assert recursion.calls.tolist() == [2, 2, 8]
    outer = Frame(1, [Visits(None, recursion, np.array([2])), Calls(np.array([0]), 8)])
    assert outer.count().tolist() == [9]
    times = np.zeros(9, np.int64)
    outer.run(np.array([10]), times)
    recursion.end(times)
    assert times.tolist() == [15, 12, 10, 16, 13, 17, 11, 14, 18]
