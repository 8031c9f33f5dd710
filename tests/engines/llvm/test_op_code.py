"""Every op as an instruction computes, on many rows at once, what its reference evaluation says of each."""

import numpy as np
import pytest

from foldbatch.engines.llvm import tiles
from foldbatch.engines.llvm.loop_texts import TARGET
from foldbatch.engines.llvm.op_code import ENCODERS
from foldbatch.static.graph import Graph, input_node
from foldbatch.static.op import OPS
from foldbatch.static.routines import Target
from tests.engines.llvm.walking import by_llvm  # noqa: F401 - a fixture
from tests.engines.numpy.test_spelling import (  # noqa: F401 - the same tests
    test_a_kernel_checks_computed_indices,
    test_an_op_on_all_rows_is_the_op_on_each,
    test_an_op_that_takes_integers_computes_them_exactly,
    test_labels_or_logits_may_be_the_same_for_all_rows,
    test_many_axes_that_do_not_follow_each_other,
    test_operands_along_different_axes_meet,
    test_products_of_nothing_are_zero,
    test_products_over_axes_that_do_not_follow_each_other,
    test_segments_may_be_empty,
    test_sigmoid_and_softmax_do_not_overflow,
)
from tests.engines.viewed import ON_VIEWS, PAIR, views
from tests.static import run_kernel
from tests.static.run_kernel import interpret, random_rows, run_graph

pytestmark = pytest.mark.llvm


@pytest.mark.parametrize("name", ON_VIEWS)
def test_operands_may_lie_anyhow(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transposed, with gaps between rows, or broadcast; op by op and in fused loops."""
    x, y = input_node(PAIR), input_node(PAIR)
    outputs = tuple(ON_VIEWS[name](a, b) for a, b in zip(views(x), reversed(views(y)), strict=True))
    graph = Graph((x, y), outputs)
    rows = random_rows(np.random.default_rng(0), graph, 3)
    for target in (Target(), TARGET):
        monkeypatch.setattr(run_kernel, "TARGET", target)
        for found, expected in zip(run_graph(graph, rows), interpret(graph, rows), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["linear_by", "sum_outer_by", "matmul"])
def test_processors_that_are_not_known_multiply_in_plain_loops(name, monkeypatch):
    monkeypatch.setattr(tiles, "blocks", lambda: None)
    test_operands_may_lie_anyhow(name, monkeypatch)
    test_products_over_axes_that_do_not_follow_each_other()
    test_products_of_nothing_are_zero(((2, 0), (0, 3)))


def test_every_op_has_code() -> None:
    """But views, which are places, and what is made of copies; bodies are rendered."""
    others = {op.name for op in OPS.values() if op.view or op.copies is not None or op.body}
    assert set(ENCODERS) - {"copy", "zero", "check_range", "sum"} == set(OPS) - others
