"""What expressions make of numbers at the ends of ranges is what NumPy makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from foldbatch.engines.cuda.texts.expressions import FUNCTIONS, KINDS, literal, number
from foldbatch.static import ops
from foldbatch.static.bodies import called
from foldbatch.static.graph import Graph, Node, apply, constant, input_node
from foldbatch.static.op import OPS
from foldbatch.types import TensorType
from tests.engines.cuda.emulated import needs_compiler
from tests.engines.cuda.walking import FUSED, by_cuda, prepare, use  # noqa: F401 - a fixture
from tests.static.run_kernel import interpret, random_rows, run_graph

pytestmark = needs_compiler
EDGES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -3.0, 80.0, -80.0, 1e30, 1e-30, 0.5, 1.5, 2.5]
SMALL, LARGE = -(2**31), 2**31 - 1
INTS = {"int32": [SMALL, LARGE, -1, 0, 3, 2**30], "int64": [-(2**63), 2**63 - 1, -1, 0, 2**62]}
ALONE = {name: op.samples[0] for name, op in OPS.items() if op.elementwise and len(op.samples[0].types) == 1}
UNARY = [name for name, sample in ALONE.items() if not sample.attrs]
PAIRED: dict[str, Callable[[Node, Node], Node]] = {
    **{
        name: lambda x, y, name=name: apply(name, x, y)  # type: ignore[misc]
        for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum")
    },
    **{
        name: lambda x, y, name=name: ops.where(apply(name, x, y), x, y)  # type: ignore[misc]
        for name in ("less", "less_equal", "equal")
    },
}
POWERS = (0.0, 0.5, 1.0, 2.0, 3.0, -1.0, -0.5, 1.7)


def edges(dtype: str) -> tuple[Graph, np.ndarray]:
    """Return a graph of all ops of floats on all pairs of edges, each op a column of the first result."""
    x, y = input_node(TensorType((), dtype)), input_node(TensorType((), dtype))
    nodes = [apply(name, x) for name in UNARY] + [function(x, y) for function in PAIRED.values()]
    nodes += [ops.power(x, exponent) for exponent in POWERS]
    values = np.array(EDGES, dtype)
    return Graph((x, y), (ops.stack(nodes, 0),)), np.stack(np.meshgrid(values, values), -1).reshape(-1, 2)


def whole(dtype: str) -> Graph:
    """Return a graph of ops on whole numbers, which wrap around."""
    x, y = (input_node(TensorType((), dtype)) for _ in "xy")
    names = ("add", "subtract", "multiply", "maximum", "minimum")
    nodes = [apply(name, x, y) for name in names]
    nodes += [-x, ops.square(x), ops.abs(x), ops.where(x + x < x, y * y, y - 1), ops.where(x + 1 > x, x, y)]
    return Graph((x, y), (ops.stack(nodes, 0),))


FLOATS = {dtype: edges(dtype) for dtype in ("float32", "float64")}
WHOLE = {dtype: whole(dtype) for dtype in INTS}


@pytest.fixture(scope="module", autouse=True)
def _together() -> None:
    graphs = [graph for graph, _ in FLOATS.values()] + list(WHOLE.values())
    prepare([(graph, ()) for graph in graphs], [FUSED])


def test_every_function_of_a_body_is_known() -> None:
    assert frozenset().union(*(called(op.body) for op in OPS.values() if op.elementwise)) == FUNCTIONS


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_ends_of_floats_come_out_as_numpys(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN and infinities, both zeros, large and small numbers; in one fused loop."""
    use(monkeypatch, FUSED)
    graph, pairs = FLOATS[dtype]
    rows = random_rows(np.random.default_rng(0), graph, len(pairs))
    for column, values in zip(pairs.T, rows.values, strict=True):
        values[:] = column
    found = run_graph(graph, rows)[0]
    with np.errstate(all="ignore"):
        expected = interpret(graph, rows)[0].astype(dtype)
    names = [*UNARY, *PAIRED, *(f"power {exponent}" for exponent in POWERS)]
    close = np.isclose(found, expected, rtol=1e-6, atol=1e-30 if dtype == "float32" else 0, equal_nan=True)
    wrong = [(names[j], *pairs[i], found[i, j], expected[i, j]) for i, j in np.argwhere(~close)]
    assert wrong == []


@pytest.mark.parametrize("dtype", WHOLE)
def test_whole_numbers_wrap_around(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler may take it that they never do, where the text does not say otherwise."""
    use(monkeypatch, FUSED)
    graph, values = WHOLE[dtype], np.array(INTS[dtype], dtype)
    pairs = np.stack(np.meshgrid(values, values), -1).reshape(-1, 2)
    rows = random_rows(np.random.default_rng(0), graph, len(pairs))
    for column, x in zip(pairs.T, rows.values, strict=True):
        x[:] = column
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(run_graph(graph, rows)[0], interpret(graph, rows)[0])


@pytest.mark.parametrize(("dtype", "kind"), KINDS.items())
def test_a_number_as_text_is_that_number(dtype: str, kind: str) -> None:
    """Every digit of it."""
    values: list[Any] = [True, False]
    if kind in ("f4", "f8"):
        info = np.finfo(dtype)
        values = [0.1, -1e-5, 1e16, 123456789.0, info.max, info.tiny, info.smallest_subnormal, 1 / 3]
    elif kind != "b1":
        values = [0, -5, np.iinfo(dtype).max, np.iinfo(dtype).min]
    for value in np.array(values, dtype):
        text = literal(constant(np.asarray(value)))
        bare = text.strip("()").removesuffix("f").replace("ll", "")
        assert np.asarray(eval(bare), dtype) == value
        assert text.startswith("(") or value >= 0


def test_a_negative_number_is_in_brackets() -> None:
    """Else the negative of one would be no text; the negative zero is one."""
    assert [number(x, "f4") for x in (-2.0, -0.0, float("nan"))] == [
        "(-2.0f)",
        "(-0.0f)",
        "(F4_INF - F4_INF)",
    ]
    assert [number(x, "f8") for x in (-2.0, -0.0, float("inf"))] == ["(-2.0)", "(-0.0)", "F8_INF"]
