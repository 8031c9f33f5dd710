"""Alike ops on neighbouring columns joined, as text before and after: cases/widen.txt."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from foldbatch.static.passes.widen import widen
from tests.static.passes.checks import cases, check_case, check_law
from tests.static.passes.staged import staged
from tests.static.text_graph import Case
from tests.strategies import Problem, problems


@pytest.mark.parametrize("case", cases("widen"), ids=str)
def test_the_graph_becomes_what_its_case_says(case: Case) -> None:
    check_case(case, staged(widen))


@settings(max_examples=90, deadline=None)
@given(problems(smooth=False, gradients=True))
def test_random_graphs_keep_their_meaning(problem: Problem) -> None:
    check_law(problem, staged(widen))
