"""The law of numbers: at the edges of their ranges, every engine computes what NumPy does.

Edges are zeros of both signs, denormals, halves, multiples, huge numbers, infinities, NaN and the limits of integers.
NaN, infinities and the signs of zeros are NumPy's, and values are apart by no more than a case says. What is left open
a case says, too: the sign of a zero where NumPy's own depends on the processor, and numbers below the least normal one.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines.engine import ENGINES
from foldbatch.static.graph import Node, input_node, reachable
from foldbatch.static.op import OPS, ragged
from foldbatch.types import TensorType
from tests.backends import lacking

FLOATS, WHOLE, BOOL = ("float32", "float64"), ("int32", "int64"), ("bool",)
NUMBERS, ALL = (*FLOATS, *WHOLE), (*FLOATS, *WHOLE, *BOOL)
SHORT, LONG = 3, 70  # elements of a line that one thread of a GPU goes along, or that many share


def edges(dtype: str) -> Any:
    """Return numbers of a dtype."""
    if dtype == "bool":
        return np.array([False, True])
    if dtype in WHOLE:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        return np.array([low, low + 1, -(2**24) - 1, -7, -1, 0, 1, 2, 7, 2**24 + 1, high - 1, high], dtype)
    info = np.finfo(dtype)
    small = [0.0, float(info.smallest_subnormal), float(info.tiny) / 3, float(info.tiny), 1e-8]
    usual = [0.1, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 2.5, 6.3, 8.8, 20.0, 103.5, 360.0, 745.0]
    large = [2.0**24 - 1, 2.0**31 - 1, 2.0**31, 2.0**53 + 2, 2.0**63, 1e30, float(info.max), np.inf]
    with np.errstate(over="ignore"):
        return np.array([np.nan, *(sign * x for x in small + usual + large for sign in (1, -1))], dtype)


def pairs(dtype: str) -> tuple[Any, Any]:
    """Return all pairs of edges; of floats, multiples with their divisors, too."""
    x = edges(dtype)
    a, b = np.repeat(x, len(x)), np.tile(x, len(x))
    if dtype in FLOATS:
        divisor = np.array([0.1, 0.3, 1.1, -0.7, 3, -360], dtype)
        multiples = np.arange(-60, 61).astype(dtype)[:, None] * divisor
        a, b = np.append(a, multiples), np.append(b, np.tile(divisor, len(multiples)))
    return a, b


def lines(dtype: str, length: int) -> Any:
    """Return lines of edges, ``[*, length]``: each three that are told apart, and where lines are long, much between."""
    if dtype in FLOATS:
        few = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1.5, 2.5, 80.0, 1e30, -1e30], dtype)
    else:
        few = edges(dtype)
    three = np.stack(np.meshgrid(few, few, few), -1).reshape(-1, SHORT)
    if length == SHORT:
        return three
    found = np.full((len(three), length), few[-1 if dtype in FLOATS else 0])
    for place, column in zip((0, 33, length - 1), three.T, strict=True):
        found[:, place] = column
    return found[::7]


@dataclass(frozen=True)
class Case:
    """A function of ours, and NumPy's.

    Attributes:
        name: of the function.
        ours: from symbolic tensors to one.
        numpys: from arrays to an array.
        dtypes: of the operands.
        ulps: how far values may be apart, in units in the last place; then NumPy's are of the widest floats there are.
        scale: of the operands, what these are units of, by default of the result.
        zeros: whether the sign of a zero is left open.
        tiny: whether a number below the least normal one may be another such one, or 0.
    """

    name: str
    ours: Callable[..., Node]
    numpys: Callable[..., Any]
    dtypes: tuple[str, ...] = FLOATS
    ulps: int = 0
    scale: Callable[..., Any] | None = None
    zeros: bool = False
    tiny: bool = False


def same(name: str, dtypes: tuple[str, ...] = FLOATS, **options: Any) -> Case:
    return Case(name, getattr(ops, name), getattr(np, name), dtypes, **options)


def converted(x: Any, dtype: str) -> Any:
    """Return a cast; where NumPy leaves it to the processor, integers end at their limits, and NaN is 0."""
    if x.dtype.kind != "f" or np.dtype(dtype).kind != "i":
        return x.astype(dtype)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    found = [
        0 if math.isnan(v) else low if v <= low else high if v >= high else int(v) for v in x.ravel().tolist()
    ]
    return np.array(found, dtype).reshape(x.shape)


def powers(x: Any, exponent: float) -> Any:
    return (
        np.sqrt(x) if exponent == 0.5 else np.power(x, exponent)
    )  # as NumPy has it, but for the widest floats


def sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def logsumexp(x: Any) -> Any:
    return np.logaddexp.reduce(x, -1)


def log_softmax(x: Any) -> Any:
    return x - np.logaddexp.reduce(x, -1, keepdims=True)


def greatest(x: Any) -> Any:
    """Return the places of the two greatest, of which the first of equals is the greater."""
    return (x.shape[-1] - 1 - np.argsort(x[..., ::-1], -1, kind="stable"))[..., :-3:-1]


def summed(x: Any, axis: int = -1) -> Any:
    return np.sum(x, axis, np.int64 if x.dtype.kind == "i" else None)


def magnitude(x: Any, axis: int = -1) -> Any:
    return np.sum(np.abs(x), axis)


def size(x: Any) -> Any:
    return np.abs(x) + np.abs(logsumexp(x))[..., None]


UNARY = (
    *(same(name, NUMBERS) for name in ("negative", "abs", "sign", "square")),
    Case("stop_gradient", ops.stop_gradient, np.positive, NUMBERS),
    *(same(name) for name in ("floor", "round", "sqrt")),
    *(same(name, ulps=4) for name in ("exp", "log", "sin", "cos")),
    same("tanh", ulps=8),
    Case("sigmoid", ops.sigmoid, sigmoid, ulps=8, tiny=True),
    Case("relu", ops.relu, lambda x: np.maximum(x, 0), zeros=True),
    Case("softplus", ops.softplus, lambda x: np.logaddexp(x, 0), ulps=8),
    Case("log_sigmoid", ops.log_sigmoid, lambda x: -np.logaddexp(-x, 0), ulps=8),
    *(
        Case(f"power {p}", partial(ops.power, exponent=p), partial(powers, exponent=p), ulps=4)
        for p in (-2, -1, -0.5, 0, 0.5, 1, 2, 2.5, 3)
    ),
    *(Case(f"cast to {t}", partial(ops.cast, dtype=t), partial(converted, dtype=t), ALL) for t in ALL),
    Case("clip", lambda x: ops.clip(x, -1, 2), lambda x: np.clip(x, -1, 2), NUMBERS),
    same("logical_not", BOOL),
)
BINARY = (
    *(same(name, NUMBERS) for name in ("add", "subtract", "multiply")),
    *(same(name) for name in ("divide", "floor_divide", "mod")),
    *(same(name, NUMBERS, zeros=True) for name in ("maximum", "minimum")),
    *(same(name, ALL) for name in ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")),
    Case("where", lambda a, b: ops.where(a < b, a, b), lambda a, b: np.where(a < b, a, b), ALL),
    *(same(name, BOOL) for name in ("logical_and", "logical_or")),
)
LINES = (  # along the last axis
    Case("sum", lambda x: ops.sum(x, -1), summed, NUMBERS, 8, magnitude),
    Case("mean", lambda x: ops.mean(x, -1), lambda x: np.mean(x, -1), FLOATS, 8, magnitude),
    Case("max", lambda x: ops.max(x, -1), lambda x: np.max(x, -1), NUMBERS, zeros=True),
    Case("min", lambda x: ops.min(x, -1), lambda x: np.min(x, -1), NUMBERS, zeros=True),
    Case("argmax", lambda x: ops.argmax(x, -1), lambda x: np.argmax(x, -1), NUMBERS),
    Case("topk", lambda x: ops.topk(x, 2)[0], lambda x: np.take_along_axis(x, greatest(x), -1), NUMBERS),
    Case("greatest", lambda x: ops.topk(x, 2)[1], lambda x: greatest(x), NUMBERS),
    Case("argsort", ops.argsort, lambda x: np.argsort(x, -1, kind="stable"), NUMBERS),
    Case("softmax", ops.softmax, softmax, ulps=16, tiny=True),
    Case("logsumexp", ops.logsumexp, logsumexp, ulps=8),
    Case("log_softmax", ops.log_softmax, log_softmax, FLOATS, 8, size, zeros=True),
    Case(
        "cross_entropy",
        lambda x: ops.cross_entropy(x, np.zeros(x.shape[:-1], "int32")),
        lambda x: -log_softmax(x)[..., 0],
        FLOATS,
        8,
        lambda x: size(x)[..., 0],
        zeros=True,
    ),
)
OF_ALL = partial(magnitude, axis=0)
SEQUENCES = (  # of a sequence's elements, along the first axis
    Case("segment_sum", ops.segment_sum, partial(summed, axis=0), NUMBERS, 8, OF_ALL, zeros=True),
    Case("segment_mean", ops.segment_mean, lambda x: np.mean(x, 0), FLOATS, 8, OF_ALL, zeros=True),
    Case("segment_max", ops.segment_max, lambda x: np.max(x, 0), NUMBERS, zeros=True),
    Case("segment_min", ops.segment_min, lambda x: np.min(x, 0), NUMBERS, zeros=True),
    Case(
        "segment_softmax",
        lambda x: ops.segment_max(ops.segment_softmax(x)),
        lambda x: softmax(x.T).max(-1),
        ulps=16,
    ),
    Case(
        "segment_log_softmax",
        lambda x: ops.gather(ops.segment_log_softmax(x), 1),
        lambda x: log_softmax(x.T)[..., 1],
        FLOATS,
        8,
        lambda x: size(x.T)[..., 1],
        zeros=True,
    ),
    Case("segment_logsumexp", ops.segment_logsumexp, lambda x: logsumexp(x.T), ulps=8),
)
PRODUCT = "a product, whose sums no engine orders as another does"
MOVES = "it moves what it is given"
ELSEWHERE = {
    **dict.fromkeys(("linear", "sum_outer", "matmul", "linear_by", "sum_outer_by"), PRODUCT),
    **dict.fromkeys(("reshape", "transpose", "slice", "flip", "pad", "concat", "broadcast_to"), MOVES),
    **dict.fromkeys(("batch", "repeat", "gather", "pick", "when_training"), MOVES),
    **dict.fromkeys(("segment_dot", "segment_mix", "segment_spread"), PRODUCT),
    **dict.fromkeys(("sum_batch", "sum_rows"), "only gradients have it, and it adds"),
    "segment_check": "what it refuses is tested in tests/static/ops/test_numpys.py",
    "order": "NumPy's argsort is compared in tests/static/ops/test_numpys.py, ties and NaN too",
    **dict.fromkeys(("one_hot", "random", "segment_position", "segment_is_max"), "NumPy has none"),
}


# A runtime of ONNX decides on signs of zeros, on the last digits of its functions, and on what is named here.
NAN_IN_ONNX = ("max", "min", "argmax", "segment_max", "segment_min")
SUMS_IN_ONNX = ("sum", "segment_sum")  # of integers, where they are too large


def differences(case: Case, found: Any, *operands: Any, engine: str) -> list[str]:
    """Return a line if a result is not what NumPy has, with the first operands of which it is not."""
    with np.errstate(all="ignore"):
        inexact = case.ulps and operands[0].dtype.kind == "f"
        right = case.numpys(*(x.astype(np.longdouble) if inexact else x for x in operands))
        right = right.astype(found.dtype) if inexact else right
        assert (found.shape, found.dtype) == (right.shape, right.dtype), case.name
        wrong = found != right
        if found.dtype.kind == "f":
            scale = np.abs(right) if case.scale is None else case.scale(*operands)
            unit = np.spacing(np.where(np.isfinite(scale), scale, 0)) * case.ulps
            unit += case.tiny * np.finfo(found.dtype).tiny
            unit += (engine == "onnx" and inexact) * 8 * np.finfo(found.dtype).eps
            wrong &= ~(np.abs(found - right) <= unit) & ~(np.isnan(found) & np.isnan(right))
            if not case.zeros and engine != "onnx":
                wrong |= (np.signbit(found) != np.signbit(right)) & (found == 0) & (right == 0)
        if engine == "onnx" and case.name in NAN_IN_ONNX:
            wrong &= ~np.isnan(operands[0]).any(0 if case in SEQUENCES else -1)
    if not wrong.any():
        return []
    at = np.unravel_index(np.argmax(wrong), wrong.shape)
    of = [x[:, *at] if case in SEQUENCES else x[at[0] if case in LINES else at] for x in operands]
    with np.printoptions(threshold=9, edgeitems=2):
        return [
            f"{case.name} of {', '.join(map(str, of))}: {found[at]}, right {right[at]}; {wrong.sum()} such"
        ]


def results(block: fb.Block, engine: str, examples: list[Any]) -> list[Any]:
    """Return what an engine makes of examples, or onnxruntime of an exported graph."""
    if engine != "onnx":
        with mock.patch.dict(ENGINES, unfused=("tests.engines.unfused", "llvmlite")):
            return list(fb.compile(block, engine, threads=1).run(examples))
    from foldbatch.exporting.exporter import Exporter, run, session_of  # noqa: PLC0415 - it needs onnxruntime

    exporter = Exporter(fb.compile(block, "numpy"))
    return list(run(exporter, session_of(exporter.proto().SerializeToString(), threads=1), examples))


def chosen(cases: tuple[Case, ...], dtype: str, engine: str) -> list[Case]:
    """Return the cases of operands of a dtype that bind an engine."""
    left_out: tuple[str, ...] = ()
    if engine == "reference":
        left_out = ("cast to float32",)  # it computes in float64
    if engine == "onnx" and dtype in WHOLE:
        left_out = SUMS_IN_ONNX
    return [case for case in cases if dtype in case.dtypes and case.name not in left_out]


def every(cases: list[Case]) -> fb.Function:
    return fb.Function(lambda *xs: tuple(case.ours(*xs) for case in cases))


def wrong(engine: str, dtype: str) -> Iterator[str]:
    """Yield what an engine computes otherwise than NumPy, of numbers of a dtype."""
    a, b = pairs(dtype)
    short, long = lines(dtype, SHORT), lines(dtype, LONG)
    for cases, operands in ((UNARY, (a,)), (BINARY, (a, b)), (LINES, (short,))):
        some = chosen(cases, dtype, engine)
        whole = fb.Record(tuple(fb.Tensor(x.shape, dtype) for x in operands)) >> every(some) if some else None
        for turn in (1, -1) if whole else ():  # another element of a vector takes each number in turn
            given = tuple(np.ascontiguousarray(x[::turn]) for x in operands)
            (found,) = results(whole, engine, [given])
            for case, value in zip(some, found, strict=True):
                yield from differences(case, np.asarray(value), *given, engine=engine)
    if some := chosen(LINES, dtype, engine):
        found = results(fb.Vector(LONG, dtype) >> every(some), engine, list(long))
        for i, case in enumerate(some):
            values = np.stack([np.asarray(row[i]) for row in found])
            yield from differences(case, values, long, engine=engine)
    if some := chosen(SEQUENCES, dtype, engine):
        elements = np.ascontiguousarray(short.T)
        sequence = fb.Map(fb.Vector(len(short), dtype)) >> every(some)
        (found,) = results(sequence, engine, [list(elements)])
        for case, value in zip(some, found, strict=True):
            yield from differences(case, np.asarray(value), elements, engine=engine)


NEEDED = {"onnx": "onnxruntime"}
ON_ALL = [
    *("numpy", "reference", "onnx"),
    *(pytest.param(name, marks=pytest.mark.llvm) for name in ("llvm", "unfused")),
    "cuda-on-ptx",  # the GPU's texts; those that gcc compiles are the same
]


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("engine", ON_ALL)
def test_numbers_at_the_edges_are_numpys(engine: str, dtype: str) -> None:
    if engine in NEEDED:
        pytest.importorskip(NEEDED[engine], reason=f"{NEEDED[engine]} is not installed")
    if missing := lacking(engine):
        pytest.skip(missing)
    if engine == "reference" and dtype == "float32":
        pytest.skip("the reference computes in float64")
    assert list(wrong(engine, dtype)) == []


def test_every_op_is_checked_at_the_edges_or_is_named_with_a_reason() -> None:
    x = input_node(TensorType((3,)))
    booleans, elements = input_node(TensorType((3,), "bool")), input_node(TensorType((3,)), ragged())
    found = {
        node.op.name
        for cases, operands in ((UNARY, 1), (BINARY, 2), (LINES, 1), (SEQUENCES, 1))
        for case in cases
        for node in reachable(
            (
                case.ours(
                    *[booleans if case.dtypes == BOOL else elements if cases is SEQUENCES else x] * operands
                ),
            )
        )
    }
    assert found | ELSEWHERE.keys() >= OPS.keys()
    assert ELSEWHERE.keys() <= OPS.keys()
