"""Buffers outlive batches and settle."""

from __future__ import annotations

import numpy as np

from foldbatch.engines.memory import Memory
from foldbatch.types import TensorType

V, B, S = TensorType((3,)), TensorType((), "bool"), TensorType((), "float64")


def heights(*rows: int) -> np.ndarray:
    return np.array(rows, np.int64)


def test_a_buffer_is_the_same_memory_while_it_suffices() -> None:
    """A batch that needs fewer rows leaves it, and what stands in it, alone."""
    memory = Memory([V, V])
    memory.fit(heights(5, 5))
    first, second = memory.arrays
    assert (first.shape, first.dtype) == ((5, 3), np.float32)
    assert not np.shares_memory(first, second)
    first[:] = 7
    memory.fit(heights(2, 0))
    assert memory.arrays[0] is first
    assert (first == 7).all()


def test_a_buffer_is_there_before_anyone_asked_for_rows() -> None:
    """An empty batch needs none, and kernels may look at all the same."""
    assert [array.shape for array in Memory([V, S]).arrays] == [(1, 3), (1,)]


def test_fresh_memory_has_just_the_rows_that_a_batch_needs() -> None:
    memory = Memory([V, B])
    memory.fit(heights(4, 7))
    assert [len(array) for array in memory.arrays] == [4, 7]


def test_growth_is_geometric() -> None:
    """A batch a row larger each time allocates seldom."""
    memory = Memory([V])
    seen = []
    for rows in range(1, 1000):
        memory.fit(heights(rows))
        assert len(memory.arrays[0]) >= rows
        seen.append(memory.arrays[0])
    assert len({id(array) for array in seen}) < 40
    assert 999 * V.nbytes <= memory.nbytes <= 1.3 * 1000 * V.nbytes


def test_one_buffer_grows_alone() -> None:
    memory = Memory([V, V])
    memory.fit(heights(3, 3))
    before = list(memory.arrays)
    memory.fit(heights(3, 9))
    assert memory.arrays[0] is before[0]
    assert memory.arrays[1] is not before[1]


def test_bytes_are_those_of_its_own_buffers() -> None:
    """Whatever their types; arrays that a batch brings are the batch's."""
    memory = Memory([V, B, None])
    memory.fit(heights(2, 5, 0))
    memory.bring(2, np.zeros((100, 3)))
    assert memory.nbytes == 2 * 12 + 5


def test_what_a_batch_brings_is_the_buffer() -> None:
    """No copy is made, and no height asked of it changes it."""
    memory = Memory([None, V])
    assert memory.arrays[0] is None
    for array in (np.arange(6.0).reshape(2, 3), np.arange(9.0).reshape(3, 3)):
        memory.bring(0, array)
        memory.fit(heights(99, 1))
        assert memory.arrays[0] is array


def test_addresses_follow_the_buffers() -> None:
    """Compiled code is told these alone."""
    memory = Memory([V, None])
    for rows in (1, 4, 2, 50):
        memory.fit(heights(rows, 0))
        memory.bring(1, np.zeros((rows, 2)))
        assert memory.addresses.tolist() == [array.ctypes.data for array in memory.arrays]


def test_poison_fills_what_is_float_before_each_batch() -> None:
    """Ever new buffers included; not what a batch brings."""
    memory = Memory([V, TensorType((2,), "int32"), None], poisoned=True)
    assert np.isnan(memory.arrays[0]).all()
    brought = np.ones((1, 2))
    memory.bring(2, brought)
    memory.fit(heights(2, 2, 1))
    floats, ints, _ = memory.arrays
    assert np.isnan(floats).all()
    floats[:] = ints[:] = 1
    memory.fit(heights(2, 2, 1))
    assert memory.arrays[0] is floats
    assert np.isnan(floats).all()
    assert (ints == 1).all()
    assert (brought == 1).all()


def test_without_poison_what_was_written_stays() -> None:
    memory = Memory([V])
    memory.fit(heights(2))
    memory.arrays[0][:] = 1
    memory.fit(heights(2))
    assert (memory.arrays[0] == 1).all()
