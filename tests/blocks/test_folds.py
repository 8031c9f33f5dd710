"""Fold, RNN and Reduce: as far as Python's own loops go, over sequences of any length."""

from __future__ import annotations

import numpy as np

import foldbatch as fb
from tests.blocks.results import yields

ONE = fb.Scalar()
NUMBERS = fb.Map(ONE)
NOTHING = fb.Zeros([])
SUMS = fb.Function(lambda x, state: (x * state, x + state))


def test_a_tuple_of_blocks_is_a_default_of_that_type():
    weight = fb.Parameter([], 4.0, "w")
    both = ONE >> fb.AllOf(fb.Identity(), fb.Function(lambda x: -x))
    join = fb.Function(lambda a, b: (a[0] + b[0], a[1] * b[1]))
    yields(fb.Map(both) >> fb.Reduce(join, default=(weight, NOTHING)), ([], (4.0, 0.0)), ([2, 3], (5.0, 6.0)))
    yields(fb.Optional(both, none=(weight, np.float32(7))), (None, (4.0, 7.0)), (2, (2.0, -2.0)))


def test_an_lstm_starts_from_a_trained_state():
    first = fb.Parameter([2], 0.5, "first")
    block = fb.Map(fb.Vector(3)) >> fb.RNN(fb.LSTMCell(2), initial_state=(fb.Zeros(2), first))
    _, (h, c) = block.eval([])
    assert (h.tolist(), c.tolist()) == ([0, 0], [0.5, 0.5])
    _, (h, c) = block.eval([[1, 2, 3]])
    assert h.shape == c.shape == (2,)


def test_an_rnn_finds_its_first_state_where_the_cells_type_tells_it():
    for size, dtype in ((2, "float32"), (3, "float64")):
        rows = fb.Map(fb.Vector(2, dtype))
        outputs, (h, c) = (rows >> fb.RNN(fb.LSTMCell(size))).eval([])
        assert (outputs, h.tolist(), c.tolist(), h.dtype) == ([], [0.0] * size, [0.0] * size, dtype)
        outputs, h = (rows >> fb.RNN(fb.GRUCell(size))).eval([[1, 2]])
        assert (outputs[0] == h).all()
    step = fb.ForwardDeclaration(("float32", "float32"), ("float32", "float32"), "step")
    step.resolve_to(SUMS)
    yields(NUMBERS >> fb.RNN(step()), ([2, 3], ([0.0, 6.0], 5.0)))
