"""Arrow data are traced to the traces of ``to_pylist()``, to the bit, whatever lies how in them."""

import datetime as dt
import decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.blocks.purity import pure
from foldbatch.errors import ExampleError
from foldbatch.trees.given import chosen, rows_of
from tests.blocks.laws import lowered

pa = pytest.importorskip("pyarrow", reason="needs pyarrow: pip install -e '.[arrow]'")

WORDS = fb.trees.Vocabulary(["a", "b"])
TEXTS = st.sampled_from(["a", "b", "ü", ""])
MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001 - as Arrow has it


def word():
    return fb.InputTransform(WORDS.__getitem__) >> fb.Scalar("int32") >> fb.Embedding(len(WORDS), 2)


# per kind of field: its types in Arrow, its values, and a block that reads it as two numbers
TWICE = fb.Function(lambda x: fb.ops.stack([x, x]))
WIDE = fb.Function(lambda x: fb.ops.cast(x, "float32")) >> TWICE
NUMBERS = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
KEYED = [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]
LEAVES = [
    (FLOATS, st.sampled_from([0.0, -0.0, 0.5, float("inf"), float("nan")]), fb.Scalar() >> TWICE),
    (NUMBERS, st.integers(0, 100), fb.Scalar("int32") >> fb.Embedding(101, 2)),
    ([*NUMBERS, *FLOATS], st.integers(0, 100), fb.Scalar() >> TWICE),
    (KEYED, TEXTS, word()),
    (KEYED, TEXTS, fb.OneOf(len, {0: fb.Zeros([2]), 1: fb.InputTransform(pure(lambda x: ord(x))) >> fb.Scalar() >> TWICE})),
    ([pa.bool_()], st.booleans(), fb.OneOf(lambda x: x, {True: fb.Zeros([2]), False: fb.Scalar("bool") >> WIDE})),
    ([pa.list_(pa.float32(), 2), pa.list_(pa.float64()), pa.large_list(pa.int16())],
     st.lists(st.integers(0, 9), min_size=2, max_size=2), fb.Vector(2)),
]  # fmt: skip


@st.composite
def fields(draw, depth=2):
    """Return a type of Arrow, a strategy for its values, and a block that reads them as two numbers."""
    kind = draw(st.integers(0, 3)) if depth else 0
    if kind == 0:
        types, values, block = draw(st.sampled_from(LEAVES))
        type_ = draw(st.sampled_from(types))
    elif kind == 1:
        inner, values, below = draw(fields(depth - 1))
        type_ = draw(st.sampled_from([pa.list_, pa.large_list]))(inner)
        values, block = st.lists(values, max_size=3), fb.Map(below) >> fb.Sum()
    elif kind == 2:
        parts = {name: draw(fields(depth - 1)) for name in ("x", "y")[: draw(st.integers(1, 2))]}
        type_ = pa.struct([(name, part[0]) for name, part in parts.items()])
        values = st.fixed_dictionaries({name: part[1] for name, part in parts.items()})
        reads = [fb.GetItem(name) >> part[2] for name, part in parts.items()]
        block = fb.AllOf(*reads) >> fb.GetItem(0)
    else:
        inner, values, below = draw(fields(depth - 1))
        type_, values, block = inner, st.none() | values, fb.Optional(below)
    return type_, values, block


def check(block, array):
    objects = array.to_pylist()
    rows = rows_of(array)
    assert len(rows) == len(objects)
    np.testing.assert_equal(rows[:], objects)
    np.testing.assert_equal(list(rows), objects)
    if not objects:
        return
    expected = lowered(block).trace_all(objects, range(len(objects)))
    for trace, other in zip(lowered(block).trace_all(rows[:], range(len(objects))), expected, strict=True):
        np.testing.assert_array_equal(trace.packed, other.packed)
        np.testing.assert_equal(trace.feeds, other.feeds)


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_whatever_the_schema(data):
    type_, values, block = data.draw(fields())
    objects = data.draw(st.lists(values, min_size=1, max_size=8))
    array = pa.array(objects, type_)
    check(block, array)
    first = data.draw(st.integers(0, len(objects) - 1))
    check(block, array.slice(first, data.draw(st.integers(0, len(objects)))))
    check(block, pa.chunked_array([array.slice(first), array.slice(0, first), array]))


def loss_of():
    """Return a model of records, with parameters of its own."""
    reads = fb.GetItem("id") >> fb.Scalar("int32") >> fb.Embedding(9, 2)
    tag = fb.GetItem("tag") >> fb.Optional(word())
    item = fb.AllOf(reads, tag) >> fb.Function(lambda a, b: a + b)
    parts = fb.GetItem("user") >> word(), fb.GetItem("items") >> fb.Map(item) >> fb.Sum()
    record = fb.AllOf(*parts) >> fb.Function(lambda u, i: u * i)
    return record >> fb.AllOf(fb.Identity(), fb.Function(fb.ops.sum) >> fb.Loss()) >> fb.GetItem(0)


LOSS = loss_of()


def table(count, wrong=None):
    """Return a table of records; one may hold something else."""
    items = [
        [{"id": (i + k) % 9, "tag": "ab"[k % 2] if k else None} for k in range(i % 5)] for i in range(count)
    ]
    rows = [{"user": "abc"[i % 3], "items": some} for i, some in enumerate(items)]
    for number, change in (wrong or {}).items():
        change(rows[number])
    return pa.Table.from_pylist(rows)


def test_batches_of_every_kind_give_the_same_gradients():
    whole = table(600)
    program = fb.compile(LOSS, "numpy", seed=1)
    expected = program.value_and_grad(whole.to_pylist())
    forms = [whole, whole.combine_chunks().to_batches()[0], whole.to_struct_array()]
    for form in forms:
        loss, gradients = program.value_and_grad(form)
        assert loss == expected[0]
        assert repr(gradients) == repr(expected[1])
    prepared = program.prepare(whole, progress=False)
    assert program.value_and_grad(prepared)[0] == expected[0]
    assert program.value_and_grad(program.plan(whole))[0] == expected[0]
    assert program.run(whole, losses=True).loss == program.run(whole.to_pylist(), losses=True).loss
    ends = []
    for data in (whole, whole.to_pylist()):
        trainer = fb.train.Trainer(fb.compile(loss_of(), "numpy", seed=1), fb.SGD(0.1), batch_size=64)
        trainer.fit(data, epochs=2, validation=data)
        ends.append([[epoch["loss"], epoch["validation_loss"]] for epoch in trainer.history])
    assert ends[0] == ends[1]


WRONG = {
    "a null": lambda row: row.update(items=[{"id": None, "tag": None}]),
    "a null list": lambda row: row.update(items=None),
    "a null record": lambda row: row.update(items=[None]),
    "an id out of range": lambda row: row.update(items=[{"id": 9, "tag": None}]),
}


def assert_same_errors(block, data, place):
    texts = []
    for examples in (data, data.to_pylist()):
        with pytest.raises(ExampleError, match=place) as caught:
            fb.compile(block, "numpy").run(examples)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("count", [4, 600])
@pytest.mark.parametrize("wrong", WRONG)
def test_errors_are_those_of_the_objects(count, wrong):
    assert_same_errors(LOSS, table(count, {3: WRONG[wrong]}), "example 3")


def test_a_missing_field_and_a_wrong_type_are_those_of_the_objects():
    data = pa.array([{"user": 7}] * 2000)
    for block in (LOSS, fb.GetItem("user") >> fb.Vector(2), fb.GetItem("user") >> fb.Scalar("bool")):
        assert_same_errors(block, data, "example 0")


def test_data_that_recur_are_made_objects():
    tree = fb.ForwardDeclaration(output_type=[])
    below = fb.GetItem("below") >> fb.Map(tree()) >> fb.Sum()
    value = fb.GetItem("value") >> fb.Scalar()
    tree.resolve_to(fb.AllOf(value, below) >> fb.Function(lambda a, b: a + b))
    leaf = {"value": 2.0, "below": []}
    array = pa.array([{"value": 1.0, "below": [leaf, leaf]}] * 400)
    small = pa.array([{"value": 1.0, "below": [leaf]}]).to_pylist()
    assert small[0]["below"][0]["value"] == 2.0
    deepest = pa.array([{"value": 1.0, "below": []}] * 400)
    assert fb.compile(tree(), "numpy").run(array) == [5.0] * 400
    assert fb.compile(tree(), "numpy").run(deepest) == [1.0] * 400


def test_rows_are_the_objects_of_arrow():
    kinds = [
        pa.array([MOMENT, None]),
        pa.array([decimal.Decimal("1.50"), None]),
        pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8())),
        pa.array([2**63, None], pa.uint64()),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["a", None])),
        pa.array([True, None, False]),
        pa.nulls(2),
        pa.array([{}, None], pa.struct([])),
    ]
    for array in kinds:
        for some in (array, array.slice(1), array.slice(0, 0)):
            assert list(rows_of(some)) == some.to_pylist()
        assert chosen(rows_of(array), [1, 0]) == [array.to_pylist()[1], array.to_pylist()[0]]


def test_null_numbers_are_told_from_zero():
    for kind in (pa.float16(), pa.int8(), pa.bool_(), pa.dictionary(pa.int8(), pa.string())):
        values = ["a", None] if pa.types.is_dictionary(kind) else [0, None] * 2
        values = [False, None] if kind == pa.bool_() else values
        block = fb.Optional(fb.InputTransform(lambda x: 1.0) >> fb.Scalar())
        check(block, pa.array(values, kind))


def test_tables_of_two_equal_names_are_refused():
    with pytest.raises(ExampleError, match=r"slice\(i, 1\)"):
        fb.compile(fb.GetItem("a") >> fb.Scalar(), "numpy").run(pa.scalar({"a": 1}))
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(ExampleError, match="examples"):
        fb.compile(fb.GetItem("a") >> fb.Scalar(), "numpy").run(twice)


def test_rows_of_types_that_arrow_cannot_take_are_read_in_any_order():
    views = pa.array(["a", None, "b"], pa.string_view())
    assert chosen(rows_of(views), [2, 0]) == ["b", "a"]
    assert fb.compile(fb.Scalar()).run(pa.array([], pa.string_view())) == []
