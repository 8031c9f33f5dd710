"""Loops as Numba compiles them: their text, what they compute, and when they are compiled."""

from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines.numba.loop_compiler import compile_loop
from foldbatch.errors import BackendError
from foldbatch.static import backends, ops
from foldbatch.static.backends import AUTO, BACKENDS, find_backend
from foldbatch.static.backends.numba import EXPRESSIONS, alone, spell, takes
from foldbatch.static.graph import Graph, apply, constant, input_node
from foldbatch.static.kernel import load
from foldbatch.static.loops import Buffer, Loop, Place, Step, Sweep
from foldbatch.static.op import OPS
from foldbatch.types import TensorType
from tests.static.run_kernel import compile_graph, interpret, random_rows, run_graph

V = TensorType((3,))
needs_numba = [
    pytest.mark.numba,
    pytest.mark.skipif("numba" not in BACKENDS, reason="numba is not installed"),
]


def test_every_expression_is_of_an_elementwise_op() -> None:
    assert all(OPS[name].elementwise for name in EXPRESSIONS)


def test_only_ops_of_several_passes_are_worth_a_loop_alone() -> None:
    x, y = input_node(V), input_node(V)
    assert [alone(node) for node in (ops.sigmoid(x), ops.add(x, y, x), x + y, ops.tanh(x))] == [True] * 2 + [
        False
    ] * 2
    assert not takes(ops.sigmoid(input_node(TensorType((0,)))))  # NumPy does nothing as fast


def test_a_loop_is_python_over_raw_memory() -> None:
    """Row by row: gates in one row of scratch, halves of it in the second sweep."""
    x = input_node(TensorType((4,)))
    bias = constant(np.ones(4, "float32"))
    gates = x + bias
    half = input_node(TensorType((2,)))  # stands for the loaded slices
    product = ops.sigmoid(half) * half
    loop = Loop(
        (
            Buffer("float32", 2, written=False),
            Buffer("float32", 1, written=False),
            Buffer("float32", 1, written=True),
            Buffer("float32", 2, written=True),
        ),
        (
            Sweep(
                (4,),
                (Place(0, 4, 0, (1,)), Place(1, 0, 0, (1,))),
                (Step(gates, (0, 1)),),
                ((2, Place(2, 0, 0, (1,))),),
            ),
            Sweep(
                (2,),
                (Place(2, 0, 0, (1,)), Place(2, 0, 2, (1,))),
                (Step(product.inputs[0], (0,)), Step(product, (2, 1))),
                ((3, Place(3, 2, 0, (1,))),),
            ),
        ),
        batched=True,
    )
    assert spell(loop) == dedent("""\
        # i8, f4[2], f4[1], f4[1]w, f4[2]w
        def loop(n, x0, x1, x2, x3):
            a0 = flat(x0)
            a1 = flat(x1)
            a2 = flat(x2)
            a3 = flat(x3)
            for r in range(u8(n)):
                for j0 in range(u8(4)):
                    t0 = a0[r * u8(4) + j0]
                    t1 = a1[j0]
                    t2 = t0 + t1
                    a2[j0] = t2
                for j0 in range(u8(2)):
                    t0 = a2[j0]
                    t1 = a2[j0 + u8(2)]
                    t2 = sigmoid_f4(t0)
                    t3 = t2 * t1
                    a3[r * u8(2) + j0] = t3
        """)


def test_whole_rows_are_one_loop() -> None:
    """Numbers are constants of their op's dtype."""
    x = input_node(V)
    node = x * constant(0.5)
    place = Place(0, 3, 0, (1,))
    sweep = Sweep((3,), (place,), (Step(node, (0, node.inputs[1])),), ((1, Place(1, 3, 0, (1,))),))
    loop = Loop(
        (Buffer("float32", 2, written=False), Buffer("float32", 2, written=True)), (sweep,), batched=True
    )
    assert spell(loop).splitlines()[4:] == [
        "    for j0 in range(u8(n) * u8(3)):",
        "        t0 = a0[j0]",
        "        t1 = t0 * f4(0.5)",
        "        a1[j0] = t1",
    ]


def test_without_numba_there_is_no_such_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for it names the fix; ``auto`` does without."""

    def refuse() -> None:
        raise BackendError(
            "backend numba", "Numba to be installed", "no module", "pip install 'foldbatch[numba]'"
        )

    monkeypatch.setattr(backends, "_import_numba", refuse)
    monkeypatch.delitem(BACKENDS, "numba", raising=False)
    assert find_backend("auto").name == "numpy"
    with pytest.raises(BackendError, match=r"pip install 'foldbatch\[numba\]'"):
        find_backend("numba")


@pytest.mark.parametrize("missing", [True, False])
def test_a_numba_that_does_not_import_is_none(missing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed, but for another NumPy."""

    def refuse() -> None:
        raise BackendError("backend numba", "Numba to be installed", "needs NumPy 2.2 or less", "")

    if missing:
        monkeypatch.setattr(backends, "_import_numba", refuse)
    assert find_backend("auto").name == ("numpy" if missing or "numba" not in BACKENDS else AUTO[0])


def _gates(dtype: str) -> Graph:
    x, b = input_node(TensorType((40,), dtype)), input_node(TensorType((10,), dtype))
    gates = x * 2.0 + 1.0
    i, f, o = ops.split(ops.sigmoid(gates[:30]), 3)
    c = i * ops.tanh(gates[30:]) + f * b
    return Graph((x, b), (o * ops.tanh(c), c))


class TestCompiled:
    """With Numba."""

    pytestmark = needs_numba

    @pytest.mark.parametrize(("dtype", "vector"), [("float32", " x float>"), ("float64", " x double>")])
    def test_loops_are_vectorised(self, dtype: str, vector: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Every tanh of an LSTM's gates is computed on vectors: the loops that LLVM made say so."""
        monkeypatch.setenv("FOLDBATCH_CACHE", "")  # what is read back from disk cannot be looked into
        compile_loop.cache_clear()
        graph = _gates(dtype)
        text = compile_graph(graph, (), BACKENDS["numba"])
        (source,) = text.loops.values()
        function = BACKENDS["numba"].loops.compile(source)  # type: ignore[union-attr]
        (ir,) = function.inspect_llvm().values()  # type: ignore[attr-defined]
        assert any(f"fdiv contract <{n}{vector}" in ir for n in (2, 4, 8, 16))
        assert "vector.memcheck" not in ir

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("calls", [0, 1, 7])
    def test_gates_are_computed_in_one_call(self, calls: int, dtype: str) -> None:
        graph = _gates(dtype)
        rows = random_rows(np.random.default_rng(0), graph, calls)
        assert compile_graph(graph, (), BACKENDS["numba"]).calls == 1
        found = run_graph(graph, rows, (), BACKENDS["numba"])
        tolerance = 1e-6 if dtype == "float32" else 1e-14
        for a, b in zip(found, interpret(graph, rows), strict=True):
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
    def test_nan_and_infinities_propagate(self, function: object) -> None:
        """As they do in NumPy."""
        x = input_node(TensorType((4,)))
        y = function(x) * 2.0 + 1.0  # type: ignore[operator]
        graph = Graph((x,), (y,))
        rows = random_rows(np.random.default_rng(0), graph, 1)
        rows.values[0][:] = [[np.nan, np.inf, -np.inf, 1.0]]
        found, right = run_graph(graph, rows, (), BACKENDS["numba"])[0], run_graph(graph, rows)[0]
        np.testing.assert_allclose(found, right, rtol=1e-6)

    def test_a_division_by_zero_is_no_error(self) -> None:
        x = input_node(TensorType((3,)))
        graph = Graph((x,), (1.0 / x + 0.0,))
        rows = random_rows(np.random.default_rng(0), graph, 1)
        rows.values[0][:] = [[0.0, -0.0, 2.0]]
        assert run_graph(graph, rows, (), BACKENDS["numba"])[0].tolist() == [[np.inf, -np.inf, 0.5]]

    def test_integers_wrap_around(self) -> None:
        """Numba would compute in 64 bits."""
        x = input_node(TensorType((2,), "int32"))
        graph = Graph((x,), (ops.where(x + x < x, x * x, x - 1),))
        rows = random_rows(np.random.default_rng(0), graph, 1)
        rows.values[0][:] = [[2**31 - 1, 3]]
        found, right = run_graph(graph, rows, (), BACKENDS["numba"])[0], run_graph(graph, rows)[0]
        assert found.tolist() == right.tolist() == [[1, 2]]

    @pytest.mark.parametrize("count", [0, 1, 7])
    @pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
    def test_sums_over_all_rows_are_compiled_where_rows_lie_side_by_side(
        self, dtype: str, count: int
    ) -> None:
        x = input_node(TensorType((2, 3), dtype))
        for rows, ours in ((x, dtype != "int32"), (x[:, 1:], False)):
            graph = Graph((x,), (apply("sum_batch", rows),))
            source = compile_graph(graph, (), BACKENDS["numba"]).source
            assert ("sum_axis_" in source, "np.sum(" in source) == (ours, not ours)
            some = random_rows(np.random.default_rng(0), graph, count)
            (found,) = run_graph(graph, some, (), BACKENDS["numba"])
            np.testing.assert_allclose(found, interpret(graph, some)[0], rtol=1e-6)

    def test_a_result_that_is_a_copying_reshape_can_be_read_by_a_loop(self) -> None:
        x = input_node(TensorType((2, 3)))
        y = ops.reshape(ops.transpose(x), 6)
        graph = Graph((x,), (ops.tanh(y) * 2.0,))
        rows = random_rows(np.random.default_rng(0), graph, 3)
        found = run_graph(graph, rows, (), BACKENDS["numba"])[0]
        np.testing.assert_allclose(found, interpret(graph, rows)[0], rtol=1e-6)

    def test_nothing_is_compiled_while_batches_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whatever their sizes: no kernel, no loop, no new types of one."""
        from numba.core import event  # noqa: PLC0415 - optional

        h = fb.ForwardDeclaration(output_type=4, name="h")
        step = fb.Record((fb.Vector(3), h())) >> fb.Concat() >> fb.Linear(4, activation=ops.tanh)
        h.resolve_to(fb.Optional(step, fb.FromTensor(np.zeros(4, "float32"))))
        program = fb.compile(h() >> fb.Function(ops.sum) >> fb.Loss(), "numba", threads=1)
        examples = [None, ([1, 2, 3], None), ([1, 2, 3], ([4, 5, 6], None))]
        with event.install_recorder("numba:compile") as recorder:
            for batch in (examples, examples[:1], examples * 5, []):
                program.run(batch)
                program.value_and_grad(batch)
        assert recorder.buffer == []
        assert any("loop_" in kernel.source for cell in program.model.cells for kernel in cell.kernels)

    def test_loops_are_shown_with_the_kernels_that_call_them(self) -> None:
        program = fb.compile(fb.Vector(3) >> fb.Function(lambda x: ops.sigmoid(x) * 2.0), "numba")
        text = program.kernels()
        name = text.split("def loop_")[1].split("(")[0]
        assert f"    loop_{name}(n, x0" in text or f"loop_{name}(n, f0" in text
        assert "t1 = sigmoid_f4(t0)" in text


def test_a_kernel_counts_a_loop_as_one_call() -> None:
    x = input_node(V)
    graph = Graph((x,), (apply("tanh", x) * 2.0 + 1.0,))
    if "numba" not in BACKENDS:
        pytest.skip("numba is not installed")
    text = compile_graph(graph, (), BACKENDS["numba"])
    assert load("test", text, (("value", 0),), BACKENDS["numba"]).calls == 1
