"""Buffers of the device outlive batches and settle; one that a batch brings stands beside them."""

from __future__ import annotations

import numpy as np

from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.memory import DeviceMemory, capacity
from foldbatch.types import TensorType
from tests.engines.cuda.emulator import Emulator
from tests.engines.cuda.spans import array_at

V, IDS = TensorType((3,)), TensorType((), "int64")


def heights(*rows: int) -> np.ndarray:
    return np.array(rows, np.int64)


def made(*types: TensorType | None, poisoned: bool = False) -> DeviceMemory:
    return DeviceMemory(Device(Emulator()), types, poisoned=poisoned)


def test_capacities_are_few_and_not_far_above_what_is_needed() -> None:
    found = [capacity(rows) for rows in range(1, 5000)]
    assert all(rows <= c <= max(rows + 1, rows * 1.125 + 1) for rows, c in enumerate(found, 1))
    assert found == sorted(found)
    assert len(set(found)) < 100
    assert [capacity(c) for c in found] == found


def test_a_buffer_is_the_same_memory_while_it_suffices() -> None:
    memory = made(V, IDS)
    memory.fit(heights(5, 0))
    before = memory.addresses.copy()
    assert all(before)
    memory.fit(heights(2, 1))
    assert memory.addresses.tolist() == before.tolist()
    memory.fit(heights(2, 40))
    assert memory.addresses[0] == before[0]
    assert [held.nbytes >= least for held, least in zip(memory.held, (5 * V.nbytes, 320), strict=True)] == [
        True
    ] * 2


def test_what_a_batch_brings_is_left_alone() -> None:
    memory = made(None, V)
    array = Device(Emulator()).put(np.arange(10.0))
    memory.bring(0, array, 16)
    memory.fit(heights(100, 1))
    assert memory.addresses[0] == array.pointer + 16


def test_floats_are_poisoned_before_each_batch_where_that_is_asked_for() -> None:
    """Whole numbers, and what a batch brings, are not."""
    memory = made(V, IDS, None, poisoned=True)
    array = Device(Emulator()).put(np.arange(2.0))
    memory.bring(2, array)
    for _ in range(2):
        memory.fit(heights(4, 1, 2))
        floats = array_at(int(memory.addresses[0]), (4, 3), (12, 4), "float32")
        assert np.isnan(floats).all()
        floats[:] = 0
    assert np.asarray(array).tolist() == [0, 1]
