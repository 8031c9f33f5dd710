"""Changes on the host are made in blocks that cover a table once."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.params import SparseRows
from foldbatch.train import blocks
from foldbatch.train.blocks import Blocks, cuts
from foldbatch.updates import Change, Rule

RULE = Rule(("m = m + g", "p = p - rate * m"), ("m",), ("rate",))


@pytest.mark.parametrize("shape", [(0, 3), (1, 100_000), (70_000,), (70_000, 2), (40, 0)])
def test_blocks_cover_a_table_once(shape):
    table = np.zeros(shape, np.int8)
    sizes = []
    for start, stop in cuts(table):
        table[start:stop] += 1
        sizes.append(table[start:stop].size)
    assert (table == 1).all()
    assert all(size <= max(blocks.BLOCK, table[:1].size) for size in sizes)


@pytest.mark.parametrize("by_rows", [False, True])
def test_a_sparse_gradient_changes_its_rows_or_all(by_rows):
    p, m = np.ones((4, 2)), np.ones((4, 2))
    gradient = SparseRows(np.array([1, 3]), np.full((2, 2), 4.0), (4, 2))
    Blocks().apply([Change("w", p, [m], gradient, 0.5, RULE, (0.5,), by_rows)], None)
    assert m[:, 0].tolist() == [1, 3, 1, 3]
    assert p[:, 0].tolist() == ([1, -0.5, 1, -0.5] if by_rows else [0.5, -0.5, 0.5, -0.5])
    assert (gradient.values == 4).all()


def test_scratch_arrays_are_kept_for_the_next_step():
    one, p = Blocks(), np.ones((3, 3), "float32")
    change = Change("w", p, [np.zeros_like(p)], np.ones_like(p), 2.0, RULE, (0.5,), False)
    one.apply([change], None)
    buffers = {key: id(buffer) for key, buffer in one._buffers.items()}
    one.apply([change], None)
    assert {key: id(buffer) for key, buffer in one._buffers.items()} == buffers
    assert (p == 1 - 1 - 2).all()
