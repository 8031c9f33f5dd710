"""Each rule, broken on purpose; the program that keeps them all has no fault."""

from dataclasses import replace

import pytest

from foldbatch.engines.cuda.drivers.driver import Product, Span
from foldbatch.engines.cuda.recording.calls import (
    Captured,
    Graph,
    Kept,
    Launch,
    Memory,
    Order,
    Overwritten,
    Unsafe,
    Work,
    product_spans,
)
from foldbatch.engines.cuda.recording.faults import faults
from foldbatch.engines.cuda.recording.nothing import Nothing
from foldbatch.engines.cuda.recording.recorder import Recorder
from tests.engines.cuda import pipeline

A = Memory("allocate", 1024, 100)
FREE_A = A._replace(kind="free")
B = Memory("allocate", 4096, 100)
PINNED = Memory("pin", 9000, 100)
UNPINNED = PINNED._replace(kind="unpin")


def reads(pointer, nbytes, stream=0):
    return Work("copy_out", stream, (Span(pointer, nbytes),), ())


def writes(pointer, nbytes, stream=0):
    return Work("fill", stream, (), (Span(pointer, nbytes),))


def ordered(before, after, event=0):
    """What lets a stream wait for another one."""
    return [Order("record", event, before), Order("wait", event, after)]


def known(stream, event=5):
    """What lets the host wait for a stream."""
    return [Order("record", event, stream), Order("synchronize", event)]


def rules(calls):
    return [fault.rule for fault in faults(calls)]


@pytest.mark.parametrize(
    ("forgotten", "rule"),
    [
        ("computing waits", {"race", "pinned"}),
        ("copying waits", {"race"}),
        ("packing waits", {"pinned"}),
    ],
)
def test_a_program_that_forgets_to_wait_is_at_fault(forgotten, rule):
    """That the host reads too early cannot be seen in a record; see test_late."""
    for says in ((), (forgotten,)):
        recorder = Recorder(Nothing())
        pipeline.run(recorder, says)
        assert {fault.rule for fault in faults(recorder.finish())} == (rule if says else set())


def test_a_launch_must_say_what_it_writes():
    recorder = Recorder(Nothing())
    pipeline.run(recorder, says=False)
    assert set(rules(recorder.finish())) == {"touched"}


@pytest.mark.parametrize(
    ("first", "second", "racing"),
    [
        (writes(1024, 8), writes(1024, 8, 1), True),
        (writes(1024, 8), reads(1024, 8, 1), True),
        (reads(1024, 8), writes(1024, 8, 1), True),
        (reads(1024, 8), reads(1024, 8, 1), False),
        (writes(1024, 8), writes(1032, 8, 1), False),
        (writes(1024, 8), writes(1031, 1, 1), True),
        (writes(1024, 8), writes(1024, 8, 0), False),
    ],
)
def test_work_on_two_streams_races_where_bytes_meet_and_one_writes(first, second, racing):
    assert rules([A, first, second]) == ["race"] * racing
    assert rules([A, first, *ordered(0, 1), second]) == []
    assert rules([A, first, *known(0), second]) == []
    assert rules([A, first, *ordered(1, 0), second]) == ["race"] * racing
    assert rules([A, *ordered(0, 1), first, second]) == ["race"] * racing
    assert rules([A, first, *ordered(0, 2, 0), *ordered(2, 1, 1), second]) == []


def test_an_event_stands_for_where_it_was_recorded_last():
    first, second = writes(1024, 8), writes(1032, 8)
    calls = [A, first, Order("record", 0, 0), second, Order("wait", 0, 1)]
    assert rules([*calls, reads(1024, 8, 1)]) == []
    assert rules([*calls, reads(1032, 8, 1)]) == ["race"]
    again = [A, first, Order("record", 0, 0), second, Order("record", 0, 0), Order("wait", 0, 1)]
    assert rules([*again, reads(1024, 16, 1)]) == []


def test_old_accesses_are_forgotten_only_where_later_ones_stand_for_them():
    part, whole = writes(1028, 4), writes(1024, 16)
    assert rules([A, whole, part, *ordered(0, 1), whole, reads(1024, 4, 1)]) == ["race"]
    assert rules([A, whole, *ordered(0, 1), part, reads(1024, 16, 1)]) == ["race"]
    assert rules([A, reads(1024, 4), *ordered(0, 1), reads(1024, 4, 1), writes(1024, 4)]) == ["race"]
    assert rules([A, writes(1024, 4), reads(1024, 4), *ordered(0, 1), writes(1024, 4, 1)]) == []


def test_a_race_is_told_with_both_calls():
    (fault,) = faults([A, writes(1024, 8), reads(1030, 8, 1)])
    text = "copy_out on stream 1 reads 2 bytes at 0x406, which call 1, fill on stream 0, writes, and nothing says"
    assert fault.text.startswith(text)
    assert fault.call == 2


@pytest.mark.parametrize("span", [(1020, 8), (1120, 8), (2000, 1), (8, 8), (1024, 101)])
def test_work_must_lie_in_living_memory(span):
    assert rules([A, B, writes(1024, 100), writes(*span)]) == ["bounds"]


def test_work_may_touch_nothing_anywhere():
    assert rules([A, writes(8, 0)]) == []


def test_memory_that_was_freed_is_no_living_memory():
    assert rules([A, writes(1024, 8), FREE_A, writes(1024, 8)]) == ["bounds"]
    assert rules([A, FREE_A, A, writes(1024, 8)]) == []


def test_new_memory_may_be_what_was_freed():
    used = [A, writes(1024, 8, 1), FREE_A, B]
    assert rules([*used, writes(4096, 8, 1)]) == []  # in the order of the stream
    assert rules([*used, writes(4096, 8), writes(4096, 8)]) == ["reuse"]
    assert rules([*used, *ordered(1, 0), writes(4096, 8)]) == []
    assert rules([*used, *known(1), writes(4096, 8)]) == []
    assert rules([B, *used[:-1], writes(4096, 8)]) == []  # was there before


def test_pinned_memory_must_stay_until_the_host_knows_that_copies_are_done():
    copy = Work("copy_in", 0, (Span(9000, 8),), (Span(1024, 8),))
    assert rules([A, PINNED, copy, UNPINNED]) == ["pinned"]
    assert rules([A, PINNED, copy, *ordered(0, 1), UNPINNED]) == ["pinned"]
    assert rules([A, PINNED, copy, *known(0), UNPINNED]) == []
    assert rules([A, PINNED, copy, *known(0), Overwritten(2)]) == ["pinned"]


def test_events_must_have_been_recorded():
    assert rules([Order("wait", 0, 0)]) == ["event"]
    assert rules([Order("synchronize", 0)]) == ["event"]
    assert rules(ordered(0, 1)) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"blocks": 0},
        {"blocks": 2**31},
        {"threads": (0, 1)},
        {"threads": (1, -1)},
        {"threads": (512, 3)},
        {"arguments": (0,) * 17},
        {"arguments": (2**63,)},
    ],
)
def test_a_launch_must_be_one_that_cuda_takes(changed):
    launch = Launch("kernel", 2**31 - 1, (32, 32), (2**63 - 1,) * 16)
    work = Work("launch", 0, (), (Span(1024, 1),), launch)
    assert rules([A, work]) == []
    assert rules([A, work._replace(detail=launch._replace(**changed))]) == ["launch"]


PRODUCT = Product(
    "float32", 2, 3, 4, a=1024, b=2048, c=4096, a_lead=4, b_lead=3, c_lead=3, count=2, a_step=8, c_step=6
)


@pytest.mark.parametrize(
    "changed",
    [
        {"a_lead": 3},
        {"b_lead": 2},
        {"c_lead": 2},
        {"b_across": True},
        {"a": 1026},
        {"c_step": 5},
        {"c_step": 0},
        {"c": 1024},
        {"c": 1024 + 60},
        {"a": 4096 - 4 * 15},
    ],
)
def test_a_product_must_be_one_that_cublas_takes(changed):
    memory = [Memory("allocate", 512, 1024), Memory("allocate", 2048, 256), Memory("allocate", 3072, 2048)]

    def work(product):
        return [*memory, Work("multiply", 0, *product_spans(product), product)]

    assert rules(work(PRODUCT)) == []
    assert rules(work(replace(PRODUCT, adds=True))) == []
    assert rules(work(replace(PRODUCT, c_lead=7, c_step=3))) == []  # side by side
    assert "product" in rules(work(replace(PRODUCT, **changed)))
    assert rules(work(replace(PRODUCT, m=0, **changed))) == []


def test_a_product_touches_its_operands_from_first_to_last_byte():
    assert product_spans(PRODUCT) == (((1024, 64), (2048, 48)), ((4096, 48),))
    across = replace(PRODUCT, a_across=True, b_across=True, a_lead=5, b_lead=6, adds=True, count=1)
    assert product_spans(across) == (((1024, 4 * 17), (2048, 4 * 16), (4096, 24)), ((4096, 24),))
    assert product_spans(replace(PRODUCT, k=0)) == (((1024, 0), (2048, 0)), ((4096, 48),))
    assert product_spans(replace(PRODUCT, n=0)) == ((), ())


def replay(*spans):
    return Work("replay", 0, (), (Span(1024, 1), *spans), Graph((), 3))


def test_a_graph_must_not_be_replayed_after_its_memory_was_freed():
    """Though other memory lies there now."""
    kept = [A, Kept(3, writes(1024, 8)), Captured(3, (Span(1024, 8),))]
    assert rules([*kept, replay(), replay()]) == []
    assert rules([*kept, FREE_A]) == []
    assert rules([*kept, FREE_A, A, replay()]) == ["graph"]
    assert rules([*kept, FREE_A, B, replay()]) == ["graph", "bounds"]


def test_a_graph_holds_no_pinned_memory_and_no_event():
    copy = Work("copy_in", 0, (Span(9000, 8),), (Span(1024, 8),))
    launch = Work("launch", 0, (Span(9000, 8),), (), Launch("kernel", 1, (1, 1), ()))
    for work in (copy, launch):
        assert rules([A, PINNED, Kept(0, work)]) == ["graph"]
    assert rules([Kept(0, Order("record", 0, 0))]) == ["graph"]
    assert rules([Kept(0, writes(1024, 8))]) == ["bounds"]
    assert rules([A, Kept(0, launch._replace(reads=(), detail=Launch("kernel", 0, (1, 1), ())))]) == [
        "launch"
    ]


def test_a_thread_that_captures_must_not_allocate():
    (fault,) = faults([Unsafe("allocate", 2)])
    assert (fault.rule, fault.text) == ("graph", "the thread that captures graph 2 asks for allocate")


def test_a_replay_races_like_other_work_and_must_say_what_it_writes():
    assert rules([A, replay(), reads(1024, 1, 1)]) == ["race"]
    assert rules([A, replay()._replace(writes=())]) == ["touched"]


def test_where_operands_lie_is_looked_at_only_where_it_is_known():
    product = replace(PRODUCT, a=0, b=0, c=1, count=1, a_step=0, c_step=0)
    assert rules([A, Work("multiply_at", 0, (Span(1024, 24),), (), product)]) == []
    assert rules([A, Work("multiply_at", 0, (Span(1024, 24),), (), replace(product, c_lead=1))]) == [
        "product"
    ]
