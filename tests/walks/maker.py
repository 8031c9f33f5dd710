"""What random walks are made of: parts, the types that they yield, and cells.

A part of a walk is a plain function of an object of the example, and of values that are *given* to it; with it comes a way
to draw such objects. All floats are float64 or read exactly, all functions smooth and tame.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import foldbatch as fb
from foldbatch.types import TensorType, TupleType
from tests.programs.expressions import STEPS, Expression
from tests.programs.maker import Maker
from tests.programs.recipes import FLOAT, PAIR, SCALAR, TENSORS, Data, Source
from tests.walks.exact import cell, loss, metric, nest_of, parts_of


class Named(NamedTuple):
    h: Any
    c: Any


@dataclass
class State:
    h: Any
    c: Any


KINDS: tuple[Any, ...] = (tuple, dict, State, Named)
STATICS: tuple[Any, ...] = (0, 1, True, 1.0, "a", None, (1, "b"), (True, "b"), int)
LABELS: tuple[Any, ...] = ("text", b"bytes", frozenset([1]), range(3))


class Nest(NamedTuple):
    """The type of a structure of tensors."""

    kind: Any
    items: tuple[TensorType, ...]

    def made(self, items: Sequence[Any]) -> Any:
        return nest_of(self.kind, ("h", "c", "x")[: len(items)], list(items))


class Deep(NamedTuple):
    """The type of a structure of tensors and of structures of them, as lists may hold: it is read, and no result."""

    kind: Any
    items: tuple[Any, ...]

    def made(self, items: Sequence[Any]) -> Any:
        return nest_of(self.kind, ("h", "c", "x")[: len(items)], list(items))


class Many(NamedTuple):
    element: Any


class Number(NamedTuple):
    """What a cell reads of the example: how it is annotated, and what the data are."""

    hint: str | None
    draw: Callable[[Source], Any]


class Part(NamedTuple):
    """A part of a walk, and a way to draw objects for it."""

    run: Callable[..., Any]
    data: Data


Given = tuple[Any, ...]


def flat(x: Any) -> list[Any]:
    """Return the tensors of a structure, floats of float64."""
    if x is None:
        return []
    opened = parts_of(tuple(x) if isinstance(x, list) else x)
    if opened is not None:
        return [node for item in opened[2] for node in flat(item)]
    if not hasattr(x, "dtype"):  # an object
        return []
    return [x if x.dtype == FLOAT else fb.ops.cast(x, FLOAT)]


class Walks(Maker):
    def part(self, type_: Any, depth: int, given: Given = ()) -> Part:
        self.left -= 1
        choices: Any = self.ways[type(type_)]  # type: ignore[index]
        if depth <= 0 or self.left <= 0:
            return choices[0](self, type_, 0, given)
        made: Part = self.one_of(choices)(self, type_, depth - 1, given)
        if not self.declared:
            self.made.append((type_, given, made))  # type: ignore[arg-type]
        return made

    def several(self, types: Sequence[Any], depth: int, given: Given) -> tuple[list[Part], Data]:
        parts = [self.part(type_, depth, given) for type_ in types]
        return parts, lambda source, depth: [part.data(source, depth) for part in parts]

    def out(self) -> Any:
        return self.nest() if self.number(4) == 3 else self.one_of(TENSORS)

    def nest(self) -> Nest:
        kind = self.one_of(KINDS)
        count = 2 if kind in (State, Named) else 1 + self.number(3)
        return Nest(kind, tuple([self.one_of(TENSORS) for _ in range(count)]))

    def deep(self) -> Deep:
        """Return the type of a structure in which others stand, also of one item."""
        inner = Nest(tuple, (self.one_of(TENSORS),) * (1 + self.number(2))) if self.number(2) else self.nest()
        kind = self.one_of(KINDS)
        return Deep(
            kind, (self.one_of(TENSORS), inner) if kind in (State, Named) or self.number(2) else (inner,)
        )

    def operand(self, depth: int) -> Any:
        """Return a type that a cell can read."""
        match self.number(6) if depth > 0 else 0:
            case 3:
                return self.nest()
            case 4:
                return Many(self.one_of(TENSORS))
            case 5 if self.number(2):
                return Many(self.deep())
            case 5:
                return Many(Nest(self.one_of(KINDS), (PAIR, self.one_of(TENSORS))))
        return self.one_of(TENSORS)

    def expression(self, out: Any, free: bool = True) -> Callable[..., Any]:
        items = out.items if isinstance(out, Nest) else (out,)
        steps = [(self.number(len(STEPS)), self.number(8), self.number(8)) for _ in range(self.number(6))]
        owned = [self.free((2,))] if free and self.number(2) else []
        made = Expression(steps, [self.number(4) for _ in items], TupleType(items), owned)

        def compute(*xs: Any) -> Any:
            found = made(*flat(xs))
            return out.made(found) if isinstance(out, Nest) else found[0]

        return compute

    def cell(self, types: Sequence[Any], out: Any, *, static: bool = False, label: bool = False) -> Any:
        """Return a cell of values, data and perhaps a label, that yields a type."""
        count = len(types) + label
        ways = {kept(kind): self.expression(out) for kind in (STATICS if static else (None,))}
        passes = isinstance(out, Nest) and self.number(3) == 0
        side, name = self.number(8), self.one_of(["inner", "other"])
        scalar, weight = self.expression(SCALAR), self.one_of([1.0, 0.5, -2.0])

        def compute(xs: tuple[Any, ...], kind: Any = None) -> Any:
            made = ways[kept(kind)](*xs[: len(types)])
            if side == 0:
                loss(scalar(made), name, weight)
            elif side == 1 or label:
                metric(name, scalar(made), xs[-1] if label else None)
            if passes:
                own = parts_of(made)
                same = [x for x in flat(xs[: len(types)]) if x.type == out.items[0] and x.axis.rank < 2]
                return out.made([*same[:1], *own[2][1:]] if same else own[2])  # type: ignore[index]
            return made

        body = function_of(count, compute, static)
        body.__annotations__ = {
            f"x{i}": hint
            for i, type_ in enumerate(types)
            if (hint := _hint(type_, self.number(2))) is not None
        }
        return cell(body)

    def number_read(self) -> Number:
        """Return what a cell may read of the example."""
        shape = self.one_of([(), (2,), (3,)])
        dtype = self.one_of(["float64", "float32", "int32", "int64", "uint8", "bool", "int8"])
        match self.number(6):
            case 0:
                return Number(None, lambda source: source.number(8) / 8)  # float32
            case 1:
                return Number(None, lambda source: source.number(5))
            case 2:
                return Number("float64", lambda source: source.number(5) / [1, 8][source.number(2)])
            case 3:
                return Number("float64[2]", lambda source: source.floats((2,)))
            case 4:
                return Number(None, lambda source: bool(source.number(2)))
        return Number(None, lambda source: (source.rng.integers(0, 16, shape) / 8).astype(dtype))


def kept(kind: Any) -> str:
    return repr(kind)


def function_of(count: int, compute: Callable[..., Any], static: bool) -> Any:
    """Return a function of so many arguments, and of a static one."""
    names = [f"x{i}" for i in range(count)]
    header, passed = ", ".join(names), ", ".join([*names, ""])
    more = (", *, kind" if names else "*, kind") if static else ""
    text = f"def body({header}{more}):\n    return compute(({passed.strip()}){', kind' if static else ''})"
    scope: dict[str, Any] = {"compute": compute}
    exec(text, scope)
    return scope["body"]


def _hint(type_: Any, way: int) -> Any:
    match type_:
        case Number():
            return type_.hint
        case Many(TensorType()):
            return list[_text(type_.element)] if way else list[type_.element]  # type: ignore[name-defined]
        case Many(Nest(kind) | Deep(kind)) if kind is tuple:
            inner = _text(type_.element)
            return None if inner is None else list[inner]
    return None


def _text(type_: Any) -> Any:
    """Return the annotation of a tensor or of tuples of them; None of other structures."""
    if isinstance(type_, Nest | Deep):
        items = tuple(map(_text, type_.items))
        return tuple[items] if type_.kind is tuple and None not in items else None  # type: ignore[valid-type]
    return f"{type_.dtype}[{', '.join(map(str, type_.shape))}]" if type_.shape else type_.dtype


def nothing(source: Source, depth: int) -> Any:
    return None
