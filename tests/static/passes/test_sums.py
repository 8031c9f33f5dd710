"""Simplifications of sums of sums and of padded parts, each as text before and after: cases/sums.txt."""

from __future__ import annotations

import pytest

from foldbatch.static.passes.simplify import simplify
from tests.static.passes.checks import cases, check_case
from tests.static.text_graph import Case


@pytest.mark.parametrize("case", cases("sums"), ids=str)
def test_the_graph_becomes_what_its_case_says(case: Case) -> None:
    check_case(case, simplify)
