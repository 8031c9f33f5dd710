"""Fold, RNN and Reduce: as far as Python's own loops go, over sequences of any length."""

from __future__ import annotations

import math

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import BlockTypeError
from tests.blocks.results import slopes, yields

ONE = fb.Scalar()
NUMBERS = fb.Map(ONE)
NOTHING = fb.Zeros([])
ADD = fb.Function(lambda a, b: a + b)
LESS = fb.Function(lambda a, b: a - b)
JOIN = fb.Function(lambda state, x: state * 10 + x)  # not associative: 1, 2, 3 is 123
SUMS = fb.Function(lambda x, state: (x * state, x + state))
LISTS = [[], [1], [1, 2], [1, 2, 3], [3, 1, 2, 5], [2, 7, 1, 8, 2], [1] * 8]


def paired(f, xs, default=0.0):
    """Reduce, said in Python: neighbours pairwise, the odd last one as it is."""
    while len(xs) > 1:
        xs = [f(*xs[i : i + 2]) if len(xs[i : i + 2]) == 2 else xs[i] for i in range(0, len(xs), 2)]
    return float(xs[0]) if xs else default


def test_a_fold_starts_from_any_block_that_reads_nothing():
    weight = fb.Parameter(fb.types.TensorType(()), 4.0, "w")
    for start in (fb.FromTensor(np.float32(4)), np.float32(4), weight, weight >> fb.Identity()):
        yields(NUMBERS >> fb.Fold(ADD, start), ([], 4.0), ([1, 2], 7.0))
    assert slopes(NUMBERS >> fb.Fold(JOIN, weight) >> fb.Loss(), [[1, 2], [], [3]]) == {"w": 111.0}


def test_a_state_may_be_any_type():
    """A tuple of tensors and void, an object, a sequence."""
    both = fb.Function(lambda state, x: (state[0] + x, state[1] * x))
    start = fb.AllOf(NOTHING, np.float32(1))
    yields(NUMBERS >> fb.Fold(both, start), ([], (0.0, 1.0)), ([2, 3, 4], (9.0, 24.0)))
    last = fb.Fold(fb.GetItem(1), fb.Zeros("int32"))
    yields(fb.Map(fb.Scalar("int32")) >> last, ([], 0), ([3, 1, 2], 2))
    kept = fb.Fold(fb.GetItem(0), fb.Zeros(fb.types.SequenceType(fb.types.TensorType(()))))
    yields(NUMBERS >> kept, ([1, 2], []))


def test_several_blocks_make_a_first_state_as_they_make_a_record():
    """As in Fold: in a tuple, a list or a dict, nested or not; arrays and parameters stand for themselves."""
    weight = fb.Parameter([], 4.0, "w")
    parts = fb.Function(lambda state, x: (state[0] + x, (state[1][0] * x, x)))
    for start in (
        (weight, (np.float32(1), NOTHING)),
        [weight, [np.ones((), np.float32), NOTHING]],
        {"sum": weight, "rest": {"product": fb.FromTensor(np.float32(1)), "last": NOTHING}},
        fb.Record((weight, fb.Record((np.float32(1), NOTHING)))),
        (weight, fb.AllOf(np.float32(1), NOTHING)),
    ):
        yields(NUMBERS >> fb.Fold(parts, start), ([], (4.0, (1.0, 0.0))), ([2, 3], (9.0, (6.0, 3.0))))
    cell = fb.Function(lambda x, state: (x + state[0], (state[0] + x, state[1] * x)))
    block = NUMBERS >> fb.RNN(cell, initial_state=(weight, fb.FromTensor(np.float32(1))))
    yields(block, ([], ([], (4.0, 1.0))), ([2, 3], ([6.0, 9.0], (9.0, 6.0))))
    total = block >> fb.GetItem(1) >> fb.Function(lambda a, b: a * b) >> fb.Loss()
    assert slopes(total, [[2, 3], []]) == {"w": 7.0}


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


def test_an_rnn_yields_every_output_and_the_last_state():
    block = NUMBERS >> fb.RNN(SUMS, NOTHING)
    yields(
        block, ([], ([], 0.0)), ([2], ([0.0], 2.0)), ([2, 3], ([0.0, 6.0], 5.0)), ([1] * 3, ([0, 1, 2], 3.0))
    )


def test_an_rnn_may_be_given_its_first_state():
    block = fb.Record((NUMBERS, ONE)) >> fb.RNN(SUMS, initial_state_from_input=True)
    yields(block, (([2, 3], 4), ([8.0, 18.0], 9.0)), (([], 4), ([], 4.0)))
    forth_and_back = (
        fb.AllOf(NUMBERS, NUMBERS >> fb.Slice(step=-1) >> fb.RNN(SUMS, NOTHING) >> fb.GetItem(1))
        >> fb.RNN(SUMS, initial_state_from_input=True)
        >> fb.GetItem(1)
    )
    yields(forth_and_back, ([1, 2, 3], 12.0), ([], 0.0))


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


def test_reduce_combines_neighbours_level_by_level():
    yields(NUMBERS >> fb.Reduce(LESS), *((xs, paired(lambda a, b: a - b, xs)) for xs in LISTS))


def test_reduce_of_nothing_is_zero_or_the_default():
    yields(NUMBERS >> fb.Reduce(ADD, np.float32(7)), ([], 7.0), ([1], 1.0), ([1, 2], 3.0))
    yields(fb.Map(NUMBERS) >> fb.Reduce(fb.GetItem(1)), ([], []), ([[1], [2, 3]], [2.0, 3.0]))


def test_depths_are_one_for_each_element_or_for_each_halving():
    fold, rnn = NUMBERS >> fb.Fold(ADD, NOTHING), NUMBERS >> fb.RNN(SUMS, NOTHING)
    reduce = NUMBERS >> fb.Reduce(ADD)
    for n in (0, 1, 2, 3, 4, 5, 8, 9, 33):
        assert (fold.max_depth(range(n)), rnn.max_depth(range(n))) == (n, n)
        assert reduce.max_depth(range(n)) == (math.ceil(math.log2(n)) if n else 0)
    assert (fb.Map(ONE >> fb.Function(ops.tanh)) >> fb.Fold(ADD, NOTHING)).max_depth([1, 2, 3]) == 4
    assert (NUMBERS >> fb.Fold(ADD >> fb.Function(ops.tanh) >> fb.Function(ops.exp), NOTHING)).max_depth(
        [1, 2]
    ) == 2


def test_a_state_that_changes_its_type_is_refused_with_both_types():
    with pytest.raises(BlockTypeError) as caught:
        NUMBERS >> fb.Fold(fb.AllOf(fb.GetItem(0)), NOTHING)
    assert (caught.value.expected, caught.value.found) == (
        "a state of float32, as the start is",
        "(float32,)",
    )
