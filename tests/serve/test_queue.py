"""The queue's laws: order, splitting, room, deadlines; on any course of events."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.serve.batching import Queue, QueueFullError, Request


def request(*sizes, deadline=100.0):
    return Request([f"example {k}" for k in range(len(sizes))], sizes, deadline)


def test_a_request_without_room_is_refused_whole_unless_nothing_waits():
    queue = Queue(10)
    queue.put(request(20, 20))
    with pytest.raises(QueueFullError, match="expected room for 3 nodes in a queue of 10, found 40 nodes"):
        queue.put(request(3))
    queue.take(0.0, examples=9, nodes=99)
    queue.put(request(3))
    assert (queue.examples, queue.nodes) == (1, 3)


EVENTS = st.one_of(
    st.tuples(st.just("put"), st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 40)),
    st.tuples(st.just("take"), st.integers(1, 6), st.integers(1, 20)),
    st.tuples(st.just("drop"), st.integers(0, 9), st.none()),
)


@settings(max_examples=20)
@given(st.lists(EVENTS, max_size=30), st.integers(5, 30))
def test_nothing_is_lost_taken_twice_or_overtaken(events, limit):
    queue, accepted, taken = Queue(limit), [], []
    for now, (kind, first, second) in enumerate(events):
        if kind == "put":
            new = request(*first, deadline=now + second)
            try:
                queue.put(new)
                accepted.append(new)
            except QueueFullError:
                assert queue.nodes + sum(first) > limit
        elif kind == "take":
            batch = queue.take(now, first, second)
            assert len(batch) <= first
            assert len(batch) == 1 or sum(r.sizes[k] for r, k in batch) <= second
            assert all(r.deadline > now and not r.dropped for r, _ in batch)
            taken += batch
        elif first < len(accepted):
            queue.drop(accepted[first])
        waiting = [r for r in accepted if not r.dropped]
        assert queue.examples == sum(len(r.sizes) - r.taken for r in waiting)
        assert queue.nodes == sum(sum(r.sizes[r.taken :]) for r in waiting)
    places = [(accepted.index(r), k) for r, k in taken]
    assert places == sorted(set(places))  # the order of arrival, each once
    assert all(sum(r is other for other, _ in taken) == r.taken for r in accepted)
