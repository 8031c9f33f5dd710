"""An op is known in its paragraph, in NumPy's spelling and in ONNX's: with these entered, every engine runs it."""

from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines.engine import ENGINES
from foldbatch.engines.numpy.spelling import SPELLINGS
from foldbatch.static.graph import Node, apply
from foldbatch.static.op import OPS, Op
from foldbatch.static.places import section
from foldbatch.types import TensorType
from tests.engines.cuda.emulated import needs_compiler
from tests.ptx.needed import needs_ptx


def _hinge_vjp(g: Node, y: Node, a: Node, b: Node) -> tuple[Node, ...]:
    return apply("where", a < b, g * (b - a) * -2, g * 0), apply("where", a < b, g * (b - a) * 2, g * 0)


HINGE = Op(  # elementwise: how far a is below b, squared
    "hinge",
    lambda types, attrs: types[0],
    lambda attrs, a, b: np.square(np.maximum(b - a, 0)),
    _hinge_vjp,
    elementwise=True,
    body="gap = b - a\n0 if a >= b else gap * gap",
)
SPREAD = Op(  # along an axis: how far the elements are below the greatest, on average
    "spread",
    lambda types, attrs: TensorType(types[0].shape[:-1], types[0].dtype),
    lambda attrs, x: np.mean(np.max(x, -1, keepdims=True) - x, -1),
    body="top = greatest(x[k])\ntotal = sum(top - x[k])\ncount = sum(x[k] - x[k] + 1)\ny = t(total / count)",
)
TWICE = Op(  # copies: a vector, and once more
    "twice",
    lambda types, attrs: TensorType((2 * types[0].shape[0],), types[0].dtype),
    lambda attrs, x: np.concatenate([x, x]),
    lambda g, y, x: (apply("add", g[: x.shape[0]], g[x.shape[0] :]),),
    copies=lambda attrs, write, x: ((section(write, 0, i * x.shape[0], x.shape[0]), x) for i in range(2)),
)
BY_NUMPY = {
    "hinge": lambda s, xs, out, dtype: [f"{out}[...] = np.square(np.maximum({xs[1]} - {xs[0]}, 0))"],
    "spread": lambda s, xs, out, dtype: [
        f"{out}[...] = np.mean(np.max({xs[0]}, -1, keepdims=True) - {xs[0]}, -1)"
    ],
}


@pytest.fixture(autouse=True)
def _added() -> Iterator[None]:
    added = {op.name: op for op in (HINGE, SPREAD, TWICE)}
    with mock.patch.dict(OPS, added), mock.patch.dict(SPELLINGS, BY_NUMPY):
        yield


def used(x: Node, y: Node) -> Node:
    """Return a tensor made by all of them, some in fused loops, some of long lines."""
    hinge = apply("hinge", x * 0.5, y) + 0.25
    wide = apply("twice", ops.tanh(hinge))
    return wide * apply("spread", apply("twice", wide))


@pytest.mark.parametrize(
    "engine",
    [
        *("numpy", "reference"),
        *(pytest.param(name, marks=pytest.mark.llvm) for name in ("llvm", "unfused")),
        pytest.param("cuda-on-cpu", marks=needs_compiler),
        pytest.param("cuda-on-ptx", marks=needs_ptx),
    ],
)
@pytest.mark.parametrize("size", [3, 20])  # of the longer one, threads of a GPU share lines
def test_an_engine_runs_ops_that_it_has_never_heard_of(engine: str, size: int) -> None:
    if engine in ("llvm", "unfused"):
        pytest.importorskip("llvmlite", reason="llvmlite is not installed")
    rng = np.random.default_rng(0)
    examples: list[Any] = [(rng.normal(size=size), rng.normal(size=size)) for _ in range(4)]
    examples[1][0][1] = np.nan
    block = fb.Record((fb.Vector(size, "float64"),) * 2) >> fb.Function(used)
    with mock.patch.dict(ENGINES, unfused=("tests.engines.unfused", "llvmlite")):
        found = fb.compile(block, engine, threads=1).run(examples)
    for value, (x, y) in zip(found, examples, strict=True):
        wide = np.tile(np.tanh(np.square(np.maximum(y - x * 0.5, 0)) + 0.25), 2)
        long = np.tile(wide, 2)
        np.testing.assert_allclose(value, wide * np.mean(np.max(long) - long), rtol=1e-12)


def test_its_derivatives_follow_from_its_paragraph() -> None:
    hinge = fb.Function(lambda x, y: ops.sum(apply("twice", apply("hinge", x, y))))
    w = fb.Parameter([3, "float64"], np.array([0.3, -0.2, 2.0]), "w")
    x = np.array([0.1, 1.0, -1.0])
    program = fb.compile(fb.AllOf(fb.Vector(3, "float64"), fb.FromTensor(w)) >> hinge >> fb.Loss(), "numpy")
    _, gradients = program.value_and_grad([x])
    np.testing.assert_allclose(gradients["w"], 4 * np.maximum(w.value - x, 0))


def test_onnx_needs_a_translation() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from foldbatch.exporting.exporter import Exporter, run, session_of  # noqa: PLC0415 - it needs onnxruntime
    from foldbatch.exporting.operators import TRANSLATIONS  # noqa: PLC0415

    block = fb.Record((fb.Vector(3, "float64"),) * 2) >> fb.Function(lambda x, y: apply("hinge", x, y))
    examples = [(np.array([0.5, 1, 2]), np.array([1.0, 0, 4]))]

    def hinge(at: Any, node: Node, a: str, b: str) -> str:
        gap = at.add("Relu", at.add("Sub", b, a))
        return str(at.add("Mul", gap, gap))

    with mock.patch.dict(TRANSLATIONS, hinge=hinge):
        exporter = Exporter(fb.compile(block, "numpy"))
        (found,) = run(exporter, session_of(exporter.proto().SerializeToString(), threads=1), examples)
    np.testing.assert_allclose(found, [0.25, 0, 4])
