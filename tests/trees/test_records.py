"""Records are a sequence of Python objects, which are made when they are asked for."""

import numpy as np

import foldbatch as fb
from foldbatch.trees.given import records_of
from foldbatch.trees.records import Records, chosen

NUMBERS = np.array([3.0, 1.0, 2.0], np.float32)


def records():
    return Records(lambda rows: [{"x": x} for x in NUMBERS[rows].tolist()], np.arange(3))


def test_they_are_a_sequence():
    assert len(records()) == 3
    assert records()[1] == {"x": 1.0}
    assert list(records()[1:]) == [{"x": 1.0}, {"x": 2.0}]
    assert chosen(records(), [2, 0]).objects() == [{"x": 2.0}, {"x": 3.0}]
    assert repr(records()) == "Records(3 examples)"


def test_other_data_are_none():
    assert records_of([1]) is None
    assert records_of(records()) is not None


def test_programs_read_them():
    program = fb.compile(fb.GetItem("x") >> fb.Scalar(), "numpy")
    assert program.run(records()) == [3.0, 1.0, 2.0]
