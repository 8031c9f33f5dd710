"""A model as plain data, and back: dicts, lists, strings and numbers that JSON, say, can hold.

The data hold the meaning of the model: its cells' graphs before all passes, how they are connected, and
where gradients flow. Reading them stages the cells anew, so a model written by one version gains by the
passes of a later one. The values of parameters are not part of a model; how they are drawn is.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foldbatch.errors import ModelError
from foldbatch.model.drafts import Feed
from foldbatch.model.model import Model, differentiated
from foldbatch.params import Array, Owner, Parameter
from foldbatch.scheduler.trace import CellSignature, Operand
from foldbatch.static.cell import Cell, stage_cell
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import (
    CONSTANT,
    INPUT,
    PARAMETER,
    SOURCES,
    Node,
    apply,
    constant,
    input_node,
    parameter_node,
    reachable,
)
from foldbatch.static.op import CALL, UNBATCHED, Axis, ragged
from foldbatch.static.ops.random import KEY
from foldbatch.types import (
    OBJECT,
    VOID,
    BroadcastType,
    ObjectType,
    SequenceType,
    TensorType,
    TupleType,
    Type,
    VoidType,
)

FORMAT, VERSION = "foldbatch model", 1

Plain = dict[str, Any]
_PARTS = ("operands", "feeds", "outputs", "losses", "metrics")
_ENDS = ("recursive_operands", "recursive_outputs", "active_operands", "active_outputs", "active_feeds")


def to_plain(model: Model, *, drawn: bool = True) -> Plain:
    """Return a model as plain data, with the number of its version.

    Args:
        model: the model.
        drawn: whether the data say how parameters are drawn.

    Raises:
        ModelError: when a parameter is drawn by a Python function, which has no text.

    >>> import foldbatch as fb
    >>> model = fb.compile(fb.Scalar() >> fb.Function(lambda x: x * x), "numpy").model
    >>> plain = to_plain(model)
    >>> [op for op, *_ in plain["nodes"]], plain["cells"][0]["outputs"]
    (['input', 'multiply'], [1])
    >>> to_plain(from_plain(plain)) == plain
    True
    """
    graphs = [cell.built for cell in model.cells]
    nodes = _in_order(graphs)
    place = {node: i for i, node in enumerate(nodes)}
    axes = list(dict.fromkeys(node.axis for node in nodes if node.axis.rank == 2))
    unused = (node.attrs["parameter"] for node in nodes if node.op is PARAMETER)  # after passes, some of them
    parameters = list(dict.fromkeys((*model.parameters, *unused)))
    owners = list(dict.fromkeys(p.owner for p in parameters if p.owner is not None))
    return {
        "format": FORMAT,
        "version": VERSION,
        "result": _plain_type(model.result),
        "arenas": [_plain_type(type_) for type_ in model.arenas],
        "results": sorted(model.results),
        "kept_bytes": model.kept_bytes,
        "owners": [owner.name for owner in owners],
        "parameters": [
            _plain_parameter(p, owners, drawn=drawn and p in model.parameters) for p in parameters
        ],
        "axes": [axis.name for axis in axes],
        "nodes": [_plain_node(node, place, axes, parameters) for node in nodes],
        "cells": [_plain_cell(model, k, place) for k in range(len(graphs))],
    }


def _in_order(graphs: Sequence[CellGraph]) -> list[Node]:
    """Return the nodes of some graphs, operands first, in the order in which they were made.

    Gradients are summed in that order. A node that depends on constants alone, or on the key of random
    numbers, may have been made long before, for another model: it stands where it is first read.
    """
    results = [node for graph in graphs for node in graph.results]
    placed: dict[Node, None] = dict.fromkeys(node for graph in graphs for node in graph.inputs)
    nodes = reachable(results)
    fixed: set[Node] = set()
    for node in nodes:
        if node.op is CONSTANT or node is KEY or (node.inputs and all(x in fixed for x in node.inputs)):
            fixed.add(node)
    for node in nodes:
        if node not in fixed and node.op not in SOURCES:
            for x in node.inputs:
                _place(x, placed)
            placed[node] = None
    for node in results:
        _place(node, placed)
    return list(placed)


def _place(node: Node, placed: dict[Node, None]) -> None:
    """Place a node, after all that it depends on."""
    stack = [node]
    while stack:
        waiting = [x for x in stack[-1].inputs if x not in placed]
        if waiting:
            stack.append(waiting[0])
        else:
            placed.setdefault(stack.pop())


def from_plain(plain: Mapping[str, Any]) -> Model:
    """Return the model that `to_plain` wrote; its parameters are new, and drawn when a program is made of it.

    Raises:
        ModelError: when this is no model, or one of a later version, or its parts do not fit together.
    """
    given: Any = plain  # not checked yet
    if not isinstance(given, Mapping) or given.get("format") != FORMAT:
        raise ModelError(
            "model", f"plain data of format {FORMAT!r}", "something else", "write it with to_plain"
        )
    version = plain.get("version")
    if version != VERSION:
        expected, fix = f"version {VERSION}", "read it with the version of foldbatch that wrote it"
        raise ModelError("model", expected, f"version {version!r}", fix)
    try:
        return _model(plain)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        found = f"parts that do not fit together ({type(error).__name__}: {error})"
        raise ModelError("model", "plain data as to_plain writes it", found, "write it again") from error


def _model(plain: Mapping[str, Any]) -> Model:
    owners = [Owner(name) for name in plain["owners"]]
    parameters = [_parameter(each, owners) for each in plain["parameters"]]
    axes = [UNBATCHED, CALL, *(ragged(name) for name in plain["axes"])]
    nodes: list[Node] = []
    for each in plain["nodes"]:
        nodes.append(_node(each, nodes, axes, parameters))
    cells = [_cell(each, nodes, plain["kept_bytes"]) for each in plain["cells"]]
    signatures = [_signature(each, cell) for each, cell in zip(plain["cells"], cells, strict=True)]
    arenas = tuple(_type(type_) for type_ in plain["arenas"])
    return Model(
        _type(plain["result"]),
        tuple(cells),
        tuple(signatures),
        tuple(type_ for type_ in arenas if isinstance(type_, TensorType)),
        frozenset(plain["results"]),
        tuple(tuple(_loss_names(each)) for each in plain["cells"]),
        tuple(tuple(each["metric_names"]) for each in plain["cells"]),
        tuple(tuple(each["labels"]) for each in plain["cells"]),
        tuple(tuple((metric, feed) for metric, feed in each["marks"]) for each in plain["cells"]),
        tuple(tuple(each["keys"]) for each in plain["cells"]),
        tuple(tuple(_feed(feed) for feed in each["reads"]) for each in plain["cells"]),
        tuple(parameter for parameter in parameters if any(parameter in cell.parameters for cell in cells)),
        plain["kept_bytes"],
    )


# -- cells


def _plain_cell(model: Model, k: int, place: Mapping[Node, int]) -> Plain:
    cell, signature = model.cells[k], model.signatures[k]
    ends = cell.ends
    return {
        "name": cell.built.name,
        **{part: [place[node] for node in getattr(cell.built, part)] for part in _PARTS},
        "ends": {name: sorted(getattr(ends, name)) for name in _ENDS}
        | {"trained": ends.trained, "losses": ends.losses},
        "component": signature.component,
        "recursive": signature.recursive,
        "reads_from": [[x.arena, list(x.columns), x.sequence, x.member] for x in signature.operands],
        "writes_to": list(signature.outputs),
        "arguments": signature.arguments,
        "sequences": list(signature.sequences),
        "shareable": signature.shareable,
        "repeatable": signature.repeatable,
        "loss_names": list(model.losses[k]),
        "metric_names": list(model.metrics[k]),
        "labels": list(model.labels[k]),
        "marks": [list(pair) for pair in model.marks[k]],
        "keys": list(model.keys[k]),
        "reads": [[_plain_type(feed.type), feed.where, feed.declared] for feed in model.feeds[k]],
    }


def _loss_names(plain: Plain) -> list[str]:
    """Return the names of a cell's losses; earlier data of this version have none."""
    names: list[str] = plain.get("loss_names", ["loss"] * len(plain["losses"]))
    return names


def _cell(plain: Plain, nodes: Sequence[Node], kept_bytes: int | None) -> Cell:
    parts = [tuple(nodes[i] for i in plain[part]) for part in _PARTS]
    ends = plain["ends"]
    return stage_cell(
        CellGraph(plain["name"], *parts),
        Ends(
            **{name: frozenset(ends[name]) for name in _ENDS}, trained=ends["trained"], losses=ends["losses"]
        ),
        kept_bytes,
    )


def _signature(plain: Plain, cell: Cell) -> CellSignature:
    operands = tuple(
        Operand(arena, tuple(columns), sequence, member)
        for arena, columns, sequence, member in plain["reads_from"]
    )
    signature = CellSignature(
        plain["name"],
        plain["component"],
        plain["recursive"],
        operands,
        tuple(plain["writes_to"]),
        plain["arguments"],
        tuple(plain["sequences"]),
        plain["shareable"],
        plain["repeatable"],
    )
    return differentiated(signature, cell)


def _feed(plain: Sequence[Any]) -> Feed:
    type_, where, declared = plain
    tensor = _type(type_)
    assert isinstance(tensor, TensorType)
    return Feed(tensor, where, declared)


# -- nodes: [op, operands, attributes, type, axis]; axes are 0 (one value for all), 1 (calls), and from 2 on
# ragged


def _plain_node(
    node: Node, place: Mapping[Node, int], axes: Sequence[Axis], parameters: Sequence[Parameter]
) -> list[Any]:
    attrs: Plain = {
        name: _plain_value(value, axes) for name, value in node.attrs.items() if node.op is not PARAMETER
    }
    if node is KEY:
        attrs = {"key": True}
    elif node.op is PARAMETER:
        attrs = {"parameter": parameters.index(node.attrs["parameter"])}
    inputs = [place[x] for x in node.inputs]
    return [node.op.name, inputs, attrs, _plain_type(node.type), _axis_number(node.axis, axes)]


def _axis_number(axis: Axis, axes: Sequence[Axis]) -> int:
    return axis.rank if axis.rank < 2 else 2 + axes.index(axis)


def _node(
    plain: Sequence[Any], nodes: Sequence[Node], axes: Sequence[Axis], parameters: Sequence[Parameter]
) -> Node:
    op, inputs, attrs, plain_type, axis = plain
    type_ = _type(plain_type)
    if op == INPUT.name:
        assert isinstance(type_, TensorType)
        return KEY if attrs.get("key") else input_node(type_, axes[axis], attrs["name"])
    if op == PARAMETER.name:
        return parameter_node(parameters[attrs["parameter"]])
    values = {name: _value(value, axes) for name, value in attrs.items()}
    if op == CONSTANT.name:
        return constant(values["value"])
    node = apply(op, *(nodes[i] for i in inputs), **values)
    if (node.type, node.axis) != (type_, axes[axis]):
        raise ValueError(f"{op} yields {node.type} along {node.axis}, not {type_} along {axes[axis]}")
    return node


# -- parameters


def _plain_parameter(parameter: Parameter, owners: Sequence[Owner], *, drawn: bool) -> Plain:
    init = parameter.init if drawn else "zeros"  # what nothing depends on is not drawn
    if callable(init):
        name = parameter.name if parameter.owner is None else f"{parameter.owner.name}.{parameter.name}"
        fix = "give init= by name, as a number or as an array"
        raise ModelError(f"parameter {name}", "an initialiser that has a name", "a Python function", fix)
    return {
        "name": parameter.name,
        "owner": None if parameter.owner is None else owners.index(parameter.owner),
        "type": _plain_type(parameter.type),
        "init": init if isinstance(init, str) else _plain_value(init, ()),
        "trainable": parameter.trainable,
    }


def _parameter(plain: Plain, owners: Sequence[Owner]) -> Parameter:
    type_ = _type(plain["type"])
    assert isinstance(type_, TensorType)
    owner = None if plain["owner"] is None else owners[plain["owner"]]
    init = _value(plain["init"], ())
    return Parameter(type_, init, plain["name"], trainable=plain["trainable"], owner=owner)


# -- values of attributes


def _plain_value(value: Any, axes: Sequence[Axis]) -> Any:
    match value:
        case bool() | int() | float() | str() | None:
            return value
        case tuple():
            return {"tuple": [_plain_value(item, axes) for item in value]}
        case list():
            return [_plain_value(item, axes) for item in value]
        case np.ndarray() | np.generic():
            return _plain_array(np.asarray(value))
        case Axis():
            return {"axis": _axis_number(value, axes)}
    raise ModelError("model", "attributes that are numbers, strings or arrays", type(value).__name__)


def _plain_array(array: Array) -> Plain:
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
    return {"array": data, "dtype": array.dtype.name, "shape": list(array.shape)}


def _value(plain: Any, axes: Sequence[Axis]) -> Any:
    match plain:
        case {"tuple": items}:
            return tuple(_value(item, axes) for item in items)
        case {"array": data, "dtype": dtype, "shape": shape}:
            return np.frombuffer(base64.b64decode(data), dtype).reshape(shape).copy()
        case {"axis": number}:
            return axes[number]
        case list():
            return [_value(item, axes) for item in plain]
    return plain


# -- types


def _plain_type(type_: Type) -> Any:
    match type_:
        case TensorType(shape, dtype):
            return {"tensor": list(shape), "dtype": dtype}
        case TupleType(items):
            return {"tuple": [_plain_type(item) for item in items]}
        case SequenceType(element):
            return {"sequence": _plain_type(element)}
        case BroadcastType(element):
            return {"broadcast": _plain_type(element)}
        case ObjectType():
            return "object"
        case VoidType():
            return "void"


def _type(plain: Any) -> Type:
    match plain:
        case {"tensor": shape, "dtype": dtype}:
            return TensorType(tuple(shape), dtype)
        case {"tuple": items}:
            return TupleType(*map(_type, items))
        case {"sequence": element}:
            return SequenceType(_type(element))
        case {"broadcast": element}:
            return BroadcastType(_type(element))
        case "object":
            return OBJECT
        case "void":
            return VOID
    raise ValueError(f"{plain!r} is no type")
