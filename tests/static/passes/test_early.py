"""Sums in the order of time, as text before and after: cases/early.txt."""

from __future__ import annotations

import pytest

from foldbatch.static.passes.early import sum_early
from tests.static.passes.checks import cases, check_case
from tests.static.passes.staged import staged
from tests.static.text_graph import Case


@pytest.mark.parametrize("case", cases("early"), ids=str)
def test_the_graph_becomes_what_its_case_says(case: Case) -> None:
    check_case(case, staged(sum_early))
