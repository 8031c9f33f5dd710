"""Fused loops and copies visit each element once, alone or several side by side where they lie so."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from foldbatch.engines.cuda.texts.elements import each, index_lines
from foldbatch.static import ops
from foldbatch.static.graph import Graph, constant, input_node
from foldbatch.static.op import CALL, UNBATCHED
from foldbatch.static.places import Place
from foldbatch.static.statements import Binding, Routine, Slot, Statement
from foldbatch.types import TensorType
from tests.engines.cuda.emulated import needs_compiler
from tests.engines.cuda.walking import (  # noqa: F401 - a fixture
    FUSED,
    by_cuda,
    kernel_of_routine,
    prepare,
    together,
    use,
)
from tests.engines.numpy.launching import At, Batch, poisoned
from tests.static.run_kernel import interpret, random_rows, routine_of_graph, run_graph

pytestmark = needs_compiler


def copying(extent: int, begin: int, whole: int, dtype: str) -> Routine:
    """Return a routine that copies elements of a row, from number `begin` on, to the front of another."""
    slots = (
        Slot(Binding("feed", 0), TensorType((whole,), dtype), CALL),
        Slot(Binding("kept", 0), TensorType((whole,), dtype), CALL),
    )
    read, write = (Place(i, CALL, whole, at, (extent,), (1,)) for i, at in enumerate((begin, 0)))
    return Routine("copy", slots, (Statement("copy", CALL, (read,), write),), ())


# extent, first element, elements of a row; elements that are loaded at once of 4 and of 8 bytes, and of bools
COPIES = [
    (4, 0, 4, {"float32": 4, "float64": 2, "bool": 4}),
    (4, 0, 8, {"float32": 4, "float64": 2, "bool": 4}),
    (6, 0, 6, {"float32": 2, "float64": 2, "bool": 2}),
    (4, 2, 8, {"float32": 2, "float64": 2, "bool": 2}),
    (4, 1, 8, {"float32": 1, "float64": 1, "bool": 1}),
    (4, 0, 7, {"float32": 1, "float64": 1, "bool": 1}),
    (5, 0, 20, {"float32": 1, "float64": 1, "bool": 1}),
]


@pytest.fixture(scope="module", autouse=True)
def _together() -> None:
    together().prepare(
        kernel_of_routine(copying(*case, dtype)) for *case, widths in COPIES for dtype in widths
    )
    prepare([(gates(size, dtype), ()) for size in (8, 5) for dtype in ("float32", "float64")], [FUSED])


@pytest.mark.parametrize(("extent", "begin", "whole", "widths"), COPIES)
def test_elements_are_loaded_at_once_where_they_lie_so(
    extent: int, begin: int, whole: int, widths: dict[str, int]
) -> None:
    """At addresses that are multiples of their bytes, in every row."""
    for dtype, width in widths.items():
        routine = copying(extent, begin, whole, dtype)
        found = re.search(r"x(\d) x0 = ", kernel_of_routine(routine).text)
        assert (int(found[1]) if found else 1) == width
        data = np.arange(5 * whole).reshape(5, whole).astype(dtype)
        kept = poisoned(TensorType((whole,), dtype), 5)
        expected = kept.copy()
        expected[:, :extent] = data[:, begin : begin + extent]
        Batch({("feed", 0): At(data), ("kept", 0): At(kept)}).run(routine, [(0, 1), (1, 5)])
        np.testing.assert_array_equal(kept, expected)


def gates(size: int, dtype: str) -> Graph:
    """Return the gates of an LSTM: sections of one row, two results."""
    x, b = input_node(TensorType((4 * size,), dtype)), input_node(TensorType((size,), dtype))
    whole = x * 2.0 + 1.0
    i, f, o = ops.split(ops.sigmoid(whole[: 3 * size]), 3)
    c = i * ops.tanh(whole[3 * size :]) + f * b
    return Graph((x, b), (o * ops.tanh(c), c))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [8, 5])
def test_gates_are_one_kernel(size: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FUSED)
    graph = gates(size, dtype)
    assert len(kernel_of_routine(routine_of_graph(graph, (), FUSED)).tasks) == 1
    tolerance = 1e-6 if dtype == "float32" else 1e-14
    for calls in (0, 1, 7):
        rows = random_rows(np.random.default_rng(calls), graph, calls)
        for found, expected in zip(run_graph(graph, rows), interpret(graph, rows), strict=True):
            np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_nothing_is_written_where_there_are_no_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shape with an axis of 0 has no text, and no kernel where nothing else is to be done."""
    use(monkeypatch, FUSED)
    x = input_node(TensorType((0, 3)))
    graph = Graph((x,), (ops.tanh(x) * 2.0, ops.sum(x, 0)))
    kernel = kernel_of_routine(routine_of_graph(graph, (), FUSED))
    assert kernel.text.count("KERNEL") == 1
    empty, total = run_graph(graph, random_rows(np.random.default_rng(0), graph, 2))
    assert empty.shape == (2, 0, 3)
    assert total.tolist() == [[0, 0, 0]] * 2


def test_one_element_may_serve_all() -> None:
    """Of a row, or of a parameter; bools too."""
    x, flag = input_node(TensorType((4,))), input_node(TensorType((), "bool"), UNBATCHED)
    graph = Graph(
        (x, flag), (ops.where(flag, x, x[:1]), ops.broadcast_to(x[2], (2, 4)) * 1.0, x + constant(2.0))
    )
    rows = random_rows(np.random.default_rng(0), graph, 3)
    for found, expected in zip(run_graph(graph, rows), interpret(graph, rows), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_indices_are_made_of_the_number_of_an_element() -> None:
    """By the operators of C, which for numbers that are not negative are those of Python."""
    names, lines = index_lines("e", [3, 4, 5])
    assert names == ["e0", "e1", "e2"]
    assert index_lines("e", [7]) == (["e"], [])
    program = "\n".join(line.removeprefix("const i8 ").rstrip(";").replace("/", "//") for line in lines)
    for e, index in enumerate(np.ndindex(3, 4, 5)):
        known: dict[str, Any] = {"e": e}
        exec(program, known)
        assert tuple(known[name] for name in names) == index


def test_a_loop_over_nothing_is_no_text() -> None:
    assert each(3, []) == []
    assert each(3, ["f();"], "k") == ["for (i8 k = lane; k < 3; k += lanes) {", "  f();", "}"]
