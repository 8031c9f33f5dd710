"""Records are a sequence of Python objects, and columns read them where they lie."""

import numpy as np

import foldbatch as fb
from foldbatch.trees.given import records_of
from foldbatch.trees.records import ColumnStore, Records, chosen
from tests.blocks.columnar.laws import assert_same, columns_of, lowered

NUMBERS = np.array([3.0, 1.0, 2.0], np.float32)
IDS = ColumnStore(3, lambda rows: NUMBERS[rows].tolist(), numbers=NUMBERS)
DICTS = ColumnStore(3, lambda rows: [{"x": x} for x in NUMBERS[rows].tolist()], fields={"x": IDS})


def records():
    return Records(lambda: DICTS, DICTS.objects, np.arange(3), 1.0)


def test_they_are_a_sequence():
    assert len(records()) == 3
    assert records()[1] == {"x": 1.0}
    assert list(records()[1:]) == [{"x": 1.0}, {"x": 2.0}]
    assert chosen(records(), [2, 0]).objects() == [{"x": 2.0}, {"x": 3.0}]
    assert repr(records()) == "Records(3 examples)"
    assert records().values == 3


def test_what_is_encoded_is_encoded_once():
    made = []
    store = ColumnStore(
        2, lambda rows: ["a"] * len(rows), lambda: made.append(1) or (np.array([0, 0]), ["a"])
    )
    assert [store.encoded(np.array([1]))[0].tolist() for _ in range(2)] == [[0], [0]]
    assert made == [1]


def test_other_data_are_none():
    assert records_of([1]) is None
    assert records_of(records()) is not None


def test_columns_read_them():
    block = fb.GetItem("x") >> fb.Scalar()
    expected = lowered(block).tracer.record(records().objects(), range(3))
    assert_same(columns_of(block).record(records(), 9), expected)
