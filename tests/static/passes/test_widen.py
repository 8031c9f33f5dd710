"""Alike ops on neighbouring columns joined, as text before and after: cases/widen.txt."""

from __future__ import annotations

import pytest

from foldbatch.static.passes.widen import widen
from tests.static.passes.checks import cases, check_case
from tests.static.passes.staged import staged
from tests.static.text_graph import Case


@pytest.mark.parametrize("case", cases("widen"), ids=str)
def test_the_graph_becomes_what_its_case_says(case: Case) -> None:
    check_case(case, staged(widen))
