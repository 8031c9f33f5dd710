"""How exact results are, equally on every engine: sums of many rows, functions at the ends of their ranges."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from pytest import approx, mark, param, raises

import foldbatch as fb
from foldbatch import ops
from tests.knobs import knobs

LLVM = param("llvm", marks=mark.llvm)
BACKENDS = ["reference", "numpy", LLVM]
FAST = ["numpy", LLVM]
# the greatest relative error; where a result is below the least normal number, that number
EXACT = {"float32": 1e-6, "float64": 1e-14}
ROWS = 20_000


@pytest.fixture(autouse=True)
def _needs_llvm(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("llvm"):
        pytest.importorskip("llvmlite", reason="llvmlite is not installed")


def _program(block: Any, backend: str, **options: Any) -> fb.Program:
    return fb.compile(block, backend, threads=1, **knobs({"policy": "by_component", **options}))


@mark.parametrize("backend", FAST)
def test_sums_of_many_rows_keep_their_digits(backend: str) -> None:
    """Sums and means of sequences, gradients of biases and of tables, with shared calls and without."""
    bias = fb.Parameter([2], init=0.0, name="bias")
    tenth = fb.Function(lambda x: ops.sum(x) * 0.1) >> fb.Loss()
    item = fb.Record({"x": fb.Vector(2), "id": fb.Scalar("int32") >> fb.Embedding(3, 2, init=0.0)})
    added = fb.Function(lambda x, e: x + e + bias)
    summary = fb.AllOf(fb.Sum(), fb.Mean(), fb.Sum() >> tenth)
    row = {"x": np.full(2, 0.1, "float32"), "id": 1}
    for share in (None, "leaves"):
        program = _program(fb.Map(item >> added) >> summary, backend, share=share)
        ((total, mean, _),) = program.run([[row] * ROWS])
        assert total.tolist() == approx([ROWS * float(np.float32(0.1))] * 2, rel=1e-6)
        assert mean.tolist() == approx([0.1] * 2, rel=1e-6)
        gradients = program.value_and_grad([[row] * ROWS])[1]
        assert gradients["bias"].tolist() == approx([ROWS * 0.1] * 2, rel=1e-6)
        assert gradients["embedding.weight"].dense()[1].tolist() == approx([ROWS * 0.1] * 2, rel=1e-6)


@mark.parametrize("backend", FAST)
def test_sums_over_many_examples_and_axes_keep_their_digits(backend: str) -> None:
    bias = fb.Parameter([2], init=0.0, name="bias")
    many = fb.Vector(2) >> fb.Function(lambda x: ops.sum(x + bias) * 0.1) >> fb.Loss()
    loss, gradients = _program(many, backend).value_and_grad(list(np.full((5000, 2), 0.1, "float32")))
    assert loss == approx(100, rel=1e-6)
    assert gradients["bias"].tolist() == approx([500, 500], rel=1e-6)
    axes = fb.Tensor([ROWS, 2]) >> fb.Function(lambda x: (ops.sum(x), ops.sum(x, 0), ops.sum(x.T, 1)))
    (found,) = _program(axes, backend).run([np.full((ROWS, 2), 0.1, "float32")])
    assert float(found[0]) == approx(ROWS * 0.2, rel=1e-6)
    assert [*found[1].tolist(), *found[2].tolist()] == approx([ROWS * 0.1] * 4, rel=1e-6)


def _right(name: str, x: Any) -> Any:
    """Return a function's values in the widest floats there are."""
    wide = x.astype(np.longdouble)
    if name in ("exp", "tanh"):
        return getattr(np, name)(wide)
    e = np.exp(-np.abs(wide))
    return {
        "sigmoid": np.where(wide < 0, e, 1) / (1 + e),
        "softplus": np.maximum(wide, 0) + np.log1p(e),
        "log_sigmoid": np.minimum(wide, 0) - np.log1p(e),
    }[name]


@mark.filterwarnings("ignore:overflow")
@mark.parametrize("dtype", EXACT)
@mark.parametrize("backend", BACKENDS)
def test_functions_are_exact_over_their_whole_range(backend: str, dtype: str) -> None:
    """Against the widest floats there are; in loops of their own, and fused with a product."""
    end = {"float32": 110, "float64": 760}[dtype]
    small = np.geomspace(1e-20, 1, 100)
    x = np.concatenate([np.linspace(-end, end, 301), np.linspace(-20, 20, 101), small, -small]).astype(dtype)
    names = ("exp", "tanh", "sigmoid", "softplus", "log_sigmoid")
    every = fb.Function(lambda x: tuple(getattr(ops, name)(x) for name in names))
    (found,) = _program(fb.Vector(len(x), dtype) >> every, backend).run([x])
    for name, values in zip(names, found, strict=True):
        right = _right(name, x)
        finite = right < np.finfo(dtype).max
        np.testing.assert_allclose(
            np.asarray(values, np.longdouble)[finite],
            right[finite],
            rtol=EXACT[dtype],
            atol=float(np.finfo(dtype).tiny),
            err_msg=name,
        )


@mark.parametrize("dtype", EXACT)
@mark.parametrize("backend", BACKENDS)
def test_softmax_and_its_losses_are_exact(backend: str, dtype: str) -> None:
    """Equal logits however large, a label that is all but certain, one that is all but impossible."""
    rows = [[top] * 3 for top in (0, 1e3, -1e5, 1e6, 1e7, 1e8)]
    rows += [[0, -20, -30], [0, -80, -75], [5, 25, 1], [3e4, -3e4, 0], [0.1, 0.2, 0.3], [-40, 40, 39]]
    x = np.array(rows, dtype)
    every = fb.Function(
        lambda x: (ops.softmax(x), ops.log_softmax(x), ops.logsumexp(x), ops.cross_entropy(x, 0))
    )
    found = _program(fb.Vector(3, dtype) >> every, backend).run(list(x))
    wide = x.astype(np.longdouble)
    top = wide.max(1, keepdims=True)
    others = np.exp(wide - top)
    others[np.arange(len(x)), wide.argmax(1)] = 0
    rest = np.log1p(others.sum(1, keepdims=True))
    log = wide - top - rest
    right = np.exp(log), log, (top + rest)[:, 0], -log[:, 0]
    for number, wanted in enumerate(right):
        values = np.array([row[number] for row in found], np.longdouble)
        np.testing.assert_allclose(values, wanted, rtol=EXACT[dtype], atol=float(np.finfo(dtype).tiny))


@mark.parametrize("backend", BACKENDS)
def test_log_sigmoid_has_a_gradient_wherever_it_is_finite(backend: str) -> None:
    w = fb.Parameter([3], [-200.0, 0.0, 200.0], "w")
    program = _program(
        fb.Vector(3) >> fb.Function(lambda x: ops.sum(ops.log_sigmoid(w * x))) >> fb.Loss(), backend
    )
    loss, gradients = program.value_and_grad([[1, 1, 1]])
    assert loss == approx(-200 - np.log(2), rel=1e-6)
    assert gradients["w"].tolist() == approx([1, 0.5, 0], abs=1e-12)


@mark.parametrize("backend", BACKENDS)
@mark.parametrize("kind", ["F", ">", "strided", "reversed"])
def test_constants_may_lie_in_memory_in_any_way(backend: str, kind: str) -> None:
    """In another order of axes or of bytes; in loops, in products, and alone."""
    plain = np.arange(6, dtype="float32").reshape(2, 3)
    constant = {
        "F": np.asfortranarray(plain),
        ">": plain.astype(">f4"),
        "strided": np.repeat(np.repeat(plain, 2, 0), 2, 1)[::2, ::2],
        "reversed": plain[::-1, ::-1].copy()[::-1, ::-1],
    }[kind]
    block = fb.Tensor([2, 3]) >> fb.AllOf(
        fb.Function(lambda x: ops.tanh(x * constant + 1)),
        fb.Function(lambda x: x.T @ constant),
        fb.FromTensor(constant),
    )
    ((looped, product, alone),) = _program(block, backend).run([np.ones((2, 3))])
    np.testing.assert_allclose(looped, np.tanh(plain + 1), rtol=1e-6)
    np.testing.assert_allclose(product, np.ones((3, 2)) @ plain)
    np.testing.assert_array_equal(alone, plain)


@mark.parametrize("backend", BACKENDS)
def test_the_least_integer_has_a_minimum(backend: str) -> None:
    """It has no negative. Sequences may be empty."""
    block = fb.Map(fb.Scalar("int32")) >> fb.Min()
    assert [int(x) for x in _program(block, backend).run([[-(2**31), 5], [], [7, 3]])] == [-(2**31), 0, 3]
    along = fb.Vector(2, "int64") >> fb.Function(ops.min)
    assert [int(x) for x in _program(along, backend).run([[-(2**63), 5], [4, 2]])] == [-(2**63), 2]


@mark.parametrize("backend", BACKENDS)
@mark.parametrize("id", [-1, 5, 9])
def test_computed_ids_are_refused_where_they_are_out_of_range(backend: str, id: int) -> None:
    """Also by `value_and_grad`, and by losses; NumPy would count -1 from the end."""
    computed = fb.Scalar() >> fb.Function(lambda x: ops.cast(x, "int32"))
    loss = fb.Function(lambda i: ops.cross_entropy(np.zeros(5, "float32") + 0 * ops.cast(i, "float32"), i))
    for block in (
        computed >> fb.Embedding(5, 3) >> fb.Function(ops.sum) >> fb.Loss(),
        computed >> loss >> fb.Loss(),
    ):
        program = _program(block, backend)
        for method in (partial(program.run, losses=True), program.value_and_grad):
            with raises(
                fb.errors.ExampleError, match=rf"at example 1: expected ids from 0 to 4, found {id};"
            ):
                method([4, id, 0])


_W = fb.Parameter([4, 4], name="w")
STEPS = {
    "mean of a product, for all columns": lambda x, h: ops.broadcast_to(ops.mean(h @ _W + h), (4,)) + x,
    "less the mean of the operand": lambda x, h: x + ops.mean(h @ _W - ops.mean(h)) + 0 * h,
    "a gate for all columns": lambda x, h: ops.sigmoid(ops.sum(h @ _W)) * h + x,
    "a product of a mean": lambda x, h: x + ops.broadcast_to(ops.mean(h), (4,)) @ _W,
}


@mark.parametrize("name", STEPS)
def test_recursions_may_be_the_same_for_all_columns(name: str) -> None:
    """A product's operand, or what is made of a product, is one number repeated; each engine runs it."""
    pytest.importorskip("llvmlite", reason="llvmlite is not installed")
    step = STEPS[name]
    fold = fb.Fold(fb.Function(lambda h, x: step(x, h)), fb.Zeros(4))
    block = fb.Map(fb.Vector(4)) >> fold >> fb.Function(ops.sum) >> fb.Loss()
    example = np.random.default_rng(0).normal(size=(3, 4))
    (loss, right), *others = [
        _program(block, b).value_and_grad([example]) for b in ("reference", "numpy", "llvm")
    ]
    for found, gradients in others:
        assert found == approx(loss, rel=1e-5)
        np.testing.assert_allclose(gradients["w"], right["w"], rtol=1e-4, atol=1e-6)
