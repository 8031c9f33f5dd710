"""Eager mode: one example with real numbers, each op as it is called, so that print and pdb show them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from types import MappingProxyType
from typing import Any

import numpy as np

from foldbatch.functions import notes
from foldbatch.functions.cells import Cell, Signature, Slow, go_slow
from foldbatch.functions.learnt import with_own
from foldbatch.functions.specs import rebuilt
from foldbatch.functions.suspended import finished
from foldbatch.functions.values import Value, released, typed_class, value_class
from foldbatch.model.columns import BadDataError, column
from foldbatch.params.parameters import Parameter
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph
from foldbatch.static.passes.phase import in_phase
from foldbatch.types import TensorType


class Real(Value, gc=False, eq=False):
    """A value with its numbers, in eager mode.

    Attributes:
        array: the numbers.
    """

    array: Any

    def __repr__(self) -> str:
        return f"{self.array!r}"

    def _read(self, what: str) -> Any:
        return self.array

    def __await__(self) -> Generator[Value, Any, Value]:
        """Return the value: its numbers are there."""
        return self
        yield self


@cache
def _real_class(type_: TensorType) -> Any:
    return typed_class(f"Real[{type_}]", (Real, value_class(type_)), {"several": True})


@dataclass(slots=True)
class Seen:
    """What one example yields in eager mode.

    Attributes:
        result: what the walk returned, with arrays in the place of values.
        loss: the sum of all losses.
        losses: by name.
        metrics: by name, the values in the order of calls, each with its label.
    """

    result: Any = None
    losses: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, list[tuple[Any, Any]]] = field(default_factory=dict)

    @property
    def loss(self) -> float:
        """The sum of all losses."""
        return sum(self.losses.values())


class _Eager:
    seen: Seen
    dtype: str | None = None
    key: int = 0
    begin: Callable[[Parameter], None]
    own: Mapping[Parameter, Parameter]


def run(
    walk: Callable[[Any], Any],
    example: Any,
    dtype: str | None = None,
    begin: Callable[[Parameter], None] = lambda _: None,
    own: Mapping[Parameter, Parameter] = MappingProxyType({}),
) -> Seen:
    """Run a walk on one example, with real numbers.

    Args:
        walk: the user's function.
        example: what it is given.
        dtype: the precision of floats; None for that of each tensor.
        begin: is given each parameter before it is read.
        own: others that are read in the place of some.

    Raises:
        ExampleError: when a datum is not what its cell reads.
    """
    with _mode(dtype, begin, own) as seen:
        known = notes.note(lambda x: finished(partial(walk, x)), [example], [0], [], 1 << 60)
        seen.result = _arrays(known.results[0])
    return seen


@contextmanager
def _mode(
    dtype: str | None, begin: Callable[[Parameter], None], own: Mapping[Parameter, Parameter]
) -> Iterator[Seen]:
    with notes.LOCK:
        first, _Eager.seen, _Eager.dtype, _Eager.key = Slow.call, Seen(), dtype, 0
        Slow.call, _Eager.begin, _Eager.own = _call, staticmethod(begin), own
        go_slow(on=True)
        try:
            yield _Eager.seen
        finally:
            go_slow(on=False)
            Slow.call = first


def _arrays(x: Any) -> Any:
    match x:
        case Real():
            return x.array
        case tuple() if hasattr(x, "_fields"):
            return type(x)(*map(_arrays, x))
        case tuple() | list():
            return type(x)(map(_arrays, x))
        case dict():
            return {key: _arrays(item) for key, item in x.items()}
    return x


def _call(cell: Cell, arguments: dict[str, Any]) -> Any:
    known = len(cell.signatures)
    signature = cell.find(arguments)
    if len(cell.signatures) > known:
        notes.unbind(signature)  # a batch may call it next
    for parameter in signature.parameters():
        _Eager.begin(_Eager.own.get(parameter, parameter))
    given = _inputs(signature, arguments)
    draft = signature.draft
    ends = [*signature.outputs, *(n for _, n in draft.losses), *(n for _, n in draft.metrics)]
    ends = with_own(ends, _Eager.own)
    nodes, values = [*given], [*given.values()]
    graph = in_phase(Graph(tuple(nodes), tuple(ends)), training=False)
    found = iter(evaluate(graph, values, _Eager.dtype))
    made = [_real(next(found), node.type) for node in signature.outputs]
    for name, _ in draft.losses:
        _Eager.seen.losses[name] = _Eager.seen.losses.get(name, 0.0) + float(next(found))
    labels = dict(zip(draft.labels, signature.labels, strict=True))
    for number, (name, _) in enumerate(draft.metrics):
        label = _at(arguments, labels[number]) if number in labels else None
        seen = np.asarray(next(found)), released(label)
        _Eager.seen.metrics.setdefault(name, []).append(seen)
    held = [made[leaf] if isinstance(leaf, int) else _at(arguments, leaf) for leaf in signature.leaves]
    return rebuilt(signature.result, iter(held))


def _real(array: Any, type_: TensorType) -> Value:
    made: Value = _real_class(type_)(-1, np.asarray(array))
    return made


def _at(arguments: dict[str, Any], path: str) -> Any:
    """Return the part of the arguments that a path such as ``left[0].h`` names."""
    return eval(path, {"None": None}, arguments)  # noqa: S307 - the path is our own


def _inputs(signature: Signature, arguments: dict[str, Any]) -> dict[Any, Any]:
    given: dict[Any, Any] = {}
    for path, node in signature.operands:
        given[node] = _at(arguments, path).array
    for path, _, members in signature.sequences:
        elements = _at(arguments, path)
        for inner, node in members:
            given[node] = [_at({"x": x}, f"x{inner}").array for x in elements]
    for (path, node, feed), bound in zip(signature.feeds, signature.bounds, strict=True):
        if not path:
            _Eager.key += 1  # another one for each call
            given[node] = np.int64(_Eager.key)
            continue
        try:
            given[node] = column([_at(arguments, path)], feed.type, bound, feed.declared)[0]
        except BadDataError as error:
            raise error.kind(feed.where, error.expected, error.found, error.fix) from None
    return given
