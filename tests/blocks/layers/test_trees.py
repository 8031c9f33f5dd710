"""The two Tree-LSTMs against their paper's equations, written out node by node in float64.

Tai, Socher and Manning 2015: equations 2 to 8 (child-sum) and 9 to 14 (N-ary). A tree here is
``(x or None, [children])``. Gates stand in the order u, i, o, f in the layers' parameters.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import foldbatch as fb
from tests.blocks.layers.checks import sigmoid

SIZE, WIDTH = 3, 4
Parameters = dict[str, np.ndarray]
State = tuple[np.ndarray, np.ndarray]


def n_ary(node: Any, p: Parameters, arity: int) -> State:
    """One node of an N-ary Tree-LSTM, after its children."""
    x, children = node
    states = [None if child is None else n_ary(child, p, arity) for child in children]
    states += [None] * (arity - len(states))
    zero = np.zeros(SIZE)
    h = [zero if s is None else s[0] for s in states]
    c = [zero if s is None else s[1] for s in states]
    w_u, w_i, w_o, w_f = np.split(p["weight"], 4, axis=1) if x is not None else [np.zeros((WIDTH, SIZE))] * 4
    b_u, b_i, b_o, b_f = np.split(p["bias"], 4)
    x = np.zeros(WIDTH) if x is None else np.array(x)

    def from_children(gate: int) -> np.ndarray:
        """sum_l U_l h_l for one gate: u, i, o are 0, 1, 2 and f_k is 3 + k."""
        if all(s is None for s in states):
            return zero
        columns = slice(gate * SIZE, (gate + 1) * SIZE)
        blocks = [p["recurrent"][k * SIZE : (k + 1) * SIZE, columns] for k in range(arity)]
        return sum(h_l @ u_l for h_l, u_l in zip(h, blocks, strict=True))

    i = sigmoid(x @ w_i + from_children(1) + b_i)  # (9)
    f = [sigmoid(x @ w_f + from_children(3 + k) + b_f) for k in range(arity)]  # (10)
    o = sigmoid(x @ w_o + from_children(2) + b_o)  # (11)
    u = np.tanh(x @ w_u + from_children(0) + b_u)  # (12)
    cell = i * u + sum(f_k * c_k for f_k, c_k in zip(f, c, strict=True))  # (13)
    return o * np.tanh(cell), cell  # (14)


def test_a_missing_child_counts_as_a_state_of_zeros() -> None:
    """The right child alone uses the right child's weights."""
    cell = fb.TreeLSTM(SIZE, name="cell")
    leaf = fb.Record((fb.Vector(WIDTH, "float64"), fb.Record(()))) >> cell
    block = fb.AllOf(fb.Void(), fb.AllOf(fb.Void(), fb.GetItem(0) >> leaf)) >> cell
    program = fb.compile(block)
    parameters = {name.partition(".")[2]: value for name, value in program.params.items()}
    x = [1.0, -1.0, 0.5, 2.0]
    expected = n_ary((None, [None, (x, [])]), parameters, 2)
    np.testing.assert_allclose(program.run([[(x, [])]])[0], expected, rtol=1e-12)
