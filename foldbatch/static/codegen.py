"""From a stage's graph to the source text of its kernel.

The text is one function over whole rows: arguments are arrays whose leading axis is the calls
of one group (or the elements of their sequences), every statement writes to a buffer planned
by `memory`, and the results are returned for the runtime to put where they belong. Names say
what a value is: ``x`` an operand, ``f`` data of the example, ``g`` a cotangent, ``d`` the buffer
for an operand's cotangent, ``p`` a parameter, ``c`` a constant, ``k`` a kept buffer, ``s`` scratch,
``n`` the number of rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foldbatch.params import Array
from foldbatch.static.backends import Backend
from foldbatch.static.graph import CONSTANT, PARAMETER, Graph, Node
from foldbatch.static.memory import Plan, Section, plan
from foldbatch.static.op import CALL, Axis
from foldbatch.static.stages import is_view


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
class Text:
    """A kernel's source with the arguments it takes, in order, and the constants it reads."""

    source: str
    arguments: tuple[Argument, ...]
    constants: Mapping[str, Array]
    calls: int
    plan: Plan


_PREFIX = {"operand": "x", "feed": "f", "cotangent": "g", "kept": "k", "store": "d"}

# What an op must know of the sequences whose elements are its rows.
_SEGMENTS = {
    "repeat": ("owner",),
    **dict.fromkeys(
        ("segment_sum", "segment_max", "segment_is_max", "segment_softmax"), ("starts", "counts")
    ),
}


def emit(
    name: str,
    graph: Graph,
    results: Sequence[Node],
    given: Mapping[Node, Argument],
    kept: Mapping[Node, Argument],
    checked: Collection[Node],
    backend: Backend,
) -> Text:
    """Return the text of the kernel that computes a stage's graph.

    Args:
        name: the function's name.
        graph: the stage: its inputs are among the nodes of `given`, its outputs are `results` and
            those of `kept` that this stage computes.
        results: what the function returns.
        given: how each input arrives.
        kept: the computed nodes that other kernels read, and their buffers.
        checked: integer nodes whose range is already known to be right.
        backend: the spelling.
    """
    return _Emitter(name, graph, results, given, kept, checked, backend).text()


class _Emitter:
    def __init__(
        self,
        name: str,
        graph: Graph,
        results: Sequence[Node],
        given: Mapping[Node, Argument],
        kept: Mapping[Node, Argument],
        checked: Collection[Node],
        backend: Backend,
    ) -> None:
        self.name = name
        self.graph = graph
        self.results = results
        self.given = given
        self.kept = kept
        self.checked = set(checked)
        self.backend = backend
        self.arguments: dict[str, Argument] = {}
        self.constants: dict[str, Array] = {}
        self.names: dict[Node, str] = {}
        self.axes: list[Axis] = []
        computed = [node for node in graph.nodes if node.op not in (PARAMETER, CONSTANT)]
        self.sparse = {
            n for n in results if n.op.name == "sum_rows" and n not in kept and not self._is_read(n)
        }
        # a sparse result needs no buffer, but what it reads must last until then
        self.plan = plan(computed, {*kept, *self.sparse}, graph.outputs, backend.overwrites)
        self.lines: list[str] = []
        self.calls = 0

    def _is_read(self, node: Node) -> bool:
        return any(node in other.inputs for other in self.graph.nodes)

    def text(self) -> Text:
        for node in self.graph.inputs:
            argument = self.given[node]
            self.names[node] = self._argument(f"{_PREFIX[argument.kind]}{argument.key}", argument)
        for node in self.graph.nodes:
            self._node(node)
        results = [self.names[node] for node in self.results]
        self.lines.append(f"return ({', '.join(results)}{',' if len(results) == 1 else ''})")
        signature = ", ".join(self.arguments)
        body = "\n".join(f"    {line}" for line in self.lines)
        source = f"def {self.name}({signature}):\n{body}\n"
        return Text(source, tuple(self.arguments.values()), self.constants, self.calls, self.plan)

    def _argument(self, name: str, argument: Argument) -> str:
        self.arguments.setdefault(name, argument)
        return name

    def _rows(self, axis: Axis) -> str:
        if axis is CALL:
            return self._argument("n", Argument("rows", CALL))
        number = self._ragged(axis)
        return self._argument(f"m{number}", Argument("rows", axis)) if axis.rank else ""

    def _ragged(self, axis: Axis) -> int:
        if axis not in self.axes:
            self.axes.append(axis)
        return self.axes.index(axis)

    def _node(self, node: Node) -> None:
        if node.op is PARAMETER:
            number = sum(a.kind == "parameter" for a in self.arguments.values())
            self.names[node] = self._argument(f"p{number}", Argument("parameter", node.attrs["parameter"]))
        elif node.op is CONSTANT:
            self.names[node] = self._constant(node.attrs["value"])
        else:
            self._compute(node)

    def _constant(self, value: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def _compute(self, node: Node) -> None:
        operands = [self.names.get(x, "") for x in node.inputs]
        self._check(node)
        spell = self.backend.spellings[node.op.name]
        rows = self._rows(node.axis) if node.axis.rank else ""
        if is_view(node):
            name = f"v{sum(n.startswith('v') for n in self.names.values())}"
            self.lines.append(f"{name} = {spell(node, operands, '', rows)[0]}")
            self.names[node] = name
            return
        self.calls += 1
        if node in self.sparse:
            self.names[node] = f"rows{len(self.lines)}"
            call = f"sum_rows({operands[0]}, {operands[1]}, {node.attrs['size']})"
            self.lines.append(f"{self.names[node]} = {call}")
            return
        out = self._buffer(node)
        self.names[node] = out
        if node.op.name in _SEGMENTS:
            axis = node.axis if node.axis.rank == 2 else node.inputs[0].axis
            number = self._ragged(axis)
            operands += [
                self._argument(f"{kind}{number}", Argument(kind, axis)) for kind in _SEGMENTS[node.op.name]
            ]
        elif node.op.name == "concat":
            operands = self._parts(node, operands)
        self.lines += spell(node, operands, out, rows)

    def _check(self, node: Node) -> None:
        """Refuse indices out of range, unless the data they are was checked when it was traced."""
        if node.op.bound is None:
            return
        at, size = node.op.bound(tuple(x.type for x in node.inputs), node.attrs)
        ids = node.inputs[at]
        if ids in self.checked:
            return
        name, owner = self.names[ids], ""
        if ids.axis.rank == 0:  # the same for every row, so the first row is to blame
            name += "[None]"
        elif ids.axis.rank == 2:
            owner = ", " + self._argument(f"owner{self._ragged(ids.axis)}", Argument("owner", ids.axis))
        self.lines.append(f"check_range({name}, {size}{owner})")

    def _parts(self, whole: Node, operands: list[str]) -> list[str]:
        """Blank out the parts of a concatenation that already stand in their section of it."""
        start = 0
        for i, part in enumerate(whole.inputs):
            x = part
            while x.op.name == "reshape" and x not in self.plan.sections:
                x = x.inputs[0]
            if self.plan.sections.get(x) == Section(whole, start, start + part.shape[0]):
                operands[i] = ""
            start += part.shape[0] if whole.ndim == 1 else 0
        return operands

    def _buffer(self, node: Node) -> str:
        if node in self.plan.sections:
            section = self.plan.sections[node]
            whole = self._buffer(section.whole)
            part = f"{whole}[{':, ' if node.axis.rank else ''}{section.start}:{section.stop}]"
            name = f"v{sum(n.startswith('v') for n in self.names.values())}"
            if node.ndim != 1:
                # splitting the last axis of a section, or dropping it where it is 1, never copies
                extents = [self._rows(node.axis)] * bool(node.axis.rank) + [
                    str(extent) for extent in node.shape
                ]
                part += f".reshape(({', '.join(extents)}{',' if len(extents) == 1 else ''}))"
            self.lines.append(f"{name} = {part}")
            return name
        if node in self.kept:
            argument = self.kept[node]
            return self._argument(f"{_PREFIX[argument.kind]}{argument.key}", argument)
        slot = self.plan.scratch[node]
        return self._argument(f"s{self.plan.slots.index(slot)}", Argument("scratch", slot))
