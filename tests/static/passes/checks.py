"""What every pass must do: make of a case what its text says, keep types, values and its own result."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, verify
from foldbatch.static.printer import print_graph
from tests.static.text_graph import Case, read_cases, read_graph
from tests.strategies import Problem, random_value

CASES = Path(__file__).parent / "cases"
Pass = Callable[[Graph], Graph]


def cases(name: str) -> list[Case]:
    return read_cases(CASES / f"{name}.txt")


def check_case(case: Case, transform: Pass) -> None:
    """Check that the pass makes the second text of the first, and that both mean the same."""
    before = verify(read_graph(case.before))
    assert print_graph(before) == case.before, "the case is not written as graphs are printed"
    after = verify(transform(before))
    assert print_graph(after) == case.after
    rng = np.random.default_rng(0)
    check_same(before, after, [random_value(rng, x) for x in before.inputs])


def check_law(problem: Problem, transform: Pass) -> None:
    """Check that the pass keeps a random graph's types and values, and that a second time changes nothing."""
    after = verify(transform(problem.graph))
    check_same(problem.graph, after, problem.values)
    assert transform(after).outputs == after.outputs


def check_same(before: Graph, after: Graph, values: list[object]) -> None:
    """Check that two graphs of the same inputs have outputs of the same types, axes and values."""
    assert after.inputs == before.inputs
    assert [(x.type, x.axis) for x in after.outputs] == [(x.type, x.axis) for x in before.outputs]
    with np.errstate(all="ignore"):
        pairs = zip(evaluate(before, values), evaluate(after, values), strict=True)
    for expected, found in pairs:
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-12, atol=1e-12)
