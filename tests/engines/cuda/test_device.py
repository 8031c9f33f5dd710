"""A device's memory is written and read without waiting more than is needed."""

import weakref

import numpy as np
import pytest

from foldbatch.engines.cuda.device import IN_FLIGHT, Device, DeviceRows
from foldbatch.engines.cuda.engine import ENQUEUED
from foldbatch.engines.sums import total
from tests.engines.cuda.emulated import device
from tests.engines.cuda.emulator import Emulator


class Waits(Emulator):
    """Counts waits."""

    def __init__(self) -> None:
        self.events = 0
        self.waited = []

    def event(self):
        self.events += 1
        return self.events

    def synchronize(self, event):
        self.waited.append(event)


@pytest.mark.parametrize("array", [np.arange(6).reshape(2, 3).T, np.zeros((0, 2)), np.array(1.5, "float32")])
def test_what_is_put_there_is_read_again(array):
    made = device().put(array)
    assert (made.shape, made.dtype) == (array.shape, array.dtype)
    np.testing.assert_array_equal(device().read(made), array)
    np.testing.assert_array_equal(device().read_later(made).wait(), array)
    assert not np.asarray(device().zeros(array.shape, array.dtype.name)).any()


def test_writing_waits_for_copies_of_long_ago_only():
    driver = Waits()
    one = Device(driver)
    for _ in range(IN_FLIGHT + 2):
        one.put(np.zeros(3))
    assert driver.waited == [1, 2]
    one.read(one.put(np.zeros(3)))
    assert driver.waited[2:] == [3, 4, driver.events]
    one.put(np.zeros(3))
    assert len(driver.waited) == 5


def test_what_is_read_later_waits_when_it_is_asked_for():
    driver = Waits()
    one = Device(driver)
    copy = one.read_later(one.zeros((2,), "float64"))
    assert driver.waited == []
    assert copy.wait().tolist() == [0, 0]
    assert len(driver.waited) == 1


def test_pinned_memory_stays_until_its_copy_is_done_also_if_nobody_asks_for_it(monkeypatch):
    """Else the next copy would share it."""
    one, made = Device(Waits()), []

    def pinned(nbytes):
        array = np.zeros(nbytes, np.uint8)
        made.append(weakref.ref(array))
        return array

    monkeypatch.setattr(one.driver, "pinned", pinned, raising=False)
    one.read_later(one.put(np.zeros(3)))
    assert len(made) == 2
    assert all(array() is not None for array in made)
    one.synchronize()
    assert all(array() is None for array in made)


def test_a_wait_lets_go_of_nothing_that_others_keep_meanwhile():
    """Else the memory of a copy that is not done would serve others."""
    driver = Waits()
    one = Device(driver)
    one.put(np.zeros(3))

    def other_thread(event):
        if not driver.waited:
            driver.waited.append(event)
            one.put(np.ones(3))

    driver.synchronize = other_thread
    one.wait()
    assert len(one._in_flight) == 1


def test_who_enqueues_holds_the_device():
    """Else a thread that captures the stream keeps in its graph what another one does meanwhile, for ever."""
    one, alone = Device(Emulator()), []
    for name in ENQUEUED | {"record"}:
        asked = getattr(one.driver, name)

        def call(*arguments, asked=asked, name=name):
            if not one.lock._is_owned():
                alone.append(name)
            return asked(*arguments)

        setattr(one.driver, name, call)
    array = one.put(np.ones((2, 3), "float32"))
    one.read(array * 2 + one.zeros((2, 3), "float32"))
    rows = DeviceRows(np.array([0, 1]), array, (4, 3), one.put(np.array([0, 1])))
    total([rows, rows])
    one.synchronize()
    assert not alone
