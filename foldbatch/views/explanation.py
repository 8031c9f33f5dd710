"""Explanations: what the compiler made of a block, cell by cell, as text and data.

A picture of a graph has a node a line, and rails from values down to where they are read.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from foldbatch.engines.numpy import TARGET
from foldbatch.errors import counted
from foldbatch.model.model import FEW_CELLS, find_cells
from foldbatch.params.parameters import Parameter
from foldbatch.program.compiling import compile
from foldbatch.program.program import Program
from foldbatch.static.cell import Cell
from foldbatch.static.cellgraph import AFTER
from foldbatch.static.graph import CONSTANT, INPUT, PARAMETER, SOURCES, Node
from foldbatch.static.printer import result_name
from foldbatch.system.showing import table
from foldbatch.views.explain import BACKWARD, FORWARD, CellExplanation, explain_cell, ops_in

STAGES = ("before", "step", "after")
_SIGNS = {"parameter": "□", "constant": "·", **dict.fromkeys(STAGES, "●"), "result": "◆"}


@dataclass(frozen=True, slots=True)
class Box:
    """A node of a drawing."""

    key: str  # tells it from others
    title: str
    type: str
    kind: str  # operand, feed, cotangent, kept, parameter, constant, result, or a stage
    reads: tuple[str, ...] = ()  # keys of its operands

    @property
    def words(self) -> str:
        """What stands beside it."""
        stage = f"  {self.kind}" if self.kind in STAGES else ""
        return f"{self.title}  {self.type}{stage}"


@dataclass(frozen=True, slots=True)
class RailLine:
    """A line of a drawing: a box at a rail, what it reads, and the rails that only pass."""

    box: Box
    rail: int
    read: frozenset[int]  # rails
    ending: frozenset[int]  # of these, the rails that nothing below reads
    passing: frozenset[int]

    @property
    def across(self) -> range:
        """The columns from the first that it touches to the last."""
        touched = {self.rail, *self.read}
        return range(min(touched), max(touched) + 1)


def lines(boxes: Sequence[Box]) -> Iterator[RailLine]:
    """Yield the lines of boxes, which come after those they read; sources move to their first reader."""
    left = Counter(key for box in boxes for key in set(box.reads))
    rails: list[str | None] = []  # which value runs in each column
    for box in _late(boxes):
        read = [rails.index(key) for key in dict.fromkeys(box.reads)]
        left.subtract(set(box.reads))
        ending = [i for i in read if left[rails[i] or ""] == 0]
        free = [i for i, key in enumerate(rails) if key is None]
        rail = min(ending or free or [len(rails)])
        if rail == len(rails):
            rails.append(None)
        passing = frozenset(i for i, key in enumerate(rails) if key is not None) - {*read, rail}
        yield RailLine(box, rail, frozenset(read), frozenset(ending), passing)
        for i in ending:
            rails[i] = None
        rails[rail] = box.key if left[box.key] else None
        while rails and rails[-1] is None:
            rails.pop()


def _late(boxes: Sequence[Box]) -> list[Box]:
    waiting = {box.key: box for box in boxes if not box.reads}
    ordered: list[Box] = []
    for box in boxes:
        if box.reads:
            ordered += [waiting.pop(key) for key in dict.fromkeys(box.reads) if key in waiting]
            ordered.append(box)
    return [*ordered, *waiting.values()]


def as_text(boxes: Sequence[Box]) -> str:
    """Return a drawing of boxes, each after those it reads.

    >>> a, b = Box("a", "a", "float32", "operand"), Box("b", "b", "float32", "parameter")
    >>> tanh = Box("%0", "%0 tanh", "float32", "step", ("a",))
    >>> print(as_text([a, b, tanh, Box("%1", "%1 add", "float32", "step", ("%0", "b"))]))
    ○    a  float32
    ●    %0 tanh  float32  step
    │ □  b  float32
    ●─╯  %1 add  float32  step
    """
    rows = [("".join(_signs(line)).rstrip(), line.box.words) for line in lines(boxes)]
    width = max((len(row) for row, _ in rows), default=0)
    return "\n".join(f"{row:{width}}  {words}" for row, words in rows)


def _signs(line: RailLine) -> Iterator[str]:
    """Yield what stands in each column: the node, corners where it reads, bars where values pass."""
    across = line.across
    for i in range(max({*across, *line.passing}) + 1):
        if i == line.rail:
            yield _SIGNS.get(line.box.kind, "○")
        elif i in line.read:
            yield ("╰┴╯" if i in line.ending else "├┼┤")[(i > across[0]) + (i == across[-1])]
        else:
            yield "│" if i in line.passing else "─" if i in across else " "
        yield "─" if i in across[:-1] else " "


def boxes(explanation: CellExplanation, *, backward: bool = False) -> list[Box]:
    """Return the boxes of a cell's forward graph as it is trained, or of its backward graph."""
    side = BACKWARD if backward else FORWARD
    graph = explanation.cell.backward_graph if backward else explanation.graph_after
    stages: dict[str, str] = {}
    for placed in explanation.stages:
        if placed.direction == side:
            stages.setdefault(placed.name, placed.stage)
    read = {*graph.outputs, *(x for node in graph.nodes for x in node.inputs)}
    drawn: list[Box] = []
    for node in (*graph.inputs, *graph.nodes):
        if (node in graph.inputs and backward and node not in read) or node.op is CONSTANT:
            continue
        reads = () if node in graph.inputs else node.inputs
        name = explanation.names[node]
        # sums of rows have no stage: they are computed after all routines
        kind = _kind(explanation, node, given=node in graph.inputs) or stages.get(name, AFTER)
        drawn += [_constant(explanation, x, f"{name}.{i}") for i, x in enumerate(reads) if x.op is CONSTANT]
        keys = tuple(f"{name}.{i}" if x.op is CONSTANT else explanation.names[x] for i, x in enumerate(reads))
        title = f"{name} {node.op.name}" if node.op not in SOURCES and reads else name
        drawn.append(Box(name, title, f"{node.axis} {node.type}", kind, keys))
    for i, (words, node) in enumerate(_results(explanation, side)):
        constant = [_constant(explanation, node, f"result {i}.0")] if node.op is CONSTANT else []
        key = constant[0].key if constant else explanation.names[node]
        drawn += [*constant, Box(f"result {i}", words, f"{node.axis} {node.type}", "result", (key,))]
    return drawn


def _kind(explanation: CellExplanation, node: Node, *, given: bool) -> str:
    graph = explanation.cell.graph
    if node in graph.operands:
        return "operand"
    if node in graph.feeds:
        return "feed"
    if given:
        return "cotangent" if node.op is INPUT else "kept"
    return "parameter" if node.op is PARAMETER else ""


def _constant(explanation: CellExplanation, node: Node, key: str) -> Box:
    return Box(key, explanation.names[node], f"{node.axis} {node.type}", "constant")


def _results(explanation: CellExplanation, side: str) -> Iterator[tuple[str, Node]]:
    """Yield the results of a direction, with names: those that routines deliver, then sums of rows."""
    for part in explanation.parts:
        if part.direction == side:
            for key, node in part.stage.results:
                yield result_name(key, explanation.parameter_names), node
    if side == BACKWARD and explanation.cell.sums:
        sums = explanation.cell.backward_graph.outputs[-len(explanation.cell.sums) :]
        for rows, node in zip(explanation.cell.sums, sums, strict=True):
            yield result_name(("gradient", rows.parameter), explanation.parameter_names), node


@dataclass(frozen=True, slots=True)
class Explanation:
    """What was made of some cells; prints itself, of many cells a line each.

    Attributes:
        cells: one `foldbatch.views.explain.CellExplanation` each.
        tracing: how examples are traced, and what keeps trees from being traced at once; empty where some
            cells are chosen.
    """

    cells: tuple[CellExplanation, ...]
    tracing: str = ""

    def __str__(self) -> str:
        return self.whole() if len(self.cells) <= FEW_CELLS else self._with_tracing(_summary(self.cells))

    def __repr__(self) -> str:
        names = ", ".join(cell.name for cell in self.cells[:FEW_CELLS])
        more = ", ..." if len(self.cells) > FEW_CELLS else ""
        return f"Explanation({counted(len(self.cells), 'cell')}: {names}{more}; print it to read it)"

    def whole(self) -> str:
        """Return the explanations of all cells as text, however many there are."""
        return self._with_tracing("\n\n".join(map(str, self.cells)))

    def _with_tracing(self, text: str) -> str:
        return f"tracing: {self.tracing}\n\n{text}" if self.tracing else text

    def text(self, *, backward: bool = False) -> str:
        """Return the graphs drawn as text: a node a line, rails from values to where they are read."""
        side = "backward" if backward else "forward"
        return "\n\n".join(
            f"{cell.name}, {side}\n{as_text(boxes(cell, backward=backward))}" for cell in self.cells
        )

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.whole())}</pre>"


def explain(what: Program | Cell | Any, name: str = "") -> Explanation:
    """Return what the compiler made of a program's cells, as the program's engine runs them.

    Args:
        what: a program, a block (or what stands for one), which is compiled first, or a single cell, which is
            explained for the NumPy engine.
        name: the name of a cell, or a part of names, to explain these cells only.

    Raises:
        UnknownNameError: when no cell has such a name.
        BlockTypeError: when a block is ill typed.

    >>> import foldbatch as fb
    >>> pair = fb.Record((fb.Scalar(), fb.Scalar())) >> fb.Function(lambda a, b: a * b + 1)
    >>> print(explain(pair).text())
    model, forward
    ○    f0  N float32
    │ ○  f1  N float32
    ●─╯  %0 multiply  N float32  before
    │ ·  1.0  1 float32
    ●─╯  %1 add  N float32  before
    ◆    output 0  N float32
    """
    names: dict[Parameter, str] = {}
    tracing = ""
    if isinstance(what, Cell):
        cells: tuple[Cell, ...] = (what,)
        target = TARGET
    else:
        program = what if isinstance(what, Program) else compile(what)
        names = {parameter: name_of for name_of, parameter in program.params.parameters.items()}
        cells = program.model.cells
        target = program.engine.target
        tracing = "" if name else program.lowered.way
    chosen = find_cells(cells, name, "explain")
    return Explanation(tuple(explain_cell(cells[number], target, names) for number in chosen), tracing)


def _summary(cells: Sequence[CellExplanation]) -> str:
    """Return a line for each cell, and how to see more."""
    rows = []
    for cell in cells:
        per_step = sum((placed.direction, placed.stage) == (FORWARD, "step") for placed in cell.stages)
        counts = ops_in(cell.graph_after), per_step, len(cell.parameters), cell.planned.get("N", 0)
        rows.append((cell.name, *(f"{count:,}" for count in counts)))
    header = ("cell", "ops", "in each step of a recursion", "parameters", "bytes a call")
    last = "explain(program, name) shows the cells whose names contain it, whole() shows all of them"
    return f"{table(header, rows, title=f'{len(cells)} cells')}\n{last}"
