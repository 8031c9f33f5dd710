"""Sums over rows: any number of them, of any kind, and the same on any number of threads."""

import numpy as np
import pytest

from foldbatch.engines.cuda.kernels import SUMMED
from foldbatch.engines.cuda.row_texts import BLOCK_SUMS
from foldbatch.static import ops
from foldbatch.static.graph import Graph, apply, input_node
from foldbatch.types import TensorType
from tests.engines.cuda.emulated import needs_compiler
from tests.engines.cuda.walking import by_cuda, prepare  # noqa: F401 - a fixture
from tests.static.run_kernel import interpret, random_rows, run_graph

pytestmark = needs_compiler


def summed(dtype: str) -> Graph:
    """Return sums of rows, of rows by id, and of outer products of floats, of rows that lie turned round."""
    x, ids = input_node(TensorType((5, 2), dtype)), input_node(TensorType((2,), "int64"))
    y = input_node(TensorType((2, 3), dtype))
    turned = ops.transpose(x)
    nodes = [apply("sum_batch", turned), apply("sum_rows", turned, ids, size=4), apply("sum_batch", ids)]
    if "float" in dtype:
        one = ops.sum(ids, 0)
        nodes += [
            apply("sum_outer", turned, y),
            apply("sum_outer_by", turned, y, ops.minimum(one, 3), size=4),
        ]
    return Graph((x, ids, y), tuple(nodes))


KINDS = ("float32", "float64", "int32", "int64")


@pytest.fixture(scope="module", autouse=True)
def _together() -> None:
    prepare([(summed(dtype), ()) for dtype in KINDS])


def test_the_partial_sums_of_a_block_have_room() -> None:
    assert SUMMED[0] * SUMMED[1] <= BLOCK_SUMS


@pytest.mark.parametrize("dtype", KINDS)
def test_any_number_of_rows_is_summed(dtype: str) -> None:
    """None is zero; whole numbers are exact."""
    graph = summed(dtype)
    for calls in (0, 1, 100):
        rows = random_rows(np.random.default_rng(calls), graph, calls, below=4)
        for found, expected in zip(run_graph(graph, rows), interpret(graph, rows), strict=True):
            if "float" in dtype:
                tolerance = 1e-5 if dtype == "float32" else 1e-12
                np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
            else:
                np.testing.assert_array_equal(found, expected)
