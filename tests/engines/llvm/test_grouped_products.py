"""Products by ids, compiled: whole tiles and what is left of them, many rows, more matrices than a byte counts."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from foldbatch.static.graph import Graph, apply, input_node
from foldbatch.static.op import UNBATCHED
from foldbatch.types import TensorType
from tests.engines.llvm.walking import by_llvm  # noqa: F401 - a fixture
from tests.static.ops.test_linalg import (  # noqa: F401 - the same test
    test_a_matrix_that_an_id_chooses_is_not_gathered,
)
from tests.static.run_kernel import random_rows, run_graph

pytestmark = [
    pytest.mark.llvm,
    pytest.mark.skipif(find_spec("llvmlite") is None, reason="llvm is not installed"),
]


@pytest.mark.parametrize(
    ("calls", "shape"),
    [(1, (3, 70, 33)), (40, (3, 70, 33)), (200, (2, 65, 97)), (700, (600, 4, 3)), (4500, (9, 2, 3))],
    ids=str,
)
def test_rows_of_equal_id_are_one_product(calls: int, shape: tuple[int, int, int]) -> None:
    n, k, m = shape
    x, g, ids = (
        input_node(TensorType((k,))),
        input_node(TensorType((m,))),
        input_node(TensorType((), "int32")),
    )
    table = input_node(TensorType(shape), UNBATCHED)
    turned = apply("transpose", table, axes=(0, 2, 1))
    outputs = (
        apply("linear_by", x, table, ids),
        apply("linear_by", g, turned, ids),
        apply("sum_outer_by", x, g, ids, size=n),
    )
    graph = Graph((x, g, ids, table), outputs)
    rows = random_rows(np.random.default_rng(0), graph, calls, below=n)
    xs, gs, numbers, matrices = (np.asarray(value) for value in rows.values)
    expected = np.zeros(shape)
    np.add.at(expected, numbers, xs[:, :, None].astype("f8") * gs[:, None])
    chosen = matrices[numbers]
    forward, backward, sums = run_graph(graph, rows)
    np.testing.assert_allclose(forward, np.einsum("rk,rkm->rm", xs, chosen), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(backward, np.einsum("rm,rkm->rk", gs, chosen), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(sums, expected, rtol=1e-4, atol=1e-4)
