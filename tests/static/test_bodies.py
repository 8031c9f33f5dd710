"""Bodies say what `evaluate` computes: read here word by word, beside the renderers of the engines."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from foldbatch.static.bodies import applied, called, lines_of
from foldbatch.static.op import OPS, Op
from foldbatch.static.routines import ON_SEQUENCES

EDGES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -3.0, 2.5, 1e300, 5e-324]
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(np, name)
        for name in "abs copysign cos exp floor fmod log log1p rint sin sqrt tanh".split()
    },
    "pow": np.power,
    "sigmoid": lambda x: OPS["sigmoid"].evaluate({}, x),
    "f8": np.float64,
}
SIGNS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.BitOr: np.logical_or,
    ast.BitAnd: np.logical_and,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return what an expression of a body is."""
    match node:
        case ast.Constant(value=number):
            return number
        case ast.Name() | ast.Subscript() if ast.unparse(node) in names:
            return names[ast.unparse(node)]
        case ast.Subscript(value=ast.Name(id=name), slice=at):
            return names[name][value(at, names)]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -value(inner, names)
        case (
            ast.BinOp(left=left, op=sign, right=right)
            | ast.Compare(left=left, ops=[sign], comparators=[right])
        ):
            return SIGNS[type(sign)](value(left, names), value(right, names))
        case ast.IfExp(test=test, body=body, orelse=otherwise):
            return value(body if value(test, names) else otherwise, names)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return (names | FUNCTIONS)[name](*(value(argument, names) for argument in arguments))
    raise AssertionError(ast.unparse(node))


def elementwise(op: Op, attrs: Mapping[str, Any], *xs: Any) -> Any:
    names: dict[str, Any] = dict(attrs) | {f"x{i}": x for i, x in enumerate(xs)}
    names["t"] = lambda x: OPS["cast"].evaluate({"dtype": attrs.get("dtype", "float64")}, x)
    *before, last = applied(op.body, len(xs))
    for line in before:
        assert isinstance(line, ast.Assign)
        names[ast.unparse(line.targets[0])] = value(line.value, names)
    assert isinstance(last, ast.Expr)
    return value(last.value, names)


def along(body: str, x: np.ndarray, label: Any, y: np.ndarray) -> np.ndarray:
    """Return `y` with what a body makes of a line."""
    names: dict[str, Any] = {"x": x, "y": y, "label": label, "t": y.dtype.type}
    length = len(y) if "y[" in body else len(x)
    for line in lines_of(body):
        assert isinstance(line, ast.Assign)
        target = ast.unparse(line.targets[0]).strip("()").split(", ")
        match line.value, target:
            case ast.Call(func=ast.Name(id="sum"), args=[inner]), [name]:
                names[name] = sum(
                    (np.float64(value(inner, names | {"k": k})) for k in range(length)), np.float64(0)
                )
            case ast.Call(func=ast.Name(id="greatest" | "first" as which), args=[inner]), [*at, name]:
                found = np.array([value(inner, names | {"k": k}) for k in range(length)])
                top = np.max(found) if length else 0
                equal = np.flatnonzero(np.isnan(found) if np.isnan(top) else found == top)
                if length and which == "greatest" and np.isnan(top):
                    equal = equal[-1:]  # a NaN comes after all
                names |= {name: top} | dict.fromkeys(
                    at, equal[0 if which == "first" else -1] if length else 0
                )
            case e, ["y[k]"]:
                y[...] = [value(e, names | {"k": k}) for k in range(length)]
            case e, ["y[label]"]:
                y[[k for k in range(length) if k == label]] = value(e, names)
            case e, ["y"]:
                y[...] = value(e, names)
            case e, [name]:
                names[name] = value(e, names)
    return y


def test_what_an_op_makes_of_an_element_is_what_it_evaluates() -> None:
    """NaN, infinities and both zeros among them."""
    for name in [op.name for op in OPS.values() if op.elementwise]:
        op = OPS[name]
        with np.errstate(all="ignore"):
            for a in EDGES:
                for b in EDGES if len(op.samples[0].types) > 1 else [0.0]:
                    xs: list[Any] = [np.float64(x) for x in (a, b, a)]
                    if name == "where":
                        xs[0] = np.bool_(a > b)
                    xs = xs[: len(op.samples[0].types)]
                    for attrs in {str(sample.attrs): sample.attrs for sample in op.samples}.values():
                        found, right = elementwise(op, attrs, *xs), op.evaluate(attrs, *xs)
                        np.testing.assert_allclose(
                            found, right, rtol=1e-13, atol=1e-300, err_msg=f"{name} of {xs}"
                        )


def test_more_operands_are_added_from_the_left() -> None:
    xs = [np.float32(x) for x in (1e8, 1.0, -1e8, 3.0)]
    assert elementwise(OPS["add"], {}, *xs) == ((xs[0] + xs[1]) + xs[2]) + xs[3]
    assert elementwise(OPS["add"], {}, xs[0]) == xs[0]


LINES = [
    np.array([1.0, 3.0, 2.0, 3.0]),
    np.array([2.0, np.nan, 5.0]),
    np.array([np.inf, 1.0, np.inf]),
    np.array([-np.inf, -1e4]),
    np.array([7.0]),
]


def test_what_an_op_makes_of_a_line_is_what_it_evaluates() -> None:
    for name in [op.name for op in OPS.values() if op.body and not op.elementwise]:
        op = OPS[name]
        for x in [*LINES, *[np.zeros(0)] * (name in ON_SEQUENCES)]:
            attrs, operands, label = {"axis": 0}, [x], 0
            if name in ("repeat", "segment_sum"):  # one instance sees no sequence
                right = np.full(len(x), 3.0) if name == "repeat" else np.sum(x)
                operands = [np.float64(3.0)] if name == "repeat" else operands
            else:
                if name == "one_hot":
                    attrs, operands, label = (
                        {"size": len(x), "dtype": "float64"},
                        [np.int64(len(x) - 1)],
                        len(x) - 1,
                    )
                elif name == "cross_entropy":
                    attrs, operands, label = {}, [x, np.array(len(x) - 1)], len(x) - 1
                with np.errstate(all="ignore"):
                    right = np.asarray(op.evaluate(attrs, *operands))
            with np.errstate(all="ignore"):
                found = along(op.body, operands[0], label, np.full_like(right, 9))
            np.testing.assert_allclose(found, right, rtol=1e-13, err_msg=name)


def test_functions_are_those_that_the_language_has() -> None:
    used = frozenset[str]().union(*(called(op.body) for op in OPS.values() if op.body))
    assert used - {"sum", "greatest", "first"} <= FUNCTIONS.keys()
