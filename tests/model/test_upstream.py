"""What a recursion makes of words alone is made by the cells of the words, where it can be, and changes nothing."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch import ops
from foldbatch.model import link
from foldbatch.model.model import Model
from foldbatch.params.parameters import dense
from foldbatch.static.graph import Graph, reachable
from foldbatch.static.printer import print_graph
from tests.knobs import knobs

SIZE = 3
WORD = fb.Scalar("int32") >> fb.Embedding(5, SIZE, name="words")
ZEROS = fb.Zeros(SIZE)


def scored(states: Any) -> Any:
    """A block whose loss is that of the last state of a sequence, which is its result, too."""
    loss = fb.Function(lambda h: ops.sum(ops.square(h - 0.3))) >> fb.Loss()
    return states >> fb.GetItem(1) >> fb.AllOf(fb.Identity(), loss) >> fb.GetItem(0)


def folded(function: Callable[[Any, Any], Any], words: Any = WORD) -> Any:
    cell = fb.Function(lambda x, h: (h, function(x, h)))
    return scored(fb.Map(words) >> fb.RNN(cell, initial_state=ZEROS))


def lstm(words: Any = WORD, dtype: str = "float32") -> Any:
    state = fb.Zeros(([SIZE, dtype], [SIZE, dtype]))
    last = fb.Map(words) >> fb.RNN(fb.LSTMCell(SIZE), initial_state=state) >> fb.GetItem(1) >> fb.GetItem(0)
    return scored(fb.AllOf(fb.Void(), last))


def gru() -> Any:
    return scored(fb.Map(WORD) >> fb.RNN(fb.GRUCell(SIZE), initial_state=ZEROS))


def own_gates() -> Any:
    first, second = fb.Linear(SIZE, name="a"), fb.Linear(SIZE, name="b")

    def cell(x: Any, h: Any) -> Any:
        both = ops.concat([x, h])
        return ops.tanh(first(both)) * ops.sigmoid(second(both))

    return folded(cell)


def two_kinds() -> Any:
    other = fb.Scalar("int32") >> fb.Embedding(7, SIZE, name="names")
    return lstm(fb.OneOf(lambda x: x > 2, {False: WORD, True: other}))


def model(block: Any) -> Model:
    return fb.compile(block, "numpy").model


def products(found: Model, name: str) -> list[tuple[int, ...]]:
    (cell,) = [cell for cell in found.cells if cell.name.endswith(name)]
    nodes = reachable(cell.graph.results, cell.graph.inputs)
    return [node.shape for node in nodes if node.op.name == "linear"]


@pytest.mark.parametrize(("block", "width"), [(lstm(), 4), (gru(), 3), (own_gates(), 2)])
def test_the_cell_of_words_multiplies_them(block, width):
    found = model(block)
    assert products(found, "map") == [(width * SIZE,)]
    assert products(found, "cell") == [(width * SIZE,)]  # of the state


def test_all_cells_whose_words_one_sequence_may_hold_multiply_them():
    found = model(two_kinds())
    assert [products(found, name) for name in ("[False]", "[True]")] == [[(4 * SIZE,)]] * 2


def both_ways() -> Any:
    first, last = (fb.RNN(fb.GRUCell(SIZE, name=name), initial_state=ZEROS) for name in "fb")
    return scored(fb.Map(WORD) >> fb.AllOf(first, fb.Slice(step=-1) >> last >> fb.GetItem(1)))


def test_both_directions_of_a_sequence_read_their_parts_of_one_product():
    found = model(both_ways())
    assert products(found, "map") == [(6 * SIZE,)]
    recursive = [s.name for s in found.signatures if s.recursive]
    assert [products(found, name) for name in recursive] == [[(3 * SIZE,)]] * 2  # of the state


LINEAR = fb.Linear(SIZE, name="linear")
VECTORS = fb.Map(fb.Vector(SIZE)) >> fb.RNN(fb.GRUCell(SIZE), initial_state=ZEROS)
# cells of one recursion: each reads some of the words
EITHER = fb.OneOf(
    fb.GetItem(0) >> fb.GetItem(0),
    {key: fb.AllOf(fb.GetItem(0) >> fb.GetItem(1), fb.GetItem(1)) >> fb.GRUCell(SIZE) for key in range(5)},
)


@pytest.mark.parametrize(
    "block",
    [
        folded(lambda x, h: ops.tanh(LINEAR(x) + h) * x),  # reads the word, too
        folded(lambda x, h: ops.tanh(ops.tanh(x) + LINEAR(h))),  # no product
        folded(lambda x, h: ops.tanh(LINEAR(x) + h), WORD >> fb.Dropout(0.5)),  # equal words differ
        scored(VECTORS),  # they are numbers, of which no two are equal
        fb.Map(fb.AllOf(fb.Identity(), WORD)) >> fb.RNN(EITHER, initial_state=ZEROS) >> fb.GetItem(1),
        fb.Map(WORD) >> fb.AllOf(fb.Identity(), fb.RNN(fb.GRUCell(SIZE), initial_state=ZEROS)),  # results
        fb.Map(WORD) >> fb.Map(LINEAR),  # no recursion
        # the cell of words yields the product already
        folded(lambda x, h: ops.tanh(LINEAR(x[0]) + h) * x[1], WORD >> fb.AllOf(fb.Identity(), LINEAR)),
    ],
)
def test_other_products_stay_where_they_are(block):
    with mock.patch.object(link, "moved_upstream", unmoved):
        expected = model(block)
    assert texts(model(block)) == texts(expected)


def unmoved(drafts: Any, *_: object) -> Any:
    return list(drafts)


def texts(found: Model) -> list[str]:
    return [print_graph(Graph(cell.built.inputs, cell.built.results)) for cell in found.cells]


def program(make: Callable[[], Any], **options: Any) -> fb.Program:
    """Return a compiled block with parameters that follow from their names."""
    made = fb.compile(make(), **knobs(options))
    for name, value in made.params.items():
        rng = np.random.default_rng(list(name.encode()))
        made.params[name] = rng.normal(size=value.shape).astype(value.dtype)
    return made


def double() -> Any:
    return lstm(fb.Scalar("int32") >> fb.Embedding(5, SIZE, name="words", dtype="float64"), "float64")


BACKEND = "llvm" if find_spec("llvmlite") is not None else "numpy"
SENTENCES = st.lists(st.lists(st.integers(0, 4), max_size=7), min_size=1, max_size=6)


@pytest.mark.parametrize("make", [lstm, double, own_gates, two_kinds, both_ways])
@settings(max_examples=4, deadline=None)
@given(batch=SENTENCES)
def test_values_and_gradients_are_those_of_the_model_as_written(make, batch):
    """With LLVM values are so to the bit: a row of a product does not depend on the others."""
    if make not in PROGRAMS:
        with mock.patch.object(link, "moved_upstream", unmoved):
            written = program(make, backend=BACKEND, threads=1)
            written.run([[1, 2]])  # its model for inference, too
        oracle = program(make, backend="reference", threads=1)
        PROGRAMS[make] = program(make, backend=BACKEND, threads=2), written, oracle
    moved, written, oracle = PROGRAMS[make]
    for other, tolerance in ((written, 0.0 if BACKEND == "llvm" else 1e-6), (oracle, 1e-5)):
        for value, expected in zip(moved.run(batch), other.run(batch), strict=True):
            np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance)
        gradients, wanted = moved.value_and_grad(batch)[1], other.value_and_grad(batch)[1]
        assert set(gradients) == set(wanted)
        for name, gradient in gradients.items():
            np.testing.assert_allclose(dense(gradient), dense(wanted[name]), rtol=1e-4, atol=1e-5)


PROGRAMS: dict[Any, tuple[fb.Program, ...]] = {}
