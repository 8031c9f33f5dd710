"""Ops that only move elements: derivatives on every sample, edge cases, type rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foldbatch.errors import GraphError
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, apply, input_node
from foldbatch.static.op import CALL, UNBATCHED
from foldbatch.types import TensorType

MOVES: list[tuple[str, dict[str, Any], Any]] = [
    ("reshape", {"shape": (3, 2)}, lambda x: x.reshape(3, 2)),
    ("reshape", {"shape": (6,)}, np.ravel),
    ("transpose", {"axes": (1, 0)}, np.transpose),
    ("slice", {"axis": 1, "start": 1, "stop": 3}, lambda x: x[:, 1:3]),
    ("slice", {"axis": 0, "start": 1, "stop": 1}, lambda x: x[1:1]),
    ("pad", {"axis": 1, "before": 0, "after": 2}, lambda x: np.pad(x, [(0, 0), (0, 2)])),
    ("broadcast_to", {"shape": (4, 2, 3)}, lambda x: np.broadcast_to(x, (4, 2, 3))),
]


@pytest.mark.parametrize("dtype", ["float64", "int32", "bool"])
def test_any_dtype_is_moved_as_numpy_moves_it(dtype: str) -> None:
    for name, attrs, expected in MOVES:
        value = np.arange(6).reshape(2, 3).astype(dtype)
        x = input_node(TensorType((2, 3), dtype))
        y = apply(name, x, **attrs)
        (found,) = evaluate(Graph((x,), (y,)), [value])
        np.testing.assert_array_equal(found, expected(value))
        assert (found.shape, found.dtype) == (y.shape, dtype)


MOVE_THAT = [
    ("slice", {"axis": 0, "start": 1, "stop": 3}),
    ("slice", {"axis": 0, "start": 2, "stop": 1}),
    ("slice", {"axis": 0, "start": -1, "stop": 1}),
    ("slice", {"axis": 2, "start": 0, "stop": 1}),
    ("pad", {"axis": 0, "before": -1, "after": 1}),
    ("pad", {"axis": -1, "before": 1, "after": 1}),
    ("transpose", {"axes": (0, 0)}),
    ("transpose", {"axes": (0,)}),
    ("reshape", {"shape": (5,)}),
    ("broadcast_to", {"shape": (3,)}),
    ("broadcast_to", {"shape": (2, 4)}),
]


def test_a_move_that_does_not_fit_is_refused() -> None:
    for name, attrs in MOVE_THAT:
        with pytest.raises(GraphError, match=f"ops.{name}: expected"):
            apply(name, input_node(TensorType((2, 3))), **attrs)


@pytest.mark.parametrize("name", ["concat", "stack"])
def test_one_batched_part_makes_the_whole_batched(name: str) -> None:
    parts = input_node(TensorType((3,)), UNBATCHED), input_node(TensorType((3,)), CALL)
    assert apply(name, *parts, axis=0).axis is CALL
    assert apply(name, parts[0], parts[0], axis=0).axis is UNBATCHED


def test_joined_parts_may_differ_along_the_axis_only() -> None:
    x, y = input_node(TensorType((2, 3))), input_node(TensorType((2, 4)))
    assert apply("concat", x, y, axis=1).shape == (2, 7)
    with pytest.raises(GraphError, match="tensors alike but for axis 0"):
        apply("concat", x, y, axis=0)
    with pytest.raises(GraphError, match="tensors of one type"):
        apply("stack", x, y, axis=0)
