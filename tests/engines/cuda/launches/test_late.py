"""Work that is done as late, or in an order as odd, as allowed: whatever is not waited for goes wrong."""

import gc
import weakref

import numpy as np
import pytest

from tests.engines.cuda import pipeline, replayed
from tests.engines.cuda.checked import ORDERS, late
from tests.engines.cuda.emulator import Emulator
from tests.engines.cuda.late import Late


@pytest.mark.parametrize("order", ORDERS)
def test_a_program_that_waits_is_right_in_every_order(order):
    assert pipeline.run(Late(Emulator(), ORDERS[order])) == pipeline.SUMS


@pytest.mark.parametrize(
    ("forgotten", "order"),
    [
        ("computing waits", "late"),
        ("computing waits", "computing first"),
        ("copying waits", "copies first"),
        ("packing waits", "computing first"),
        ("reading waits", "late"),
        ("reading waits", "copies first"),
    ],
)
def test_a_program_that_forgets_to_wait_is_wrong(forgotten, order):
    assert pipeline.run(Emulator(), [forgotten]) == pipeline.SUMS
    assert pipeline.run(Late(Emulator(), ORDERS[order]), [forgotten]) != pipeline.SUMS


@pytest.mark.parametrize("forgotten", pipeline.PRECAUTIONS)
def test_a_program_that_forgets_to_wait_is_wrong_sooner_or_later(forgotten):
    sums = [pipeline.run(Late(Emulator(), (0.2, 0.2), seed), [forgotten]) for seed in range(20)]
    assert any(each != pipeline.SUMS for each in sums)


def test_nothing_is_done_before_the_host_waits_and_then_no_more_than_needed():
    driver = Late(Emulator())
    one, two = driver.stream(), driver.stream()
    buffer, seen = driver.allocate(8), driver.pinned(8)
    driver.fill(buffer.pointer, 1, 8, one)
    first = driver.event()
    driver.record(first, one)
    driver.fill(buffer.pointer, 2, 8, one)
    driver.wait(two, first)
    driver.copy_out(seen, buffer.pointer, two)
    assert seen.tolist() == [255] * 8
    read = driver.event()
    driver.record(read, two)
    driver.synchronize(read)
    assert seen.tolist() == [1] * 8
    assert (driver.array(buffer, (8,), "uint8") == 2).all()  # for which all is done


def test_an_event_that_is_recorded_again_stands_for_its_old_place_where_it_was_waited_for():
    driver = Late(Emulator())
    one, two = driver.stream(), driver.stream()
    buffer, seen = driver.allocate(1), driver.pinned(1)
    event, read = driver.event(), driver.event()
    driver.record(event, one)
    driver.wait(two, event)
    driver.fill(buffer.pointer, 1, 1, one)
    driver.record(event, one)
    driver.fill(buffer.pointer, 2, 1, two)
    driver.wait(two, event)
    driver.copy_out(seen, buffer.pointer, two)
    driver.record(read, two)
    driver.synchronize(read)
    assert seen == 1  # stream two filled it first, and then waited for stream one


def test_freed_memory_is_kept_while_work_may_use_it():
    driver = Late(Emulator())
    stream = driver.stream()
    buffer, seen, event = driver.allocate(1000), driver.pinned(1000), driver.event()
    memory = weakref.ref(buffer.inner)
    driver.fill(buffer.pointer, 3, 1000, stream)
    driver.copy_out(seen, buffer.pointer, stream)
    driver.record(event, stream)
    del buffer
    gc.collect()
    assert memory() is not None
    driver.synchronize(event)
    assert (seen == 3).all()
    assert memory() is None


def test_what_a_copy_reads_is_not_spoilt_where_the_next_one_writes():
    driver = Late(Emulator())
    stream = driver.stream()
    buffer, block, event = driver.allocate(4), driver.pinned(4), driver.event()
    block[:] = 7
    driver.copy_in(buffer.pointer, block, stream)
    driver.copy_out(block[:2], buffer.pointer + 2, stream)
    driver.record(event, stream)
    driver.synchronize(event)
    assert block.tolist() == [7] * 4
    driver.copy_out(block, buffer.pointer, stream)
    assert block.tolist() == [255] * 4


def test_an_event_that_was_never_recorded_is_not_waited_for():
    driver = Late(Emulator())
    driver.wait(driver.stream(), driver.event())
    driver.synchronize(driver.event())
    assert np.array_equal(driver.pinned(2), [255, 255])


@pytest.mark.parametrize("order", ORDERS)
def test_a_graph_is_replayed_in_the_order_of_its_stream(order):
    assert replayed.run(late(order)) == replayed.EXPECTED


@pytest.mark.parametrize("eagerness", [(0,), (1,)])
def test_what_is_enqueued_while_a_stream_is_captured_is_done_later(eagerness):
    driver = Late(Emulator(), eagerness)
    one, two, buffer = driver.stream(), driver.stream(), driver.allocate(8)
    filled, waited = driver.event(), driver.event()
    driver.fill(buffer.pointer, 1, 8, one)
    driver.record(filled, one)
    driver.begin_capture(one)
    driver.wait(two, filled)
    driver.record(waited, two)
    driver.synchronize(waited)  # for what was enqueued before, which is no part of the graph
    driver.fill(buffer.pointer, 2, 4, one)
    driver.copy(buffer.pointer + 4, buffer.pointer, 4, one)
    driver.fill(buffer.pointer, 3, 2, two)
    with pytest.raises(AssertionError, match="no event can be part of a graph"):
        driver.record(driver.event(), one)
    graph = driver.end_capture(one)
    assert driver.array(buffer, (8,), "uint8").tolist() == [3, 3, 1, 1, 1, 1, 1, 1]
    driver.replay(graph, two)
    assert driver.array(buffer, (8,), "uint8").tolist() == [2] * 8
