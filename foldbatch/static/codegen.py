"""From a stage's graph to the source text of its kernel.

The text is one function over whole rows: arguments are arrays whose leading axis is the calls
of one group (or the elements of their sequences), every statement writes to a buffer planned
by `memory`, and the results are returned for the runtime to put where they belong. Names say
what a value is: ``x`` an operand, ``f`` data of the example, ``g`` a cotangent, ``d`` the buffer
for an operand's cotangent, ``p`` a parameter, ``c`` a constant, ``k`` a kept buffer, ``s`` scratch,
``n`` the number of rows. Where the backend has loops, a group of elementwise ops is one call of a
loop, which is given whole buffers and finds views in them itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from foldbatch.engines.numba.loop_compiler import loop_name
from foldbatch.params import Array
from foldbatch.static.backends import Backend
from foldbatch.static.body import Argument as Argument
from foldbatch.static.body import Body, body_of
from foldbatch.static.fusion import Group, Unit, groups
from foldbatch.static.graph import CONSTANT, PARAMETER, SOURCES, Graph, Node
from foldbatch.static.loops import Buffer, Loop, Place, Step, Sweep
from foldbatch.static.memory import Plan, Section, plan, sections_of
from foldbatch.static.op import CALL, Axis
from foldbatch.static.stages import is_view
from foldbatch.static.strided import access, broadcast


@dataclass(frozen=True, slots=True)
class Text:
    """A kernel's source with the arguments it takes, in order, the constants it reads, the loops it calls.

    It has a `body` if that may be compiled as a whole.
    """

    source: str
    arguments: tuple[Argument, ...]
    constants: Mapping[str, Array]
    calls: int
    plan: Plan
    loops: Mapping[str, str] = field(default_factory=dict)
    body: Body | None = None


_PREFIX = {"operand": "x", "feed": "f", "cotangent": "g", "kept": "k", "store": "d", "product": "t"}

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
        fixed = {*kept, *self.sparse}
        sections = sections_of(computed, {*fixed, *graph.outputs})
        self.units: Sequence[Unit] = graph.nodes
        if backend.loops is not None:
            whole_of = {part: section.whole for part, section in sections.items()}
            results_ = {*fixed, *graph.outputs}
            self.units = groups(computed, results_, whole_of, backend.loops.takes, backend.loops.alone)
        planned = [unit for unit in self.units if isinstance(unit, Group) or unit.op not in SOURCES]
        self.plan = plan(planned, fixed, graph.outputs, backend.overwrites, sections)
        self.loops: dict[str, str] = {}
        self.lines: list[str] = []
        self.calls = 0
        self.compiles = True  # as far as seen
        self.gaps: set[str] = set()  # names of views whose elements do not lie side by side

    def _is_read(self, node: Node) -> bool:
        return any(node in other.inputs for other in self.graph.nodes)

    def text(self) -> Text:
        for node in self.graph.inputs:
            argument = self.given[node]
            self.names[node] = self._argument(f"{_PREFIX[argument.kind]}{argument.key}", argument)
        for unit in self.units:
            if isinstance(unit, Group):
                self._group(unit)
            else:
                self._node(unit)
        results = [self._name(node) for node in self.results]
        self.lines.append(f"return ({', '.join(results)}{',' if len(results) == 1 else ''})")
        whole = self._body(results)
        signature = ", ".join(self.arguments)
        body = "\n".join(f"    {line}" for line in self.lines)
        source = f"def {self.name}({signature}):\n{body}\n"
        arguments = tuple(self.arguments.values())
        return Text(source, arguments, self.constants, self.calls, self.plan, self.loops, whole)

    def _body(self, results: Sequence[str]) -> Body | None:
        """Return the statements with what they are given; None if some cannot be compiled with the rest."""
        if self.backend.loops is None or not self.compiles or not self.gaps.isdisjoint(results):
            return None
        nodes = {argument: node for node, argument in (*self.given.items(), *self.kept.items())}
        named = tuple(zip(results, self.results, strict=True))
        return body_of(self.arguments, nodes, self.constants, self.lines[:-1], named)

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

    def _name(self, node: Node) -> str:
        """Return a value's name: a source gets it now, and a part computed in its place may have none."""
        if node not in self.names and node.op in SOURCES:
            self._node(node)
        return self.names.get(node, "")

    def _group(self, group: Group) -> None:
        """Call a loop; values that others read have names afterwards."""
        assert self.backend.loops is not None
        writer = _LoopWriter(self, group)
        axis = group.nodes[0].axis
        text = self.backend.loops.spell(Loop(tuple(writer.buffers.values()), writer.sweeps, axis.rank > 0))
        name = loop_name(text)
        self.loops[name] = text
        rows = [self._rows(axis)] if axis.rank else []
        self.lines.append(f"{name}({', '.join([*rows, *writer.buffers])})")
        self.calls += 1
        for node in group.nodes:
            if node in group.written:
                self.names[node] = self._buffer(node)

    def _compute(self, node: Node) -> None:
        operands = [self._name(x) for x in node.inputs]
        self._check(node)
        spell = self.backend.spellings[node.op.name]
        rows = self._rows(node.axis) if node.axis.rank else ""
        if is_view(node):
            name = f"v{sum(n.startswith('v') for n in self.names.values())}"
            expression = spell(node, operands, "", rows)[0]
            if self.backend.loops is not None and access(node).root is node:  # NumPy copies, in any order
                expression = f"np.ascontiguousarray({expression})"
                self.compiles = False
            if node.op.name != "reshape":
                self.gaps.add(name)
            elif operands[0] in self.gaps:
                self.compiles = False
            self.lines.append(f"{name} = {expression}")
            self.names[node] = name
            return
        self.calls += 1
        if node in self.sparse:
            self.compiles = False
            self.names[node] = f"rows{len(self.lines)}"
            call = self.backend.sum_rows(node, operands)
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
        if self.backend.loops is not None and not self.gaps.isdisjoint([*operands, out]):
            spell = self.backend.loops.gapped.get(node.op.name, spell)
        lines = spell(node, operands, out, rows)
        self.compiles = (
            self.compiles and self.backend.loops is not None and self.backend.loops.compiles(node, lines)
        )
        self.lines += lines

    def _check(self, node: Node) -> None:
        """Refuse indices out of range, unless the data they are was checked when it was traced."""
        if node.op.bound is None:
            return
        self.compiles = False
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
            self.gaps.add(name)
            return name
        return self._home(node)

    def _home(self, node: Node) -> str:
        """Return the buffer that holds nothing but the node."""
        if node in self.kept:
            argument = self.kept[node]
            return self._argument(f"{_PREFIX[argument.kind]}{argument.key}", argument)
        slot = self.plan.scratch[node]
        return self._argument(f"s{self.plan.slots.index(slot)}", Argument("scratch", slot))


class _LoopWriter:
    """Describes a group as a loop: `buffers` by the names of what is passed, and `sweeps`."""

    def __init__(self, emitter: _Emitter, group: Group) -> None:
        self.emitter = emitter
        self.group = group
        self.buffers: dict[str, Buffer] = {}
        self.sweeps = tuple(self._sweep(sweep) for sweep in group.sweeps)

    def _sweep(self, nodes: Sequence[Node]) -> Sweep:
        loads: dict[Place, int] = {}
        read = [
            (x, self._place(x, node.shape, written=False))
            for i, node in enumerate(nodes)
            for x in node.inputs
            if not self._is_at_hand(x, node, nodes[:i]) and not _is_number(x)
        ]
        for _, place in read:
            loads.setdefault(place, len(loads))
        places = iter(read)
        number = {node: len(loads) + i for i, node in enumerate(nodes)}
        steps = []
        for i, node in enumerate(nodes):
            operands: list[int | Node] = []
            for x in node.inputs:
                if _is_number(x):
                    operands.append(x)
                elif self._is_at_hand(x, node, nodes[:i]):
                    operands.append(number[x])
                else:
                    operands.append(loads[next(places)[1]])
            steps.append(Step(node, tuple(operands)))
        stores = [
            (number[node], self._place(node, node.shape, written=True))
            for node in nodes
            if node in self.group.written or node in self.group.passing
        ]
        return Sweep(nodes[0].shape, tuple(loads), tuple(steps), tuple(stores))

    def _is_at_hand(self, x: Node, node: Node, before: Sequence[Node]) -> bool:
        """Whether an operand is the element that the same sweep has just computed."""
        return x in before and x.shape == node.shape

    def _place(self, x: Node, shape: Sequence[int], *, written: bool) -> Place:
        emitter = self.emitter
        found = broadcast(access(x), x.shape, shape)
        root = found.root
        if root in emitter.plan.sections:
            section = emitter.plan.sections[root]
            root = section.whole
            found = found.at(root, root.type.size, section.start)
        if root in self.group.passing or root.axis.rank == 0:  # one row, the same for all
            found = found.at(root, 0, 0)
        mine = root in self.group.nodes or any(s.whole is root for s in emitter.plan.sections.values())
        name = emitter._home(root) if mine else emitter._name(root)
        buffer = self.buffers.get(name, Buffer(root.dtype, root.ndim + (found.row > 0), written=False))
        self.buffers[name] = Buffer(buffer.dtype, buffer.ndim, written=buffer.written or written)
        return Place(list(self.buffers).index(name), found.row, found.offset, found.strides)


def _is_number(x: Node) -> bool:
    return x.op is CONSTANT and x.ndim == 0
