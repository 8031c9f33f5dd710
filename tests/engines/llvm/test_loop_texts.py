"""Loops as they are compiled: their text, what they compute, and when they are compiled."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines.llvm.loop_texts import TARGET, spell
from foldbatch.static import ops
from foldbatch.static.graph import Graph, constant, input_node
from foldbatch.static.loops import Element, FusedLoop, LoopBuffer, Operation, Sweep
from foldbatch.types import TensorType
from tests.engines.llvm.walking import (
    by_llvm,  # noqa: F401 - a fixture
    instructions_of,
    run_native,
)
from tests.static import run_kernel
from tests.static.run_kernel import interpret, random_rows, routine_of_graph, run_graph

V = TensorType((3,))


def test_no_op_is_worth_a_loop_alone() -> None:
    """There are functions for single ops, which no model has to compile."""
    x = input_node(V)
    routines = [routine_of_graph(Graph((x,), (y,)), target=TARGET) for y in (ops.sigmoid(x), ops.tanh(x) * x)]
    assert [[statement.op for statement in routine.statements] for routine in routines] == [
        ["sigmoid"],
        ["loop"],
    ]


def test_a_loop_is_python_over_raw_memory() -> None:
    """Row by row: gates in one row of scratch, halves of it in the second sweep."""
    x = input_node(TensorType((4,)))
    bias = constant(np.ones(4, "float32"))
    gates = x + bias
    half = input_node(TensorType((2,)))  # stands for the loaded slices
    product = ops.sigmoid(half) * half
    loop = FusedLoop(
        (
            LoopBuffer("float32", 2, written=False),
            LoopBuffer("float32", 1, written=False),
            LoopBuffer("float32", 1, written=True),
            LoopBuffer("float32", 2, written=True),
        ),
        (
            Sweep(
                (4,),
                (Element(0, 4, 0, (1,)), Element(1, 0, 0, (1,))),
                (Operation(gates, (0, 1)),),
                ((2, Element(2, 0, 0, (1,))),),
            ),
            Sweep(
                (2,),
                (Element(2, 0, 0, (1,)), Element(2, 0, 2, (1,))),
                (Operation(product.inputs[0], (0,)), Operation(product, (2, 1))),
                ((3, Element(3, 2, 0, (1,))),),
            ),
        ),
        batched=True,
    )
    assert spell(loop) == dedent("""\
        # f4 f4 f4 f4
        def loop(n, a0, a1, a2, a3, s):
            for r in range(n):
                for j0 in range(u8(4)):
                    t0 = a0[r * u8(4) + j0]
                    t1 = a1[j0]
                    t2 = t0 + t1
                    a2[j0] = t2
                for j0 in range(u8(2)):
                    t0_1 = a2[j0]
                    t1_1 = a2[j0 + u8(2)]
                    t2_1 = sigmoid(t0_1)
                    t3_1 = t2_1 * t1_1
                    a3[r * u8(2) + j0] = t3_1
        """)


def test_whole_rows_are_one_loop() -> None:
    """Numbers are constants of their op's dtype."""
    x = input_node(V)
    node = x * constant(0.5)
    place = Element(0, 3, 0, (1,))
    sweep = Sweep((3,), (place,), (Operation(node, (0, node.inputs[1])),), ((1, Element(1, 3, 0, (1,))),))
    loop = FusedLoop(
        (LoopBuffer("float32", 2, written=False), LoopBuffer("float32", 2, written=True)),
        (sweep,),
        batched=True,
    )
    assert spell(loop).splitlines()[2:] == [
        "    for j0 in range(n * u8(3)):",
        "        t0 = a0[j0]",
        "        t1 = t0 * f4(0.5)",
        "        a1[j0] = t1",
    ]


def _gates(dtype: str) -> Graph:
    x, b = input_node(TensorType((40,), dtype)), input_node(TensorType((10,), dtype))
    gates = x * 2.0 + 1.0
    i, f, o = ops.split(ops.sigmoid(gates[:30]), 3)
    c = i * ops.tanh(gates[30:]) + f * b
    return Graph((x, b), (o * ops.tanh(c), c))


@pytest.mark.llvm
@pytest.mark.usefixtures("by_llvm", "fused")
class TestCompiled:
    """With llvmlite."""

    @pytest.fixture
    def fused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(run_kernel, "TARGET", TARGET)

    @pytest.mark.parametrize(("dtype", "vector"), [("float32", " x float>"), ("float64", " x double>")])
    def test_loops_are_vectorised(self, dtype: str, vector: str) -> None:
        """Every tanh of an LSTM's gates is computed on vectors: the loops that LLVM made say so."""
        (statement,) = routine_of_graph(_gates(dtype)).statements
        assert statement.loop is not None
        ir = instructions_of(spell(statement.loop))
        assert any(f"fdiv contract <{n}{vector}" in ir for n in (2, 4, 8, 16))
        assert "vector.memcheck" not in ir

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("calls", [0, 1, 7])
    def test_gates_are_computed_in_one_loop(self, calls: int, dtype: str) -> None:
        graph = _gates(dtype)
        rows = random_rows(np.random.default_rng(0), graph, calls)
        tolerance = 1e-6 if dtype == "float32" else 1e-14
        for a, b in zip(run_graph(graph, rows), interpret(graph, rows), strict=True):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)

    @pytest.mark.parametrize(
        "function",
        [
            ops.tanh,
            ops.sigmoid,
            ops.relu,
            ops.exp,
            ops.abs,
            lambda x: ops.maximum(x, 0.0),
            lambda x: ops.minimum(0.0, x),
        ],
    )
    def test_nan_and_infinities_propagate(self, function: Any) -> None:
        """As they do in NumPy."""
        x = input_node(TensorType((4,)))
        graph = Graph((x,), (function(x) * 2.0 + 1.0,))
        rows = random_rows(np.random.default_rng(0), graph, 1)
        rows.values[0][:] = [[np.nan, np.inf, -np.inf, 1.0]]
        np.testing.assert_allclose(run_graph(graph, rows)[0], interpret(graph, rows)[0], rtol=1e-6)

    def test_a_division_by_zero_is_no_error(self) -> None:
        x = input_node(TensorType((3,)))
        graph = Graph((x,), (1.0 / x + 0.0,))
        rows = random_rows(np.random.default_rng(0), graph, 1)
        rows.values[0][:] = [[0.0, -0.0, 2.0]]
        assert run_graph(graph, rows)[0].tolist() == [[np.inf, -np.inf, 0.5]]

    def test_integers_wrap_around(self) -> None:
        """Python would compute in 64 bits."""
        x = input_node(TensorType((2,), "int32"))
        graph = Graph((x,), (ops.where(x + x < x, x * x, x - 1),))
        rows = random_rows(np.random.default_rng(0), graph, 1)
        rows.values[0][:] = [[2**31 - 1, 3]]
        assert run_graph(graph, rows)[0].tolist() == [[1, 2]]

    def test_a_result_that_is_a_copying_reshape_can_be_read_by_a_loop(self) -> None:
        x = input_node(TensorType((2, 3)))
        y = ops.reshape(ops.transpose(x), 6)
        graph = Graph((x,), (ops.tanh(y) * 2.0,))
        rows = random_rows(np.random.default_rng(0), graph, 3)
        np.testing.assert_allclose(run_graph(graph, rows)[0], interpret(graph, rows)[0], rtol=1e-6)

    def test_nothing_is_compiled_while_batches_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whatever their sizes, once each phase has run."""
        from foldbatch.engines.llvm import machine  # noqa: PLC0415 - it needs llvmlite

        h = fb.ForwardDeclaration(output_type=4, name="h")
        step = fb.Record((fb.Vector(3), h())) >> fb.Concat() >> fb.Linear(4, activation=ops.tanh)
        h.resolve_to(fb.Optional(step, fb.FromTensor(np.zeros(4, "float32"))))
        program = fb.compile(h() >> fb.Function(ops.sum) >> fb.Loss(), "llvm", threads=1)
        examples = [None, ([1, 2, 3], None), ([1, 2, 3], ([4, 5, 6], None))]
        program.run(examples[1:2])
        program.value_and_grad(examples[1:2])

        def load(name: str, content: bytes) -> int:
            raise AssertionError(f"{name} is loaded in a batch")

        with monkeypatch.context() as batches:
            batches.setattr(machine, "load", load)
            for batch in (examples, examples[:1], examples * 5, []):
                program.run(batch)
                program.value_and_grad(batch)
        assert "# loop 0 of" in program.kernels()

    def test_sweeps_of_one_loop_may_hold_numbers_of_other_kinds(self) -> None:
        """Here a variable's number is that of a bool, then that of a float."""
        x = input_node(V)
        less, square = ops.less(x, 2.0), ops.square(x)
        read = Element(0, 3, 0, (1,))
        two = Operation(less, (0, less.inputs[1]))
        sweeps = (
            Sweep((3,), (read,), (two,), ((1, Element(1, 3, 0, (1,))),)),
            Sweep((3,), (read,), (Operation(square, (0,)),), ((1, Element(2, 3, 0, (1,))),)),
        )
        buffers = (
            LoopBuffer("float32", 2, written=False),
            LoopBuffer("bool", 2, written=True),
            LoopBuffer("float32", 2, written=True),
        )
        rows, truths, squares = np.float32([[1, 2, 3]]), np.zeros((1, 3), bool), np.zeros((1, 3), "float32")
        run_native(spell(FusedLoop(buffers, sweeps, batched=True)), 1, [rows, truths, squares], [])
        assert truths.tolist() == [[True, False, False]]
        assert squares.tolist() == [[1, 4, 9]]
