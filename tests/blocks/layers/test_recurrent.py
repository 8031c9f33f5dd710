"""The LSTM's and the GRU's step against their equations, along sequences, and against torch's cells."""

from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.types import TensorType, as_type
from tests.blocks.layers.checks import check_layer, sigmoid

SIZE, WIDTH = 3, 4
RNG = np.random.default_rng(0)
X = fb.Vector(WIDTH, "float64")


def lstm(x: Any, state: Any, p: Any) -> Any:
    """One step; x may be None."""
    h, c = state
    from_x = 0 if x is None else np.asarray(x) @ p["lstm.weight"]
    u, i, o, f = np.split(from_x + h @ p["lstm.recurrent"] + p["lstm.bias"], 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(u)
    return sigmoid(o) * np.tanh(c), c


def gru(x: Any, h: Any, p: Any, *, reset_after: bool) -> Any:
    """One step; x may be None."""
    w_n, w_r, w_z = np.split(p["gru.weight"], 3, axis=1) if x is not None else [np.zeros((WIDTH, SIZE))] * 3
    u_n, u_r, u_z = np.split(p["gru.recurrent"], 3, axis=1)
    b_n, b_r, b_z = np.split(p["gru.bias"], 3)
    x = np.zeros(WIDTH) if x is None else np.asarray(x)
    r = sigmoid(x @ w_r + h @ u_r + b_r)  # (5)
    z = sigmoid(x @ w_z + h @ u_z + b_z)  # (6)
    if reset_after:
        n = np.tanh(x @ w_n + b_n + r * (h @ u_n + p["gru.recurrent_bias"]))
    else:
        n = np.tanh(x @ w_n + (r * h) @ u_n + b_n)  # (8)
    return z * h + (1 - z) * n  # (7)


def along(cell: fb.Block, start: Any) -> fb.Block:
    """The state after all steps of a list, last item first, which a recursion reads from its end."""
    state = as_type(
        tuple([SIZE, "float64"] for _ in start) if isinstance(start, tuple) else [SIZE, "float64"]
    )
    rest = fb.ForwardDeclaration(output_type=state, name="rest")
    begin = fb.AllOf(*map(fb.FromTensor, start)) if isinstance(start, tuple) else fb.FromTensor(start)
    x = fb.InputTransform(lambda xs: xs[0]) >> X
    before = fb.InputTransform(lambda xs: xs[1:]) >> rest()
    rest.resolve_to(fb.OneOf(bool, {False: begin, True: fb.AllOf(x, before) >> cell >> fb.GetItem(1)}))
    return rest()


def test_cells_yield_output_and_state_and_gradients_reach_both_inputs() -> None:
    vector = fb.Vector(SIZE, "float64")
    scaled = fb.Vector(SIZE, "float64") >> fb.Linear(SIZE, name="before", bias=False)
    examples = [RNG.normal(size=(3, SIZE)).tolist() for _ in range(3)]
    examples = [[x, [h, c]] for x, h, c in examples]

    def reference(example: Any, p: Any) -> Any:
        x, (h, c) = example
        h, c = lstm(
            np.asarray(x) @ p["before.weight"], (np.asarray(h) @ p["before.weight"], np.asarray(c)), p
        )
        return h, (h, c)

    before = fb.Record((scaled, fb.Record((scaled, vector))))
    check_layer(before >> fb.LSTMCell(SIZE), reference, examples)

    def gru_reference(example: Any, p: Any) -> Any:
        x, (h, _) = example
        h = gru(np.asarray(x) @ p["before.weight"], np.asarray(h) @ p["before.weight"], p, reset_after=True)
        return h, h

    before = fb.Record((scaled, fb.GetItem(0) >> scaled))
    check_layer(before >> fb.GRUCell(SIZE), gru_reference, examples)


@pytest.mark.parametrize(
    ("element", "dtype"),
    [
        (TensorType((5,), "float64"), "float64"),
        (TensorType((5,)), "float32"),
        (as_type(("int32", [2, "float64"], 3)), "float64"),
        (TensorType((), "int64"), "float32"),
        (as_type(None), "float32"),
    ],
)
def test_a_state_has_the_dtype_of_the_first_float_of_the_input(element: Any, dtype: str) -> None:
    assert fb.GRUCell(2).state_type(element) == TensorType((2,), dtype)
    assert fb.LSTMCell(2).state_type(element) == as_type(([2, dtype], [2, dtype]))


V, PAIR = fb.Vector(2), fb.Record((fb.Vector(2), fb.Vector(2)))


def test_a_cell_can_be_called_on_tensors_inside_a_function() -> None:
    cell = fb.GRUCell(2, init="zeros")
    block = fb.Record((V, V)) >> fb.Function(lambda x, h: ops.sum(cell(x, h)[0]))
    assert float(block.eval([[1, 2], [2, 4]])) == 3.0
