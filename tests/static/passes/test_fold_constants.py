"""Constant folding: cases/fold_constants.txt, and its laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from foldbatch.static import ops
from foldbatch.static.graph import CONSTANT, SOURCES, Graph, constant, input_node
from foldbatch.static.op import UNBATCHED
from foldbatch.static.passes.fold_constants import LIMIT, fold_constants
from foldbatch.types import TensorType
from tests.static.passes.checks import cases, check_case, check_law
from tests.static.text_graph import Case
from tests.strategies import Problem, problems


@pytest.mark.parametrize("case", cases("fold_constants"), ids=str)
def test_the_graph_becomes_what_its_case_says(case: Case) -> None:
    check_case(case, fold_constants)


@settings(max_examples=30, deadline=None)
@given(problems(smooth=False))
def test_folding_keeps_types_and_values_and_is_done_at_once(problem: Problem) -> None:
    check_law(problem, fold_constants)


@settings(max_examples=30, deadline=None)
@given(problems(smooth=False))
def test_no_small_unbatched_node_on_constants_alone_is_left(problem: Problem) -> None:
    for node in fold_constants(problem.graph).nodes:
        if node.op not in SOURCES and node.axis is UNBATCHED and node.type.size <= LIMIT:
            assert any(x.op is not CONSTANT for x in node.inputs) or node.op.bound


def test_a_constant_is_folded_in_the_dtype_of_its_node() -> None:
    """1/3 in float32 is not 1/3 in float64: the kernel would have computed the former."""
    third = fold_constants(Graph((), (constant(1.0) / constant(3.0),))).outputs[0]
    assert third.attrs["value"] == np.float32(1) / np.float32(3)
    assert third.attrs["value"].dtype == np.float32


def test_a_constant_that_is_an_input_of_the_graph_is_not_folded() -> None:
    """The inputs of a graph are given from outside, whatever they are."""
    given_ = constant(2.0)
    graph = Graph((given_,), (ops.exp(given_),))
    assert fold_constants(graph) is graph


def test_a_graph_without_constants_stays_the_same_object() -> None:
    x = input_node(TensorType((3,)))
    graph = Graph((x,), (ops.tanh(x),))
    assert fold_constants(graph) is graph


@pytest.mark.parametrize("index", [-1, 4])
def test_an_index_out_of_range_is_left_for_the_kernel_to_refuse(index: int) -> None:
    graph = Graph((), (ops.one_hot(constant([0, index]), 4),))
    assert fold_constants(graph) is graph
