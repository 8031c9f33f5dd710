"""Buffers outlive batches and settle."""

from __future__ import annotations

import numpy as np

from foldbatch.engines.memory import BatchMemory
from foldbatch.types import TensorType

V, B, S = TensorType((3,)), TensorType((), "bool"), TensorType((), "float64")


def heights(*rows: int) -> np.ndarray:
    return np.array(rows, np.int64)


def test_a_buffer_is_the_same_memory_while_it_suffices() -> None:
    """A batch that needs fewer rows leaves it, and what stands in it, alone."""
    memory = BatchMemory([V, V])
    memory.fit(heights(5, 5))
    first, second = memory.arrays
    assert (first.shape, first.dtype) == ((5, 3), np.float32)
    assert not np.shares_memory(first, second)
    first[:] = 7
    memory.fit(heights(2, 0))
    assert memory.arrays[0] is first
    assert (first == 7).all()


def test_growth_is_geometric() -> None:
    """A batch a row larger each time allocates seldom."""
    memory = BatchMemory([V])
    seen = []
    for rows in range(1, 1000):
        memory.fit(heights(rows))
        assert len(memory.arrays[0]) >= rows
        seen.append(memory.arrays[0])
    assert len({id(array) for array in seen}) < 40
    assert 999 * V.nbytes <= memory.nbytes <= 1.3 * 1000 * V.nbytes


def test_poison_fills_what_is_float_before_each_batch() -> None:
    """Ever new buffers included; not what a batch brings."""
    memory = BatchMemory([V, TensorType((2,), "int32"), None], poisoned=True)
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
