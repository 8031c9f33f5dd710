"""What is asked of a driver is written down, call by call, and asked of the driver within."""

import gc
import threading

import numpy as np

from foldbatch.engines.cuda.drivers.driver import Product, Span, Touched
from foldbatch.engines.cuda.drivers.emulator import Emulator
from foldbatch.engines.cuda.drivers.spans import span_of
from foldbatch.engines.cuda.recording.calls import (
    Captured,
    Graph,
    Kept,
    Launch,
    Loaded,
    Memory,
    Order,
    Overwritten,
    Unsafe,
    Work,
)
from foldbatch.engines.cuda.recording.faults import faults
from foldbatch.engines.cuda.recording.nothing import Nothing
from foldbatch.engines.cuda.recording.recorder import Recorder
from tests.engines.cuda import pipeline, replayed


def test_every_call_is_written_down_in_order():
    driver = Recorder(Nothing())
    stream, _, event = driver.stream(), driver.stream(), driver.event()
    buffer, host = driver.allocate(64), driver.pinned(16)
    x, pinned = buffer.pointer, span_of(host)
    driver.copy_in(x, host[:8], stream)
    driver.fill(x, 0, 4, stream)
    driver.copy(x + 32, x, 8, stream)
    touched = Touched([Span(x, 4)], [Span(x + 4, 4)])
    driver.launch(driver.load("text").function("kernel"), 3, (2, 1), [x, 5], stream, lambda: touched)
    product = Product("float64", 1, 1, 2, x, x + 16, x + 32, 2, 1, 1)
    driver.multiply(product, stream)
    driver.copy_out(host[8:], x, stream)
    driver.record(event, stream)
    driver.wait(driver.stream(), event)
    driver.synchronize(event)
    assert driver.calls == [
        Memory("allocate", x, 64),
        Memory("pin", *pinned),
        Work("copy_in", 0, (Span(pinned.pointer, 8),), (Span(x, 8),)),
        Work("fill", 0, (), (Span(x, 4),)),
        Work("copy", 0, (Span(x, 8),), (Span(x + 32, 8),)),
        Loaded("text"),
        Work("launch", 0, (Span(x, 4),), (Span(x + 4, 4),), Launch("kernel", 3, (2, 1), (x, 5))),
        Work("multiply", 0, (Span(x, 16), Span(x + 16, 16)), (Span(x + 32, 8),), product),
        Work("copy_out", 0, (Span(x, 8),), (Span(pinned.pointer + 8, 8),)),
        Order("record", 0, 0),
        Order("wait", 0, 2),
        Order("synchronize", 0),
    ]
    assert faults(driver.finish()) == []


def test_memory_is_free_when_nobody_holds_it_nor_a_part_of_it():
    driver = Recorder(Emulator())
    buffer, host = driver.allocate(8), driver.pinned(8)
    part, array = host[2:4].view("int16"), driver.array(buffer, (2,), "int32")
    expected = [Memory("allocate", buffer.pointer, 8), Memory("pin", *span_of(host))]
    del buffer, host
    gc.collect()
    assert driver.calls == expected
    del part, array
    gc.collect()
    assert sorted(driver.calls[2:]) == [expected[0]._replace(kind="free"), expected[1]._replace(kind="unpin")]


def test_the_driver_within_does_the_work():
    assert pipeline.run(Recorder(Emulator())) == pipeline.SUMS


def overwritten(*, waits, changes=True):
    """Copy pinned memory to the device, and write over it before or after the host waits for the copy."""
    driver = Recorder(Nothing())
    stream, event, buffer, host = driver.stream(), driver.event(), driver.allocate(8), driver.pinned(8)
    host[:] = 1
    driver.copy_in(buffer.pointer, host[:4], stream)
    driver.record(event, stream)
    if waits:
        driver.synchronize(event)
    host[0 if changes else 4] = 2
    driver.finish()
    driver.synchronize(event)
    return [call for call in driver.finish() if isinstance(call, Overwritten)]


def test_the_host_must_not_change_what_a_copy_may_not_have_read():
    assert overwritten(waits=False) == [Overwritten(2)]
    assert overwritten(waits=False, changes=False) == []
    assert overwritten(waits=True) == []


def test_pinned_memory_that_is_gone_is_not_looked_at():
    driver = Recorder(Nothing())
    stream, event, buffer = driver.stream(), driver.event(), driver.allocate(8)
    driver.copy_in(buffer.pointer, driver.pinned(8), stream)
    gc.collect()
    driver.record(event, stream)
    driver.synchronize(event)
    assert [fault.rule for fault in faults(driver.finish())] == ["pinned"]


def test_the_driver_within_learns_what_a_launch_touches():
    class Told(Nothing):
        def launch(self, function, blocks, threads, arguments, stream, touched=None):
            told.append(touched and touched())

    told, touched = [], Touched([], [])
    driver = Recorder(Told())
    kernel = driver.load("").function("kernel")
    driver.launch(kernel, 1, (1, 1), (), driver.stream(), lambda: touched)
    driver.launch(kernel, 1, (1, 1), np.zeros(1, np.int64), driver.stream())
    assert told == [touched, None]


def test_a_graph_is_written_down_when_it_is_kept_and_its_replay_is_one_piece_of_work():
    driver = Recorder(Nothing())
    stream, buffer = driver.stream(), driver.allocate(64)
    kernel, x = driver.load("").function("kernel"), buffer.pointer
    product = Product("float32", 1, 1, 1, 0, 0, 0, 1, 1, 1)
    del driver.calls[:]
    driver.begin_capture(stream)
    touched = Touched([Span(x, 4)], [Span(x + 4, 4)])
    driver.launch(kernel, 3, (2, 1), [x, 5], stream, lambda: touched)
    driver.launch_together(kernel, 2, (2, 1), [x], stream)
    driver.multiply_at(product, x + 8, stream)
    graph = driver.end_capture(stream)
    driver.replay(graph, driver.stream(), lambda: Touched([], [Span(x + 40, 4)]))
    works = [
        Work("launch", 0, (Span(x, 4),), (Span(x + 4, 4),), Launch("kernel", 3, (2, 1), (x, 5))),
        Work("launch", 0, (), (), Launch("kernel", 2, (2, 1), (x,), together=True)),
        Work("multiply_at", 0, (Span(x + 8, 24),), (), product),
    ]
    spans = (Span(x, 32),)
    reads, writes = (Span(x, 4), Span(x + 8, 24)), (Span(x + 4, 4), Span(x + 40, 4))
    assert driver.calls == [
        *(Kept(0, work) for work in works),
        Captured(0, spans),
        Work("replay", 1, reads, writes, Graph(tuple(work.detail for work in works), 0)),
    ]
    assert str(driver.calls[-1]) == "replay of graph 0 on stream 1"
    assert faults([Memory("allocate", x, 64), *driver.finish()]) == []


def test_a_program_that_replays_a_graph_has_no_fault():
    driver = Recorder(Emulator())
    assert replayed.run(driver) == replayed.EXPECTED
    assert faults(driver.finish()) == []


def test_only_the_thread_that_captures_must_not_allocate():
    driver = Recorder(Nothing())
    stream, event = driver.stream(), driver.event()
    driver.begin_capture(stream)
    thread = threading.Thread(target=lambda: driver.allocate(8))
    thread.start()
    thread.join()
    driver.allocate(8), driver.pinned(8), driver.load(""), driver.synchronize(event)
    driver.end_capture(stream)
    driver.allocate(8)
    asked = [call for call in driver.calls if isinstance(call, Unsafe)]
    assert asked == [Unsafe(name, 0) for name in ("allocate", "pinned", "load", "synchronize")]
