"""What single blocks make of examples, beside what random programs say of all of them."""

from __future__ import annotations

import enum
import functools

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.blocks.constants import FromTensor
from foldbatch.errors import ExampleKeyError, UnknownNameError
from foldbatch.types import OBJECT, VOID, SequenceType, TensorType, TupleType, as_type
from tests.blocks.results import yields

# -- Map, Zip, NGrams and Length, over everything that is a sequence, in sequences of sequences and of tuples


ONE = fb.Scalar()
TWICE = fb.Function(lambda x: x * 2)
NUMBERS = fb.Map(ONE)


# -- sequences of sequences


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_ngrams_are_all_neighbours_and_none_where_there_are_fewer(n):
    def neighbours(xs):
        return [tuple(xs[i : i + n]) for i in range(len(xs) - n + 1)]

    lists = [list(map(float, range(length))) for length in range(6)]
    yields(NUMBERS >> fb.NGrams(n), *((xs, neighbours(xs)) for xs in lists))
    yields(fb.NGrams(n), *((xs, neighbours(xs)) for xs in ["", "a", "ab", "abcdef"]))
    pairs = fb.Map((ONE, fb.Void(), fb.Identity())) >> fb.NGrams(n)
    given = [(k, 0, str(k)) for k in range(4)]
    yields(pairs, (given, neighbours([(float(k), None, text) for k, _, text in given])))
    yields(fb.Record((ONE,) * 3) >> fb.NGrams(n), ([0, 1, 2], neighbours([0.0, 1.0, 2.0])))


def test_ngrams_of_an_iterator_are_its_neighbours():
    assert fb.NGrams(2).eval(iter("abc")) == [("a", "b"), ("b", "c")]


def test_sequences_are_wiring_and_cost_no_level_beyond_their_blocks():
    apart = fb.AllOf(NUMBERS, NUMBERS) >> fb.Zip()
    for block in (
        NUMBERS,
        apart,
        NUMBERS >> fb.NGrams(2),
        fb.Length(),
        fb.AllOf(NUMBERS, np.float32(1) >> fb.Broadcast()) >> fb.Zip(),
    ):
        assert block.max_depth([1, 2, 3]) == 0
    assert fb.Map(ONE >> TWICE).max_depth(range(9)) == 1
    assert (NUMBERS >> fb.Map(TWICE) >> fb.Map(TWICE)).max_depth(range(9)) == 2
    assert (apart >> fb.Map(fb.Function(ops.add))).max_depth(range(9)) == 1


# -- Fold, RNN and Reduce: as far as Python's own loops go, over sequences of any length


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


# -- Collecting what all nodes of an example yield, wherever they are


SEEN = fb.blocks.Collect()


def test_types_are_known_once_compiled():
    block = fb.blocks.Collected(fb.Map(ONE >> SEEN))
    right = TupleType((SequenceType(TensorType(())), SequenceType(TensorType(()))))
    assert fb.compile(block).model.result == right


# -- Losses add up over the batch, metrics keep their example, their place and their label


def test_labels_are_any_objects_and_stay_with_their_values():
    block = fb.Map(fb.AllOf(fb.GetItem("x") >> ONE, fb.GetItem("name")) >> fb.Metric("m"))
    results = fb.compile(block).run(
        [[{"x": 1, "name": "one"}, {"x": 2, "name": None}], [{"x": 3, "name": ["l"]}]], metrics=True
    )
    metric = results.metrics["m"]
    assert (metric.values.tolist(), metric.labels) == ([1.0, 2.0, 3.0], ["one", None, ["l"]])


def test_a_metric_that_is_never_visited_is_there_and_empty():
    program = fb.compile(fb.Map(fb.Vector(2) >> fb.Metric("m")))
    results = program.run([[], []], metrics=True)
    assert results.metrics["m"].values.shape == (0, 2)
    with pytest.raises(UnknownNameError, match="expected a metric of m, found 'n'"):
        results.metrics["n"]


# -- Constants, parameters and zeros: the same whatever is read, for every example


FLOAT = TensorType(())


def test_a_tensor_is_copied_when_it_becomes_a_block():
    array = np.float32([1, 2])
    block = FromTensor(array)
    array[0] = 9
    assert block.eval(None).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("tensor", "dtype"),
    [(1, "int64"), (1.5, "float32"), (True, "bool"), (np.int32(1), "int32"), (np.zeros((2, 0)), "float64")],
)
def test_a_constant_keeps_its_dtype(tensor, dtype):
    assert FromTensor(tensor).eval(None).dtype == dtype


EVERY_TYPE = [
    ("float32", 0.0),
    ([], 0.0),
    (2, [0.0, 0.0]),
    ([2, 1, "int64"], [[0], [0]]),
    ("bool", False),
    (None, None),
    ((), ()),
    ((1, ("int32", None)), ([0.0], (0, None))),
    (SequenceType(FLOAT), []),
    (TupleType((SequenceType(SequenceType(OBJECT)), VOID)), ([], None)),
]


def test_every_type_but_objects_and_broadcasts_has_a_zero():
    for type_, right in EVERY_TYPE:
        yields(fb.Zeros(type_), ("whatever", right), (None, right))
        assert fb.Zeros(type_).output_type == as_type(type_)
        assert fb.Zeros(type_).max_depth("whatever") == 0


def test_zeros_have_the_dtype_asked_for():
    for dtype in ("float64", "int32", "bool"):
        assert fb.Zeros([2, dtype]).eval(None).dtype == dtype


# -- Functions of tensors: what arrives in them, what may come out, and Concat


V = fb.Vector(2)


def test_arrays_parameters_numbers_and_layers_may_be_used_inside():
    weight = fb.Parameter(TensorType((2,)), [3.0, 4.0], "w")
    layer = fb.Linear(1, init="ones")
    block = V >> fb.Function(lambda x: layer((x + 1) * weight - np.float32([1, 2])))
    assert block.eval([1, 2]).tolist() == [2 * 3 - 1 + 3 * 4 - 2]
    assert list(fb.compile(block).params) == ["w", "linear.weight", "linear.bias"]


def test_functions_of_any_kind_will_do():
    assert (fb.AllOf(V, V) >> fb.Function(ops.add)).eval([1, 2]).tolist() == [2.0, 4.0]
    scale = functools.partial(ops.multiply, 3.0)
    assert (V >> fb.Function(scale)).eval([1, 2]).tolist() == [3.0, 6.0]
    assert repr(fb.Function(scale)) == "Function(partial)"

    class Scale:
        def __call__(self, x, by=4.0):
            return x * by

    assert (V >> fb.Function(Scale())).eval([1, 2]).tolist() == [4.0, 8.0]
    assert (fb.AllOf(V, V, V) >> fb.Function(lambda *xs: ops.add(*xs))).eval([1, 2]).tolist() == [3.0, 6.0]


def test_a_function_is_called_once_to_learn_its_type_and_once_for_each_place_and_program():
    calls = []
    block = V >> fb.Function(lambda x: calls.append(x) or x)
    pair = {"a": fb.AllOf(block, block)} >> fb.Identity()
    assert len(calls) == 1
    fb.compile(pair).run([{"a": [1, 2]}] * 5)
    assert len(calls) == 3


def test_concat_flattens_nested_tuples_when_asked():
    block = fb.Record((V, (fb.Scalar(), (V,)))) >> fb.Concat(flatten=True)
    assert block.eval([[1, 2], [3, [[4, 5]]]]).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


# -- Vectors with a single one, for one of a range of ints or of a list of anything


def one(at: int, of: int) -> list[float]:
    return [float(i == at) for i in range(of)]


@pytest.mark.parametrize(("start", "stop"), [(3, None), (0, 3), (1, 3), (-2, 2), (5, 6), (-3, 0), (-3, -1)])
def test_the_ints_are_those_of_a_range(start, stop):
    numbers = range(start) if stop is None else range(start, stop)
    yields(fb.OneHot(start, stop), *((x, one(at, len(numbers))) for at, x in enumerate(numbers)))
    program = fb.compile(fb.OneHot(start, stop))
    for outside in (numbers.start - 1, numbers.stop):
        with pytest.raises(ExampleKeyError, match="at example 1: expected an int from"):
            program.run([numbers.start, outside])


def test_numbers_that_equal_an_int_are_that_int():
    """As in Python's own dicts."""
    yields(fb.OneHot(3), (np.int64(2), one(2, 3)), (True, one(1, 3)), (1.0, one(1, 3)))


@pytest.mark.parametrize("dtype", ["float64", "int32", "bool"])
def test_vectors_have_the_dtype_asked_for(dtype):
    for block, example in ((fb.OneHot(3, dtype=dtype), 1), (fb.OneHotFromList("abc", dtype), "b")):
        np.testing.assert_array_equal(block.eval(example), np.array([0, 1, 0], dtype), strict=True)
        assert str(block.output_type) == f"{dtype}[3]"


def test_elements_of_a_list_may_be_anything_hashable():
    class Side(enum.Enum):
        LEFT = "left"

    elements = ["a", 2, None, ("b", 1), Side.LEFT, int]
    for given in (elements, tuple(elements), iter(elements)):
        yields(fb.OneHotFromList(given), *((x, one(at, 6)) for at, x in enumerate(elements)))


def test_what_is_not_in_the_list_is_an_error_or_zeros():
    strict, tolerant = fb.OneHotFromList(["a", "b"]), fb.OneHotFromList(["a", "b"], strict=False)
    for unknown in ("c", None, 0, ["a"], {}):  # be it hashable or not
        with pytest.raises(ExampleKeyError, match="at example 0: expected one of 'a', 'b'"):
            strict.eval(unknown)
        yields(tolerant, (unknown, [0.0, 0.0]), ("b", [0.0, 1.0]))


def test_the_list_is_copied():
    elements = ["a", "b"]
    block = fb.OneHotFromList(elements)
    elements.reverse()
    assert block.eval("a").tolist() == [1.0, 0.0]
