"""What a launch enqueues: kernels on as many blocks as there are rows, and products where their matrices lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foldbatch.engines.cuda.drivers.driver import MatrixProduct
from foldbatch.engines.cuda.kernels import BLOCK
from foldbatch.engines.cuda.steps import BLOCKS
from foldbatch.static import ops
from foldbatch.static.graph import Graph, apply, constant, input_node
from foldbatch.static.op import ragged
from foldbatch.types import TensorType
from tests.engines.cuda.emulated import needs_compiler
from tests.engines.cuda.emulator import Emulator
from tests.engines.cuda.walking import FUSED, Together, by_cuda, use  # noqa: F401 - a fixture
from tests.engines.numpy.launching import At, Batch, poisoned
from tests.static.run_kernel import interpret, random_rows, routine_of_graph, run_graph

pytestmark = needs_compiler
V = TensorType((2,))


class Asked(Emulator):
    """An emulator that writes down launches and products."""

    def __init__(self) -> None:
        self.launches: list[tuple[int, tuple[int, int], int]] = []
        self.products: list[MatrixProduct] = []

    def launch(self, function: Any, blocks: int, threads: Any, arguments: Any, *more: Any) -> None:
        self.launches.append((blocks, threads, len(arguments)))
        super().launch(function, blocks, threads, arguments, *more)

    def multiply(self, product: MatrixProduct, stream: Any) -> None:
        self.products.append(product)
        super().multiply(product, stream)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    driver = Asked()
    use(monkeypatch, FUSED, Together(driver))
    return driver


@pytest.mark.parametrize(
    ("calls", "blocks"), [(0, None), (1, 1), (128, 1), (129, 2), (128 * BLOCKS + 1, BLOCKS)]
)
def test_there_are_as_many_blocks_as_rows_need(calls: int, blocks: int | None, asked: Asked) -> None:
    """Some at least, where there is anything to do; no more than a limit."""
    x = input_node(V)
    graph = Graph((x,), (ops.exp(x) + x,))
    rows = random_rows(np.random.default_rng(0), graph, calls)
    found, expected = run_graph(graph, rows)[0], interpret(graph, rows)[0] if calls < 1000 else None
    assert asked.launches == ([] if blocks is None else [(blocks, (2, BLOCK // 2), 3)])
    if expected is not None:
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_a_sum_over_rows_runs_where_there_are_none(asked: Asked) -> None:
    x = input_node(TensorType((70,)))
    graph = Graph((x,), (apply("sum_batch", x), apply("sum_outer", x, ops.exp(x) * 2.0)))
    found = run_graph(graph, random_rows(np.random.default_rng(0), graph, 0))
    assert [np.count_nonzero(array) for array in found] == [0, 0]
    assert (asked.products[0].m, asked.products[0].k) == (70, 0)


@pytest.mark.parametrize("apart", [False, True])
def test_rows_are_copied_together_only_where_they_lie_apart(apart: bool, asked: Asked) -> None:
    """A product reads them where they lie otherwise."""
    x, w = input_node(TensorType((70,))), constant(np.ones((70, 20), "float32"))
    graph = Graph((x,), (x @ w,))
    routine = routine_of_graph(graph, (), FUSED)
    arena = np.random.default_rng(0).normal(size=(6, 70)).astype("float32")
    out = poisoned(TensorType((20,)), 3)
    at = At(arena, index=[5, 0, 5]) if apart else At(arena, 2)
    Batch({("operand", 0): at}, {("value", 0): At(out, 0)}).run(routine, [(0, 1), (1, 3)])
    rows = arena[[5, 0, 5]] if apart else arena[2:5]
    np.testing.assert_allclose(
        out, rows.sum(1, keepdims=True) + np.zeros(20, "float32"), rtol=1e-4, atol=1e-4
    )
    assert len(asked.launches) == (4 if apart else 2)  # a level copies, and brings its values
    assert [product.m for product in asked.products] == [1, 2]


def test_levels_of_sequences_have_the_elements_of_their_calls(asked: Asked) -> None:
    """A product of elements has as many rows; those of a level without elements none."""
    m = ragged()
    e = input_node(TensorType((70,)), m)
    graph = Graph((e,), (ops.segment_sum(e @ constant(np.ones((70, 20), "float32"))),))
    rows = random_rows(np.random.default_rng(0), graph, 4, lengths=[2, 0, 0, 3])
    found = run_graph(graph, rows, levels=[(0, 1), (1, 3), (3, 4)])[0]
    np.testing.assert_allclose(found, interpret(graph, rows)[0], rtol=1e-4, atol=1e-4)
    assert [product.m for product in asked.products] == [2, 3]
