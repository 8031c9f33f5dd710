"""Routines as text: the arrays they work on, a line for each statement, and their results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from math import prod

from foldbatch.params.parameters import Parameter
from foldbatch.static.graph import Node
from foldbatch.static.loops import FusedLoop, Sweep
from foldbatch.static.places import Place
from foldbatch.static.printer import attributes, constant_name, parameter_name, unlike
from foldbatch.static.statements import Routine, Slot, Statement

Names = Mapping[Parameter, str]

_LETTERS = {
    "operand": "x",
    "cotangent": "g",
    "feed": "f",
    "kept": "k",
    "store": "d",
    "scratch": "s",
    "segments": "offsets",
}
_RESULTS = {"value": "output {}", "cotangent": "cotangent of x{}", "feed": "gradient of f{}"}


def print_routine(routine: Routine, parameters: Names | None = None) -> str:
    """Return a routine as text: its name and slots, then the lines of `print_statements`.

    Args:
        routine: what is printed.
        parameters: the names of parameters; by default, their own.

    >>> from foldbatch.static import ops
    >>> from foldbatch.static.cell import stage_cell
    >>> from foldbatch.static.cellgraph import CellGraph, Ends
    >>> from foldbatch.static.graph import input_node
    >>> from foldbatch.static.routines import Target, routine_of
    >>> from foldbatch.types import TensorType
    >>> x = input_node(TensorType((6,)))
    >>> cell = stage_cell(CellGraph("c", (x,), (), (ops.tanh(x[2:]) * 2,)), Ends())
    >>> print(print_routine(routine_of(cell.training.forward["before"], Target())))
    forward_before(x0: N float32[6], s0: N float32[4], s1: N float32[4])
    s0 = tanh(x0[2:6])
    s1 = multiply(s0, 2.0)
    return (output 0: s1)
    """
    named = zip(slot_names(routine, parameters), routine.slots, strict=True)
    slots = [f"{name}: {slot.axis} {slot.type}" for name, slot in named if slot.binding.kind != "constant"]
    return "\n".join([f"{routine.name}({', '.join(slots)})", *print_statements(routine, parameters)])


def print_statements(routine: Routine, parameters: Names | None = None) -> list[str]:
    """Return a line for each statement of a routine, and one for its results; a fused loop has several.

    Slots have the names of `slot_names`. Where a place is not the whole slot, the line shows the elements of
    a row: ``k2[0:4]`` a range, ``x0 as [4]`` another shape, ``w.T`` a transpose, and in all other cases
    ``w at 2 + 4i + j as [3,2]``: the number of element ``[i, j]`` in the row.
    """
    slots = list(zip(slot_names(routine, parameters), routine.slots, strict=True))
    lines = [line for statement in routine.statements for line in _statement(statement, slots)]
    results = (f"{result_name(key, parameters)}: {_place(place, slots)}" for key, place in routine.results)
    return [*lines, f"return ({', '.join(results)})"]


def slot_names(routine: Routine, parameters: Names | None = None) -> list[str]:
    """Return the name of each slot of a routine: a letter for its kind of memory, and its number.

    ``x`` is an operand, ``g`` the cotangent of an output, ``f`` data of the examples, ``k`` a kept buffer,
    ``d`` the cotangents of an operand, ``s`` scratch, in the order of use, and ``offsets`` the starts of
    sequences. Parameters have their names, and constants are written out.
    """
    names: list[str] = []
    scratch = count()
    for slot in routine.slots:
        kind, key = slot.binding
        if kind == "constant":
            names.append(constant_name(key))
        elif kind == "parameter":
            names.append(unlike(_parameter(key, parameters), names))
        else:
            names.append(f"{_LETTERS[kind]}{next(scratch) if kind == 'scratch' else key}")
    return names


def result_name(result: tuple[str, object], parameters: Names | None = None) -> str:
    """Return what a result is, in words.

    >>> result_name(("value", 0)), result_name(("cotangent", 1)), result_name(("loss", 0))
    ('output 0', 'cotangent of x1', 'loss 0')
    """
    kind, key = result
    if isinstance(key, Parameter):
        return f"gradient of {_parameter(key, parameters)}"
    return _RESULTS.get(kind, f"{kind} {{}}").format(key)


def _parameter(parameter: Parameter, parameters: Names | None) -> str:
    return (parameters or {}).get(parameter, parameter_name(parameter))


# -- statements


_Slots = Sequence[tuple[str, Slot]]  # with their names


def _statement(statement: Statement, slots: _Slots) -> Iterator[str]:
    if statement.loop is not None:
        yield from _loop(statement, statement.loop, slots)
        return
    reads = [_place(place, slots) for place in statement.reads]
    call = f"{statement.op}({', '.join([*reads, *attributes(statement.attrs)])})"
    yield f"{_place(statement.write, slots)} = {call}" if statement.write else call


def _loop(statement: Statement, loop: FusedLoop, slots: _Slots) -> Iterator[str]:
    """Yield a line for each operation of a fused loop; operations of one shape stand together."""
    yield f"loop along {statement.axis}"
    for sweep in loop.sweeps:
        yield f"  over {_brackets(sweep.shape)}"
        for line in _sweep(sweep, [slots[number] for number in statement.slots]):
            yield f"    {line}"


def _sweep(sweep: Sweep, buffers: _Slots) -> Iterator[str]:
    names = [
        _elements(*buffers[place.buffer], place.offset, sweep.shape, place.strides) for place in sweep.loads
    ]
    read = {x for operation in sweep.operations for x in operation.operands}
    for i, operation in enumerate(sweep.operations):
        number = len(sweep.loads) + i
        operands = [
            constant_name(x.attrs["value"]) if isinstance(x, Node) else names[x] for x in operation.operands
        ]
        arguments = [*operands, *attributes(operation.node.attrs)]
        targets = [
            _elements(*buffers[place.buffer], place.offset, sweep.shape, place.strides)
            for value, place in sweep.stores
            if value == number
        ]
        if number in read:
            targets.append(f"v{i}")
        names.append(f"v{i}")
        yield " = ".join([*targets, f"{operation.node.op.name}({', '.join(arguments)})"])


# -- places


def _place(place: Place, slots: _Slots) -> str:
    return _elements(*slots[place.slot], place.offset, place.shape, place.strides)


def _elements(name: str, slot: Slot, offset: int, shape: Sequence[int], strides: Sequence[int]) -> str:
    """Return elements of a row of a slot, as text."""
    size = prod(shape)
    if _lie_in_order(shape, strides):
        if size != slot.type.size:
            flat = name if len(slot.type.shape) == 1 else f"{name} as [{slot.type.size}]"
            part = f"{flat}[{offset}:{offset + size}]"
            return part if len(shape) == 1 else f"{part} as {_brackets(shape)}"
        return name if tuple(shape) == slot.type.shape else f"{name} as {_brackets(shape)}"
    if tuple(shape) == slot.type.shape[::-1] and _lie_in_order(shape[::-1], strides[::-1]):
        return f"{name}.T"
    terms = [str(offset)] if offset else []
    terms += [
        letter if stride == 1 else f"{stride}{letter}"
        for letter, stride in zip("ijklmnop", strides, strict=False)
        if stride
    ]
    return f"{name} at {' + '.join(terms) or 0} as {_brackets(shape)}"


def _lie_in_order(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements follow each other without gaps, the last axis fastest."""
    axes = [(extent, stride) for extent, stride in zip(shape, strides, strict=True) if extent != 1]
    return all(stride == prod(extent for extent, _ in axes[i + 1 :]) for i, (_, stride) in enumerate(axes))


def _brackets(shape: Sequence[int]) -> str:
    return f"[{','.join(map(str, shape))}]"
