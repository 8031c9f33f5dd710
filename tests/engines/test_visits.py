"""Gradients of data in order of visits, however many cells and places of the program read it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldbatch.engines.results import MetricValues
from foldbatch.engines.visits import DataGradients, InputGradients, gather, matched
from foldbatch.errors import UnknownNameError
from foldbatch.types import TensorType

FLOAT = TensorType(())
NONE = np.zeros(0, np.int64)


@given(st.recursive(st.just([]), lambda inside: st.lists(inside, max_size=4), max_leaves=30))
def test_brackets_are_matched_however_they_nest(tree):
    opening, closing, right, now = [], [], set(), iter(range(10_000))

    def visit(node):
        place, opened = len(opening), next(now)
        opening.append(opened)
        for child in node:
            visit(child)
        right.add((place, len(closing)))
        closing.append(next(now))

    for child in tree:
        visit(child)
    found = matched(np.array(opening, np.int64), np.array(closing, np.int64))
    assert set(zip(*(part.tolist() for part in found), strict=True)) == right


def test_what_one_cell_reads_alone_stays_in_the_order_of_its_calls():
    visits = DataGradients({(0, 1): np.array([3.0, 4.0, 5.0])}, [np.array([0, 4, 9])], [np.array([0, 0, 2])])
    found = gather(visits, FLOAT, [[(0, 1)]])
    assert found.values.tolist() == [3, 4, 5]
    assert (found.examples.tolist(), found.nodes.tolist(), found.labels) == ([0, 0, 2], [0, 1, 0], None)


def test_what_two_cells_read_is_summed_at_the_visit_that_both_belong_to():
    gradients = {(0, 0): np.array([1.0, 2.0]), (1, 0): np.array([10.0, 20.0])}
    visits = DataGradients(gradients, [np.array([0, 1]), np.array([2, 3])], [np.array([0, 0])] * 2)
    assert gather(visits, FLOAT, [[(0, 0), (1, 0)]]).values.tolist() == [21.0, 12.0]
    after = DataGradients(gradients, [np.array([0, 2]), np.array([1, 3])], [np.array([0, 0])] * 2)
    assert gather(after, FLOAT, [[(0, 0), (1, 0)]]).values.tolist() == [11.0, 22.0]


def test_a_cell_that_yields_nothing_adds_nothing():
    visits = DataGradients({(1, 0): np.array([5.0])}, [np.array([0]), np.array([1])], [np.array([0])] * 2)
    assert gather(visits, FLOAT, [[(0, 0), (1, 0)]]).values.tolist() == [5.0]
    none = gather(DataGradients({}, [np.array([0])], [np.array([0])]), TensorType((2,)), [[(0, 0)]])
    assert (none.values.tolist(), none.values.dtype) == ([[0, 0]], np.float32)
    unseen = gather(DataGradients({}, [NONE], [NONE]), TensorType((2,)), [[(0, 0)]])
    assert unseen.values.shape == (0, 2)


def test_places_that_share_a_name_are_joined_in_order_of_visits():
    gradients = {(0, 0): np.array([1.0, 2.0]), (1, 0): np.array([10.0])}
    visits = DataGradients(gradients, [np.array([0, 5]), np.array([3])], [np.array([0, 1]), np.array([0])])
    found = gather(visits, FLOAT, [[(0, 0)], [(1, 0)]])
    assert found.values.tolist() == [1.0, 10.0, 2.0]
    assert (found.examples.tolist(), found.nodes.tolist()) == ([0, 0, 1], [0, 1, 0])


def test_a_name_that_nothing_is_read_under_is_refused_with_those_there_are():
    found = InputGradients({"model Vector(2)": MetricValues(np.zeros((0, 2)), NONE, NONE, None)})
    assert list(found) == ["model Vector(2)"]
    message = r"inputs: expected a block that reads floats, of model Vector\(2\), found 'x'"
    with pytest.raises(UnknownNameError, match=message):
        found["x"]
