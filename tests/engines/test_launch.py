"""Launch tables: how a row is read."""

from __future__ import annotations

import numpy as np

from foldbatch.engines.launch import BASE, COPIES, FIELDS, FIRST, HEAD, INDEX, SPARE, STORES, WIDTH, binding


def test_a_row_is_a_head_and_then_the_fields_of_each_binding() -> None:
    assert sorted((BASE, FIRST, INDEX, WIDTH, COPIES, STORES, SPARE)) == list(range(FIELDS))
    row = np.arange(HEAD + 2 * FIELDS)
    assert binding(row, 0) == list(range(HEAD, HEAD + FIELDS))
    assert binding(row, 1) == list(range(HEAD + FIELDS, HEAD + 2 * FIELDS))
    assert all(type(field) is int for field in binding(row, 0))
