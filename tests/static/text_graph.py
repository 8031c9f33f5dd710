"""Reads back what `print_graph` writes, so that a case of a pass is text and needs no Python."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foldbatch.static.graph import Graph, Node, apply, constant, input_node
from foldbatch.static.op import CALL, UNBATCHED, Axis, ragged
from foldbatch.types import TensorType

_INPUT = re.compile(r"(%\d+): (\S+) (\w+(?:\[[\d,]+\])?)")
_LINE = re.compile(r"(%\d+): (\S+) (\w+(?:\[[\d,]+\])?) = (.*)")
_FILLED = re.compile(r"constant of shape (\(.*\)) filled with (.*)")
_CALL = re.compile(r"(\w+)\((.*)\)")
_ARGUMENT = re.compile(r"(%\d+)|(\w+)=(\([^)]*\)|[^,]+)")


def read_graph(text: str) -> Graph:
    """Return the graph that a text stands for; axes other than 1 and N are ragged.

    Raises:
        AssertionError: a line says another type or axis than its op yields.
    """
    header, *lines, last = text.strip().splitlines()
    axes: dict[str, Axis] = {"1": UNBATCHED, "N": CALL}
    nodes: dict[str, Node] = {}
    for name, axis, type_ in _INPUT.findall(header):
        nodes[name] = input_node(_read_type(type_), axes.setdefault(axis, ragged(axis)))
    inputs = tuple(nodes.values())
    for line in lines:
        match = _LINE.fullmatch(line)
        assert match, line
        name, axis, type_, expression = match.groups()
        node = _read_node(expression, _read_type(type_), nodes, axes)
        assert (node.axis, node.type) == (axes[axis], _read_type(type_)), f"{line} is {node}"
        nodes[name] = node
    return Graph(inputs, tuple(nodes[name] for name in re.findall(r"%\d+", last)))


def _read_type(text: str) -> TensorType:
    dtype, _, shape = text.rstrip("]").partition("[")
    return TensorType(tuple(int(extent) for extent in shape.split(",") if extent), dtype)


def _read_node(text: str, type_: TensorType, nodes: dict[str, Node], axes: dict[str, Axis]) -> Node:
    filled = _FILLED.fullmatch(text)
    if filled:
        return constant(np.full(ast.literal_eval(filled[1]), ast.literal_eval(filled[2])), type_.dtype)
    if text.startswith("constant "):
        return constant(ast.literal_eval(text.removeprefix("constant ")), type_.dtype)
    call = _CALL.fullmatch(text)
    assert call, text
    operands: list[Node] = []
    attrs: dict[str, object] = {}
    for operand, key, value in _ARGUMENT.findall(call[2]):
        if operand:
            operands.append(nodes[operand])
        else:
            attrs[key] = axes[value] if call[1] in ("batch", "repeat") else _literal(value)
    return apply(call[1], *operands, **attrs)


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except ValueError:
        return text  # a dtype's name


@dataclass(frozen=True, slots=True)
class Case:
    """What a pass makes of a graph: two texts under a title."""

    title: str
    before: str
    after: str

    def __str__(self) -> str:
        return self.title


def read_cases(path: Path) -> list[Case]:
    """Return the cases of a file: ``# title``, the graph before, ``=>``, the graph after; blank lines between."""
    cases = []
    for block in path.read_text().strip().split("\n\n"):
        title, rest = block.split("\n", 1)
        before, after = rest.split("\n=>\n")
        cases.append(Case(title.removeprefix("# "), before, after))
    return cases
