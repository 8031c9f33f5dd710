"""Guards around memory: what is written out of bounds is reported, what is read there is NaN."""

import gc

import numpy as np
import pytest

from foldbatch.engines.cuda.drivers.driver import Span, Touched
from foldbatch.engines.cuda.drivers.emulator import Emulator
from foldbatch.engines.cuda.recording.guarded import GUARD, Guarded
from tests.engines.cuda import pipeline, replayed

TEXT = """
KERNEL copied(i8 x, i8 y) { *(f4*)y = *(const f4*)x; }
"""


def launched(driver, source, target, reads, writes):
    touched = Touched(*([Span(*span) for span in spans] for spans in (reads, writes)))
    function = driver.load(TEXT).function("copied")
    driver.launch(function, 1, (1, 1), (source, target), driver.stream(), lambda: touched)


def floats(driver, count):
    buffer = driver.allocate(4 * count)
    return buffer, driver.array(buffer, (count,), "float32")


def test_new_memory_and_what_is_beside_it_is_nan():
    driver = Guarded(Emulator())
    _, x = floats(driver, 3)
    buffer, y = floats(driver, 3)
    assert buffer.pointer % 256 == 0
    assert np.isnan(x).all()
    for outside in (-4, 12):
        x[:], y[:] = 1, 2
        launched(driver, buffer.pointer + outside, buffer.pointer, (), ())
        assert np.isnan(y[0])


@pytest.mark.parametrize(
    ("outside", "side"), [(-4, "before"), (12, "behind"), (11, "behind"), (12 + GUARD - 4, "behind")]
)
def test_a_write_out_of_bounds_is_reported_when_the_host_waits(outside, side):
    driver = Guarded(Emulator())
    buffer, x = floats(driver, 3)
    x[:] = 1
    launched(driver, buffer.pointer, buffer.pointer + outside, (), ())
    with pytest.raises(AssertionError, match=rf"{side} the 12 bytes at .*'copied'"):
        driver.synchronize(driver.event())
    driver.synchronize(driver.event())  # said once


@pytest.mark.parametrize("call", ["copy_in", "copy", "fill"])
def test_other_work_out_of_bounds_is_reported(call):
    driver = Guarded(Emulator())
    buffer, _ = floats(driver, 3)
    arguments = {
        "copy_in": (buffer.pointer + 4, np.zeros(12, np.uint8), 0),
        "copy": (buffer.pointer + 4, driver.allocate(12).pointer - 12, 12, 0),
        "fill": (buffer.pointer + 4, 0, 12, 0),
    }
    if call == "copy":
        driver.fill(arguments["copy"][1] + 12, 0, 12, 0)
        arguments["copy"] = (buffer.pointer + 4, buffer.pointer, 12, 0)
        driver.fill(buffer.pointer, 0, 12, 0)
    getattr(driver, call)(*arguments[call])
    with pytest.raises(AssertionError, match=call):
        driver.look()


def test_damage_is_reported_though_the_memory_is_free():
    driver = Guarded(Emulator())
    buffer, x = floats(driver, 3)
    x[:] = 1
    launched(driver, buffer.pointer, buffer.pointer + 12, (), ())
    del buffer, x
    gc.collect()
    with pytest.raises(AssertionError, match="behind the 12 bytes"):
        driver.look()


def test_a_program_in_bounds_computes_what_it_did():
    for hides in (False, True):
        assert pipeline.run(Guarded(Emulator(), hides=hides)) == pipeline.SUMS


def test_a_launch_finds_only_what_it_says_to_touch():
    driver = Guarded(Emulator(), hides=True)
    buffer, x = floats(driver, 4)
    x[:] = range(4)
    first, last = (buffer.pointer, 4), (buffer.pointer + 12, 4)
    launched(driver, first[0], last[0], [first], [last])
    assert x.tolist() == [0, 1, 2, 0]
    launched(driver, first[0] + 4, last[0], [first], [last])  # says nothing of element 1
    assert np.isnan(x[3])
    assert x[:3].tolist() == [0, 1, 2]
    with pytest.raises(AssertionError, match="writes what it does not say"):
        launched(driver, first[0], first[0] + 4, [first], [last])
    x[:] = range(4)
    with pytest.raises(AssertionError, match="writes what it says to read"):
        launched(driver, last[0], first[0], [first, last], [last])
    with pytest.raises(AssertionError, match="copied does not say what it touches"):
        driver.launch(driver.load(TEXT).function("copied"), 1, (1, 1), (0, 0), 0)


def test_arrays_hold_their_memory():
    driver = Guarded(Emulator())
    buffer, x = floats(driver, 3)
    del buffer
    gc.collect()
    assert len(driver._bytes) == 1
    x[:] = 2
    del x
    gc.collect()
    assert not driver._bytes


def test_a_graph_finds_only_what_its_work_and_its_replay_say_to_touch():
    for hides in (False, True):
        assert replayed.run(Guarded(Emulator(), hides=hides)) == replayed.EXPECTED
    assert np.isnan(replayed.run(Guarded(Emulator(), hides=True), says=False)).all()


def test_a_graph_that_writes_out_of_bounds_is_reported():
    driver = Guarded(Emulator())
    stream, buffer = driver.stream(), driver.allocate(8)
    driver.begin_capture(stream)
    driver.fill(buffer.pointer + 4, 0, 8, stream)
    graph = driver.end_capture(stream)
    driver.look()
    driver.replay(graph, stream)
    with pytest.raises(AssertionError, match=r"behind the 8 bytes .*\['graph 0'"):
        driver.look()
