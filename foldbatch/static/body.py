"""The body of a kernel: its statements, with what they are made of, where they can be compiled as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foldbatch.params import Array
from foldbatch.static.backends.levels import Base
from foldbatch.static.graph import Node
from foldbatch.static.op import CALL, UNBATCHED, Axis
from foldbatch.types import TensorType


@dataclass(frozen=True, slots=True)
class Argument:
    """What the runtime passes to a kernel.

    Attributes:
        kind: operand, feed, cotangent, kept, store, parameter, scratch, rows, owner, starts or counts.
        key: what tells it from others of its kind: a number, a Parameter, a Slot or an Axis.
    """

    kind: str
    key: Any


@dataclass(frozen=True, slots=True)
class Body:
    """A kernel's statements, all of which may stand inside a loop over levels.

    Attributes:
        given: by the names of its arguments, what they are made of.
        lines: the statements.
        results: the expressions that it returns, and of what nodes they are.
    """

    given: tuple[tuple[str, Base], ...]
    lines: tuple[str, ...]
    results: tuple[tuple[str, Node], ...]


def body_of(
    arguments: Mapping[str, Argument],
    nodes: Mapping[Argument, Node],
    constants: Mapping[str, Array],
    lines: Sequence[str],
    results: Sequence[tuple[str, Node]],
) -> Body | None:
    """Return the body of a kernel; None where something in it runs along sequences' elements, or not by rows.

    Args:
        arguments: by name.
        nodes: what arguments hold, unless they are scratch, parameters or numbers of rows.
        constants: by name.
        lines: the statements, without the last one, which returns.
        results: expressions of what that returns, and of what nodes they are.
    """
    given = []
    for name, argument in arguments.items():
        if argument.kind == "rows":
            continue
        type_, axis = _type_of(argument, nodes)
        if axis not in (CALL, UNBATCHED):
            return None
        given.append((name, Base(argument.kind, argument.key, type_.shape, type_.dtype, axis is CALL)))
    if any(node.axis is not CALL for _, node in results):
        return None
    fixed = (
        (name, Base("constant", value, value.shape, value.dtype.name, batched=False))
        for name, value in constants.items()
    )
    return Body((*given, *fixed), tuple(lines), tuple(results))


def _type_of(argument: Argument, nodes: Mapping[Argument, Node]) -> tuple[TensorType, Axis]:
    match argument.kind:
        case "scratch":
            return argument.key.type, argument.key.axis
        case "parameter":
            return argument.key.type, UNBATCHED
        case _:
            return nodes[argument].type, nodes[argument].axis
