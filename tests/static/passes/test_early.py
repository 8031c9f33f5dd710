"""Sums in the order of time, as text before and after: cases/early.txt."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from foldbatch.static.passes.early import sum_early
from tests.static.passes.checks import cases, check_case, check_same
from tests.static.passes.staged import staged
from tests.static.text_graph import Case
from tests.strategies import Problem, problems


@pytest.mark.parametrize("case", cases("early"), ids=str)
def test_the_graph_becomes_what_its_case_says(case: Case) -> None:
    check_case(case, staged(sum_early))


@settings(max_examples=60, deadline=None)
@given(problems(smooth=False, gradients=True))
def test_random_graphs_keep_their_meaning(problem: Problem) -> None:
    check_same(problem.graph, staged(sum_early)(problem.graph), problem.values)
