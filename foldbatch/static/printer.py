"""Graphs and routines as text: a line a node or statement, for people, error messages and golden tests."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, count
from math import prod

import numpy as np

from foldbatch.params.parameters import Array, Parameter
from foldbatch.static.graph import CONSTANT, INPUT, PARAMETER, SOURCES, Graph, Node
from foldbatch.static.op import Axis
from foldbatch.static.places import Place
from foldbatch.static.statements import Element, FusedLoop, Routine, Slot, Statement, Sweep

_SHORT = 8  # elements of a constant that are written out


def print_graph(graph: Graph, names: Mapping[Node, str] | None = None) -> str:
    """Return the graph as text: its inputs, a line for every other node, and its outputs.

    Without `names`, nodes are called ``%0 ...`` from the inputs on. The order of lines and the names follow
    from the graph alone, not from what was built before.

    With `names` there are lines for ops only, in the order in which kernels compute them, as the names of
    parameters and constants speak for themselves.
    """
    if names is None:
        nodes = in_order_of_reading(graph)
        names = {node: f"%{i}" for i, node in enumerate(dict.fromkeys((*graph.inputs, *nodes)))}
    else:
        nodes = [node for node in graph.nodes if node.op not in SOURCES]
    header = ", ".join(f"{names[node]}: {node.axis} {node.type}" for node in graph.inputs)
    lines = [f"({header})"]
    lines += [f"{names[node]}: {node.axis} {node.type} = {expression(node, names)}" for node in nodes]
    lines.append(f"return ({', '.join(names[node] for node in graph.outputs)})")
    return "\n".join(lines)


def in_order_of_reading(graph: Graph) -> list[Node]:
    """Return the graph's nodes, each after its operands, from the first output to the last."""
    printed = set(graph.inputs)
    nodes: list[Node] = []
    stack = list(reversed(graph.outputs))
    while stack:
        node = stack[-1]
        waiting = [x for x in node.inputs if x not in printed] if node not in printed else []
        stack.extend(reversed(waiting))
        if not waiting:
            stack.pop()
            if node not in printed:
                printed.add(node)
                nodes.append(node)
    return nodes


def graph_form(graph: Graph, *, values: bool = True, names: bool = True) -> list[object]:
    """Return a graph as plain data, which are equal for equal graphs of every process.

    Parameters are told apart by their places and types, and inputs are inputs, whatever has computed them.
    Without `values`, the numbers that constants hold do
    not count, nor the sites where random numbers are drawn; without `names`, the names of parameters do not.
    """
    places = {node: i for i, node in enumerate(dict.fromkeys((*graph.inputs, *in_order_of_reading(graph))))}
    inputs = set(graph.inputs)

    def attribute(value: object) -> object:
        if isinstance(value, np.ndarray):
            return (value.dtype.str, value.shape, value.tobytes().hex()) if values else None
        if isinstance(value, Parameter):
            return value.name if names else None
        return value.name if isinstance(value, Axis) else value

    def described(node: Node) -> list[object]:
        """Return a node as plain data: its op, type, axis and attributes, and the numbers of its inputs."""
        if node in inputs:
            return [INPUT.name, str(node.type), node.axis.name, [], []]
        attributes = [(n, attribute(x)) for n, x in sorted(node.attrs.items()) if values or n != "site"]
        read = [places[x] for x in node.inputs]
        return [node.op.name, str(node.type), node.axis.name, attributes, read]

    return [[described(node) for node in places], [places[node] for node in graph.outputs]]


def expression(node: Node, names: Mapping[Node, str]) -> str:
    """Return a node as text: a call of its op on nodes that have `names`, a parameter, or a constant."""
    if node.op is PARAMETER:
        return f"parameter {parameter_name(node.attrs['parameter'])}"
    if node.op is CONSTANT:
        return f"constant {constant_name(node.attrs['value']).removeprefix('constant ')}"
    arguments = [*(names[x] for x in node.inputs), *attributes(node.attrs)]
    return f"{node.op.name}({', '.join(arguments)})"


def attributes(attrs: Mapping[str, object]) -> list[str]:
    """Return an op's static arguments as they are written, in the order of their names."""
    return [
        f"{name}={value.name if isinstance(value, Axis) else value}" for name, value in sorted(attrs.items())
    ]


def parameter_name(parameter: Parameter) -> str:
    owner = f"{parameter.owner.name}." if parameter.owner else ""
    return owner + parameter.name


def unlike(name: str, taken: Collection[str]) -> str:
    """Return a name, with a number where it is taken: parameters may well be called alike.

    >>> unlike("w", ("v",)), unlike("w", ("v", "w", "w_1"))
    ('w', 'w_2')
    """
    choices = chain([name], (f"{name}_{number}" for number in count(1)))
    return next(choice for choice in choices if choice not in taken)


def constant_name(value: Array) -> str:
    """Return a small constant as a list, a large one as its shape and the number that fills it.

    >>> constant_name(np.array([1.5, 2.0])), constant_name(np.zeros((3, 3)))
    ('[1.5, 2.0]', 'constant of shape (3, 3) filled with 0.0')
    """
    if value.size <= _SHORT:
        return str(value.tolist())
    first = value.flat[0]
    filled = f" filled with {first.item()}" if (value == first).all() else ""
    return f"constant of shape {value.shape}{filled}"


Names = Mapping[Parameter, str]

_LETTERS = {"operand": "x", "cotangent": "g", "feed": "f", "kept": "k", "store": "d", "scratch": "s"}
_LETTERS["segments"] = "offsets"
_RESULTS = {"value": "output {}", "cotangent": "cotangent of x{}", "feed": "gradient of f{}"}


def print_routine(routine: Routine) -> str:
    """Return a routine as text: its name and slots, then the lines of `print_statements`."""
    named = zip(slot_names(routine), routine.slots, strict=True)
    slots = [f"{name}: {slot.axis} {slot.type}" for name, slot in named if slot.binding.kind != "constant"]
    return "\n".join([f"{routine.name}({', '.join(slots)})", *print_statements(routine)])


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
    """Return a result's name in words.

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
    """Yield the lines of a statement."""
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
    """Yield a line for each operation of a sweep, with the elements that it reads and writes."""

    def shown(place: Element) -> str:
        return _elements(*buffers[place.buffer], place.offset, sweep.shape, place.strides)

    names = [*map(shown, sweep.loads)]
    read = {x for operation in sweep.operations for x in operation.operands}
    for i, operation in enumerate(sweep.operations):
        number = len(sweep.loads) + i
        operands = [
            constant_name(x.attrs["value"]) if isinstance(x, Node) else names[x] for x in operation.operands
        ]
        arguments = [*operands, *attributes(operation.node.attrs)]
        targets = [shown(place) for value, place in sweep.stores if value == number]
        if number in read:
            targets.append(f"v{i}")
        names.append(f"v{i}")
        yield " = ".join([*targets, f"{operation.node.op.name}({', '.join(arguments)})"])


# -- places


def _place(place: Place, slots: _Slots) -> str:
    return _elements(*slots[place.slot], place.offset, place.shape, place.strides)


def _elements(name: str, slot: Slot, offset: int, shape: Sequence[int], strides: Sequence[int]) -> str:
    """Return the text of a place: a slot's name, and which of its elements, as `print_statements` says."""
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
