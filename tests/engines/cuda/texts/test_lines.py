"""Ops along an axis: what is greatest with NaN among it, sums that keep their digits, labels out of range."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.engines.cuda.texts.lines import added, increased, total_of
from foldbatch.static import ops
from foldbatch.static.graph import Graph, Node, input_node
from foldbatch.static.op import OPS
from foldbatch.static.routines import ON_SEQUENCES
from foldbatch.types import TensorType
from tests.engines.cuda.emulated import needs_compiler
from tests.engines.cuda.walking import by_cuda, prepare  # noqa: F401 - a fixture
from tests.static.run_kernel import interpret, random_rows, run_graph

pytestmark = needs_compiler
ALONG = {
    "softmax": ops.softmax,
    "log_softmax": ops.log_softmax,
    "logsumexp": ops.logsumexp,
    "max": ops.max,
    "argmax": ops.argmax,
}
WIDE = 300  # more elements than a block has threads


def along(dtype: str) -> tuple[Graph, list[str]]:
    """Return a graph of all ops along each axis of two."""
    x = input_node(TensorType((4, 5), dtype))
    pairs = [(name, axis) for name in ALONG for axis in (0, 1)]
    return Graph((x,), tuple(ALONG[name](x, axis) for name, axis in pairs)), [f"{n} {a}" for n, a in pairs]


def wide() -> Graph:
    x, label = input_node(TensorType((WIDE,), "float32")), input_node(TensorType((), "int64"))
    n, large = (input_node(TensorType((WIDE,), dtype)) for dtype in ("int32", "int64"))
    nodes: tuple[Node, ...] = (ops.softmax(x), ops.cross_entropy(x, label), ops.one_hot(label, WIDE))
    nodes = *nodes, ops.sum(x, 0), ops.sum(n, 0), ops.sum(large, 0), ops.max(n, 0)
    return Graph((x, label, n, large), (*nodes, ops.max(large, 0), ops.argmax(large, 0)))


@pytest.fixture(scope="module", autouse=True)
def _together() -> None:
    prepare([(graph, ()) for graph in (along("float32")[0], along("float64")[0], wide())])


def test_every_body_along_a_line_is_tried() -> None:
    bodies = {name for name, op in OPS.items() if op.body and not op.elementwise} - ON_SEQUENCES
    assert {*ALONG, "cross_entropy", "one_hot"} == bodies


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_ends_of_floats_come_out_as_numpys(dtype: str) -> None:
    """NaN, infinities of both signs, ties, and large numbers."""
    graph, names = along(dtype)
    inf, nan = np.inf, np.nan
    lines = [[1, 2, 2, 0, -1], [nan, 1, nan, 3, 0], [inf, 1, -inf, 2, 3], [-inf] * 5, [1e4, -1e4, 9999, 0, 0]]
    rows = random_rows(np.random.default_rng(0), graph, 5)
    rows.values[0][:] = np.array([np.roll(lines, i, 0)[:4] for i in range(5)], dtype)
    with np.errstate(all="ignore"):
        expected = interpret(graph, rows)
    for name, found, right in zip(names, run_graph(graph, rows), expected, strict=True):
        np.testing.assert_allclose(found, right.astype(found.dtype), rtol=1e-6, atol=1e-6, err_msg=name)


def test_long_lines_keep_their_digits() -> None:
    """Sums of float32 are of float64; whole numbers wrap around."""
    graph = wide()
    rows = random_rows(np.random.default_rng(0), graph, 3, below=2)
    rows.values[0][:] += 1000
    rows.values[1][:] = [0, 7, WIDE - 1]
    rows.values[2][1] = 2**30
    rows.values[3][:] += 2**62  # which a double does not tell from its neighbours
    found, expected = run_graph(graph, rows), interpret(graph, rows)
    for a, b in zip(found[:4], expected[:4], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    for a, b in zip(found[4:], expected[4:], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("kind", "total", "add", "increase"),
    [
        ("f4", "f8", "total += (f8)x;", "y += x;"),
        ("i4", "u8", "total += (u8)x;", "y = (i4)((u8)y + (u8)x);"),
        ("b1", "b1", "total |= x != 0;", "y |= x != 0;"),
    ],
)
def test_how_numbers_are_added_up(kind: str, total: str, add: str, increase: str) -> None:
    assert (total_of(kind), added(kind, "x"), increased(kind, "y", "x")) == (total, add, increase)
