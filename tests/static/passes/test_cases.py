"""What passes make of graphs, as text before and after: a file in cases/ each."""

import pytest

from foldbatch.static.passes.attention import attend
from foldbatch.static.passes.simplify import simplify
from foldbatch.static.passes.stages import sum_early, widen
from tests.static.passes.checks import cases, check_case
from tests.static.passes.staged import staged

PASSES = {
    "attention": attend,
    "arithmetic": simplify,
    "movement": simplify,
    "sums": simplify,
    "early": staged(sum_early),
    "widen": staged(widen),
}


@pytest.mark.parametrize("name", PASSES)
def test_a_graph_becomes_what_its_case_says(name: str) -> None:
    for case in cases(name):
        check_case(case, PASSES[name])
