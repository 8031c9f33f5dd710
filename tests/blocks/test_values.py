"""What single blocks make of examples, beside what random programs say of all of them."""

import enum
import functools
from collections import deque, namedtuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch import errors, ops
from foldbatch.blocks.block import infer
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.drafts import Object, UnknownTypeError
from foldbatch.blocks.function import FromTensor
from foldbatch.model.columns import BadDataError, column
from foldbatch.trees import Tree
from foldbatch.types import OBJECT, VOID, SequenceType, TensorType, TupleType, as_type
from tests.backends import BACKENDS
from tests.blocks.results import yields

ONE = fb.Scalar()
TWICE = fb.Function(lambda x: x * 2)
NUMBERS = fb.Map(ONE)
on_each_backend = pytest.mark.parametrize("backend", BACKENDS)


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


SEEN = fb.blocks.Collect()


def test_types_are_known_once_compiled():
    block = fb.blocks.Collected(fb.Map(ONE >> SEEN))
    right = TupleType((SequenceType(TensorType(())), SequenceType(TensorType(()))))
    assert fb.compile(block).model.result == right


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
    with pytest.raises(errors.UnknownNameError, match="expected a metric of m, found 'n'"):
        results.metrics["n"]


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


def one(at: int, of: int) -> list[float]:
    return [float(i == at) for i in range(of)]


@pytest.mark.parametrize(("start", "stop"), [(3, None), (0, 3), (1, 3), (-2, 2), (5, 6), (-3, 0), (-3, -1)])
def test_the_ints_are_those_of_a_range(start, stop):
    numbers = range(start) if stop is None else range(start, stop)
    yields(fb.OneHot(start, stop), *((x, one(at, len(numbers))) for at, x in enumerate(numbers)))
    program = fb.compile(fb.OneHot(start, stop))
    for outside in (numbers.start - 1, numbers.stop):
        with pytest.raises(errors.ExampleKeyError, match="at example 1: expected an int from"):
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
    for form in (elements, tuple(elements), iter(elements)):
        yields(fb.OneHotFromList(form), *((x, one(at, 6)) for at, x in enumerate(elements)))


def test_what_is_not_in_the_list_is_an_error_or_zeros():
    strict, tolerant = fb.OneHotFromList(["a", "b"]), fb.OneHotFromList(["a", "b"], strict=False)
    for unknown in ("c", None, 0, ["a"], {}):  # be it hashable or not
        with pytest.raises(errors.ExampleKeyError, match="at example 0: expected one of 'a', 'b'"):
            strict.eval(unknown)
        yields(tolerant, (unknown, [0.0, 0.0]), ("b", [0.0, 1.0]))


def test_the_list_is_copied():
    elements = ["a", "b"]
    block = fb.OneHotFromList(elements)
    elements.reverse()
    assert block.eval("a").tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [("int8", "int32"), ("uint8", "int32"), ("int16", "int32"), ("uint16", "int32"), ("float16", "float32")],
)
def test_narrow_data_are_widened_in_every_place_and_batch(dtype, wide):
    """Arrays, scalars and Python numbers; one by one, in columns, prepared, and in another dtype's stead."""
    low, high = (0, 1) if dtype == "float16" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    rows = [[low, high], np.array([high, low], dtype), (np.dtype(dtype).type(high), 1)]
    right = [[low, high], [high, low], [high, 1]]
    vector = fb.Vector(2, dtype)
    assert vector.output_type == TensorType((2,), wide)
    for block in (vector, fb.Vector(2, wide)):
        program = fb.compile(fb.AllOf(fb.Map(block), fb.Map(fb.Map(fb.Scalar(dtype)))))
        for examples in ([rows], program.prepare([rows])):
            ((found, scalars),) = program.run(examples)
            assert [x.tolist() for x in found] == right
            assert [[x.item() for x in row] for row in scalars] == right
            assert {x.dtype for x in found} == {x.dtype for row in scalars for x in row} == {np.dtype(wide)}
    for backend in ("reference", "numpy"):
        sums = fb.compile(vector >> fb.Function(lambda x: ops.sum(x * 2)), backend).run(rows)
        assert [float(x) for x in sums] == [2.0 * sum(row) for row in right]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_integers_that_do_not_fit_the_declared_dtype_are_refused(dtype):
    limits = np.iinfo(dtype)
    program = fb.compile(fb.Map(fb.Scalar(dtype)))
    for wrong in (limits.min - 1, limits.max + 1, np.int64(limits.max + 1), -(2**40)):
        for example in ([wrong], [1, 2, wrong, limits.max]):
            with pytest.raises(
                errors.ExampleError, match=f"expected {dtype}, found .*; declare int32"
            ) as caught:
                program.run([[1], example])
            assert f"at example 1 [{example.index(wrong)}]" in caught.value.where


WHOLE = st.integers(-(2**63), 2**64 - 1) | st.builds(
    lambda power, more, sign: sign * (2**power + more),
    st.sampled_from([0, 23, 24, 25, 52, 53, 54, 62]),
    st.integers(-2, 2),
    st.sampled_from([1, -1]),
)


@given(
    st.lists(WHOLE | st.floats(-1e38, 1e38), min_size=1, max_size=80),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from(["numbers", "lists", "of NumPy", "array"]),
)
def test_whole_numbers_are_read_as_floats_where_nothing_is_lost_and_else_refused(numbers, dtype, form):
    """Numbers that are floats are rounded."""
    items, type_ = numbers, TensorType((), dtype)
    if form == "lists":
        items, type_ = [[x, 0.5] for x in numbers], TensorType((2,), dtype)
    elif form == "of NumPy":
        items = [np.asarray(x)[()] for x in numbers]
    elif form == "array":
        items = np.asarray(numbers)
    whole = [x for x in numbers if isinstance(x, int)]
    if form == "array" and items.dtype.kind == "f":  # whose numbers are floats
        whole = []
    if all(int(np.dtype(dtype).type(x)) == x for x in whole):
        found = column(items, type_)
        first = found if type_.shape == () else found[:, 0]
        assert first.tolist() == [np.dtype(dtype).type(x) for x in numbers]
    else:
        with pytest.raises(BadDataError) as refused:
            column(items, type_)
        assert refused.value.fix.startswith(f"{dtype} would round it: declare ")


@on_each_backend
def test_whole_numbers_that_would_be_rounded_are_refused_by_both_doors(backend):
    @fb.cell
    def priced(price: "float32"):  # noqa: F821 - the name of a dtype
        return price * 1.0

    for model, where in ((fb.Scalar(), "model Scalar"), (lambda x: priced(x), "priced")):
        program = fb.compile(model, backend)
        for _ in range(3):  # what few examples of a known walk are read by, too
            assert [float(x) for x in program.run([2**24, 2**24 + 2, 2.0**24 + 1])] == [
                2.0**24,
                2.0**24 + 2,
                2.0**24,
            ]
        expected = rf"{where}.* at example 1: expected float32, found int 16777217; float32 would round it"
        with pytest.raises(errors.ExampleError, match=expected):
            program.run([1, 2**24 + 1])


@on_each_backend
def test_sums_of_integers_have_room(backend):
    """As NumPy's and PyTorch's: of lists, tuples and axes, by both doors."""
    large = 2_000_000_000
    each, total = fb.Scalar("int32"), 2 * large

    def walk(numbers):
        return cell([fb.tensor(x) for x in numbers])

    @fb.cell
    def cell(xs: list["int32"]):  # noqa: F821 - the name of a dtype
        return ops.segment_sum(xs)

    vector = fb.Vector(2, "int32")
    models = [fb.Map(each) >> fb.Sum(), fb.Record((each, each)) >> fb.Sum(), walk]
    models += [vector >> fb.Function(f) for f in (ops.sum, lambda x: ops.cumsum(x)[1])]
    for model in models:
        (found,) = fb.compile(model, backend).run([(large, large)])
        assert (int(found), found.dtype) == (total, np.int64)


@pytest.mark.parametrize(
    ("block", "example", "right"),
    [
        (fb.InputTransform(len), "four", 4),
        (fb.InputTransform(str.split) >> fb.GetItem(1), "a b", "b"),
        (fb.Identity(), "whatever", "whatever"),
        (fb.Void(), "whatever", None),
    ],
)
def test_objects_are_read_as_python_reads_them(block, example, right):
    assert block.eval(example) == right


def test_a_function_of_objects_is_called_once_for_each_visit():
    calls = []
    block = fb.Map(fb.InputTransform(lambda x: calls.append(x) or x) >> fb.Scalar())
    program = fb.compile(block)
    program.run([[1, 2], [3]])
    assert calls == [1, 2, 3]
    prepared = program.prepare([[4]])
    program.run(prepared)
    program.value_and_grad(prepared)
    assert calls == [1, 2, 3, 4]


PAIRS = fb.Map(fb.AllOf(ONE, fb.Void(), fb.Identity()))


ITEMS_OBJECTS = [
    (fb.GetItem("a"), {"a": 1, "b": 2}, 1),
    (fb.GetItem(0), [1, 2], 1),
    (fb.GetItem(-1), (1, 2), 2),
    (fb.GetItem(slice(1, None)), [1, 2, 3], [2, 3]),
    (fb.GetItem((1, "x")), {(1, "x"): 3}, 3),
    (fb.GetItem(None), {None: 4}, 4),
    (fb.GetItem(True), {True: 5}, 5),
    (fb.GetItem("{brace} %s \\ ' \""), {"{brace} %s \\ ' \"": 6}, 6),
    (fb.GetItem(1) >> fb.GetItem("x"), [0, {"x": 7}], 7),
]


def test_items_of_objects_are_read_as_python_reads_them():
    for block, example, right in ITEMS_OBJECTS:
        assert block.eval(example) == right


def test_a_key_may_be_an_enum_whose_repr_is_no_expression():
    class Side(enum.StrEnum):
        LEFT = "left"

    class Place(enum.IntEnum):
        SECOND = 1

    assert fb.GetItem(Side.LEFT).eval({"left": 1}) == 1
    assert fb.GetItem(Place.SECOND).eval([1, 2]) == 2
    assert fb.GetItem(np.str_("left")).eval({"left": 1}) == 1
    with pytest.raises(errors.ExampleError, match=r"at example 0.*Side.LEFT"):
        fb.GetItem(Side.LEFT).eval({})


def test_a_slice_takes_keywords_alone():
    with pytest.raises(TypeError):
        fb.Slice(1)


def test_a_number_without_an_element_is_named_with_the_example():
    for pairs in (fb.Record((NUMBERS, fb.Identity())), fb.Record((PAIRS, fb.Identity()))):
        program = fb.compile(pairs >> fb.Nth())
        for number in (2, -3):
            with pytest.raises(
                errors.ExampleIndexError, match=f"at example 1.*one of 2 elements, found int {number};"
            ):
                program.run([([1, 2], 0), ([1, 2], number)])
        for number in ("a", 1.0, None, slice(0, 1)):
            with pytest.raises(
                errors.ExampleTypeError, match="at example 0: expected an int as number of an element"
            ):
                program.run([([1, 2], number)])
    with pytest.raises(errors.ExampleIndexError, match="at example 0"):
        fb.Nth().eval(("abc", 3))


def test_a_default_stands_for_what_an_object_lacks():
    yields(fb.GetItem("a", default=7), ({"a": 1}, 1), ({}, 7), ({"a": None}, None))
    yields(fb.GetItem(1, default=None), ([1, 2], 2), ((1,), None), ([], None), ({1: 3}, 3), ("ab", "b"))
    yields(fb.GetItem(-2, default="x") >> fb.Identity(), ([1, 2], 1), ([1], "x"))
    yields(fb.GetItem("a", default={"b": 4}) >> fb.GetItem("b") >> ONE, ({"a": {"b": 1}}, 1.0), ({}, 4.0))
    tree = fb.trees.parse_brackets("(S (A a) (B b))")
    third = fb.GetItem(2, default=None) >> fb.Optional(fb.GetItem("label") >> fb.Scalar("int32"))
    yields(third, (tree, 0), (tree[0], 0), (fb.trees.parse_brackets("(1 (2 a) (3 b) (4 c))", int), 4))
    assert repr(fb.GetItem("a", default=None)) == "GetItem('a', default=None)"
    assert repr(fb.GetItem("a")) == "GetItem('a')"


def test_a_wire_without_a_default_is_not_the_one_with_it():
    both = fb.Composition("both")
    with both.scope():
        lenient = fb.GetItem("a", default=0).reads(both.input)
        both.output.reads(fb.Scalar().reads(both.input["a"]), fb.Scalar().reads(lenient))
    assert both.eval({"a": 1}) == (1.0, 1.0)
    with pytest.raises(errors.ExampleKeyError, match="expected an item 'a'"):
        both.eval({})


def test_items_are_the_pairs_of_a_map_sorted_by_key():
    yields(
        fb.blocks.Items(),
        ({"b": 2, "a": 1}, [("a", 1), ("b", 2)]),
        ({}, []),
        ({2: "x", 1: {}}, [(1, {}), (2, "x")]),
    )
    one = fb.Record((fb.OneHotFromList("ab"), ONE)) >> fb.Concat()
    total = fb.GetItem("scores") >> fb.blocks.Items() >> fb.Map(one) >> fb.Sum()
    yields(total, ({"scores": {"b": 2, "a": 3}}, [1.0, 1.0, 5.0]), ({"scores": {}}, [0.0, 0.0, 0.0]))
    with pytest.raises(
        errors.ExampleTypeError, match=r"at example 0 \['scores'\]\.items\(\)\[1\]\[1\]: expected float32"
    ):
        total.eval({"scores": {"b": "two", "a": 3}})
    for scores, message in (
        ([1], "expected a mapping, found list of 1; give it a dict"),
        ({1: 2, "a": 3}, "expected keys that can be sorted, found keys of int, str; make all keys strings"),
    ):
        with pytest.raises(errors.ExampleTypeError, match=rf"at example 0 \['scores'\]: {message}"):
            total.eval({"scores": scores})
    with pytest.raises(errors.BlockTypeError, match="expected a Python object, found float32"):
        ONE >> fb.blocks.Items()


PAIR = fb.Record((ONE, ONE))
Named = namedtuple("Named", "a b c")  # noqa: PYI024 - a plain one, as in data of old


def leaf_count() -> fb.Block:
    tree = fb.ForwardDeclaration(output_type="float32", name="tree")
    both = fb.Record((tree(), tree())) >> fb.Function(lambda a, b: a + b)
    tree.resolve_to(fb.OneOf(lambda t: t.is_leaf, {True: fb.FromTensor(np.float32(1)), False: both}))
    return tree()


def test_a_child_that_is_not_read_is_refused_with_its_place_and_what_to_do():
    program = fb.compile(leaf_count(), backend="numpy")
    binary = fb.trees.parse_brackets("(S (A a) (B b))")
    ternary = fb.trees.parse_brackets("(S (A a) (B (C c) (D d) (E e)))")
    assert [float(x) for x in program.run([binary])] == [2.0]
    with pytest.raises(errors.ExampleError) as caught:
        program.run([binary, ternary])
    assert str(caught.value) == (
        "tree[False] Record((tree(), tree())) at example 1 [1]: expected 2 items, found 3; read all "
        "children with Map and ChildSumTreeLSTM, or binarise the trees, or use TreeLSTM(arity=3) with a "
        "Record for each number of children; Record(..., rest='ignore') drops the rest"
    )
    with pytest.raises(errors.ExampleError, match=r"at example 0: expected 2 items, found 3"):
        program.run([Tree.from_nested(("S", ("A", "a"), ("B", "b"), ("C", "c")))])


WHATEVER_HAS = [[1, 2, 3], (1, 2, 3), Named(1, 2, 3), np.arange(3), np.ones((3, 1))[:, 0]]
WHATEVER_HAS += [range(3), deque([1, 2, 3]), "123"]


def test_whatever_has_an_order_is_counted():
    for example in WHATEVER_HAS:
        with pytest.raises(
            errors.ExampleError, match="at example 0: expected 2 items, found 3; give a block for each"
        ):
            fb.Record((fb.Identity(), fb.Identity())).eval(example)


def test_a_rest_may_be_ignored():
    block = fb.Record((ONE, ONE), rest="ignore")
    yields(block, ([1, 2], (1.0, 2.0)), ([1, 2, 3], (1.0, 2.0)), (np.arange(9), (0.0, 1.0)))
    yields(fb.Record((ONE, ONE, ONE)) >> fb.Record((fb.Identity(),), rest="ignore"), ([1, 2, 3], (1.0,)))
    assert repr(block) == "Record((Scalar('float32'), Scalar('float32')), rest='ignore')"
    assert repr(fb.Record({"a": ONE}, rest="ignore")) == "Record({'a': Scalar('float32')}, rest='ignore')"
    with pytest.raises(errors.BlockTypeError, match="expected a tuple of 1"):
        fb.Record((ONE, ONE)) >> fb.Record((fb.Identity(),))
    with pytest.raises(
        errors.BlockValueError, match=r"Record: expected rest as one of 'error', 'ignore', found str"
    ):
        fb.Record((ONE,), rest="drop")


def test_what_is_read_by_key_or_has_no_order_is_not_counted():
    class Halves:
        def __getitem__(self, key):
            return key

    class Words(Halves):
        def __len__(self):
            return 9  # of the phrase, say

    yields(fb.Record({0: ONE, 1: ONE}), ([1, 2, 3], (1.0, 2.0)))
    yields(PAIR, ({0: 1, 1: 2, "more": 3}, (1.0, 2.0)), (Halves(), (0.0, 1.0)), (Words(), (0.0, 1.0)))
    yields(fb.Record(()), ([1, 2, 3], ()))
    yields(fb.AllOf(fb.GetItem(0) >> ONE, fb.GetItem(1) >> ONE), ([1, 2, 3], (1.0, 2.0)))


def test_an_ill_typed_block_stays_ill_typed():
    wrong = fb.Function(lambda x: x[5])
    for _ in range(2):
        with pytest.raises(errors.BlockTypeError):
            fb.Vector(2) >> wrong
    assert (fb.Vector(6) >> wrong).eval([0, 0, 0, 0, 0, 9]) == 9


def test_what_a_declaration_without_a_type_yields_is_not_known_yet():
    untyped = fb.ForwardDeclaration(name="untyped")
    with pytest.raises(UnknownTypeError):
        untyped().build(Builder.scratch("root"), Object("x"))
    late = fb.AllOf(untyped(), ONE) >> fb.GetItem(0) >> fb.Linear(3)  # no error yet
    assert late.output_type is None
    assert infer(late, Builder.scratch("root")) is None


def test_inference_leaves_nothing_in_the_program():
    """Losses, metrics and parameters that only inference has seen are no part of it."""
    layer = fb.Linear(1, name="used")
    fb.Vector(2) >> fb.Linear(3) >> fb.Function(ops.sum) >> fb.AllOf(fb.Loss(), fb.Metric("other"))
    program = fb.compile(fb.Vector(2) >> layer)
    assert list(program.params) == ["used.weight", "used.bias"]
    assert program.run([[1, 2]], losses=True).loss == 0.0


def test_errors_of_composition_begin_with_the_blocks_on_either_side():
    with pytest.raises(errors.BlockTypeError, match=r"^Function\(tanh\) >> Concat\(\): expected a tuple"):
        ONE >> fb.Function(ops.tanh) >> fb.Concat()
    with pytest.raises(errors.BlockTypeError, match=r"^Function\(tanh\) >> Concat\(\): expected a tuple"):
        fb.Pipe(ONE, fb.Function(ops.tanh), fb.Concat())
