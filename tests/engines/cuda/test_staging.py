"""Batches of any sizes come to the device as they were packed, in every order of its work."""

import numpy as np
import pytest

from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.driver import Driver
from foldbatch.engines.cuda.memory import Staging
from tests.engines.cuda.checked import ORDERS, Asked, late
from tests.engines.cuda.emulator import Emulator


def sent(driver: Driver, sizes: list[int]) -> list[list[int]]:
    """Send batches of so many bytes, each of one number; return the bytes that the stream finds, in order."""
    device = Device(driver)
    staging, found = Staging(device), []
    for number, size in enumerate(sizes, 1):
        block = staging.next(size)
        block.host[:size] = number
        staging.send(block, size)
        made = device.empty((size,), "uint8")
        driver.copy(made.pointer, block.device.pointer, size, device.stream)
        staging.release(block)
        found.append(device.read_later(made))
    return [np.unique(copy.wait()).tolist() for copy in found]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("sizes", [[5], [5] * 6, [10, 5, 300, 5, 1000, 2000, 300, 300], [300, 5, 300, 5]])
def test_batches_of_any_sizes_arrive(sizes, order):
    """A new block may be memory that earlier batches, which are not done, have freed."""
    assert sent(late(order), sizes) == [[number] for number in range(1, len(sizes) + 1)]


def test_where_computing_does_not_wait_for_the_copy_other_bytes_are_found(monkeypatch):
    driver = late("computing first")
    monkeypatch.setattr(driver.driver, "wait", lambda stream, event: None)
    assert sent(driver, [5] * 6) != [[number] for number in range(1, 7)]


def test_batches_of_one_size_take_no_new_memory():
    few, many = (Asked(Emulator()) for _ in range(2))
    sent(few, [100] * 2)
    sent(many, [100] * 8)
    taken = [sum(name == "allocate" for name, _ in driver.calls) for driver in (few, many)]
    assert taken[1] - taken[0] == 6  # of the test
