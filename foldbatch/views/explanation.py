"""Explanations: what the compiler made of a block, cell by cell, as text and data."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from foldbatch.engines.numpy import TARGET
from foldbatch.errors import counted
from foldbatch.model.model import FEW_CELLS, find_cells
from foldbatch.params.parameters import Parameter
from foldbatch.program.compiling import compile
from foldbatch.program.program import Program
from foldbatch.static.cell import Cell
from foldbatch.static.cellgraph import STEP
from foldbatch.system.showing import table
from foldbatch.views.explain import FORWARD, CellExplanation, explain_cell, ops_in


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of some cells; prints itself, of many cells a line each.

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
        ending = ", ..." if len(self.cells) > FEW_CELLS else ""
        return f"Explanation({counted(len(self.cells), 'cell')}: {names}{ending}; print it to read it)"

    def whole(self) -> str:
        """Return the explanations of all cells as text, however many there are."""
        return self._with_tracing("\n\n".join(map(str, self.cells)))

    def _with_tracing(self, text: str) -> str:
        return f"tracing: {self.tracing}\n\n{text}" if self.tracing else text

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.whole())}</pre>"


def explain(what: Program | Cell | object, name: str = "") -> Explanation:
    """Explain what the compiler made of a program's cells, as the program's engine runs them.

    Args:
        what: a program, a block (or what stands for one), which is compiled first, or a single cell, which is
            explained for the NumPy engine.
        name: the name of a cell, or a part of names, to explain these cells only.

    Raises:
        UnknownNameError: when no cell has such a name.
        BlockTypeError: when a block is ill typed.

    >>> pair = fb.Record((fb.Scalar(), fb.Scalar())) >> fb.Function(lambda a, b: a * b + 1)
    >>> explain(pair)
    Explanation(1 cell: model; print it to read it)
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
    """Return a table of cells: a line each, with counts."""
    rows = []
    for cell in cells:
        steps = [part for part in cell.parts if (part.direction, part.when) == (FORWARD, STEP)]
        per_step = sum(len(part.computed) for part in steps)
        counts = ops_in(cell.graph_after), per_step, len(cell.cell.parameters), cell.planned.get("N", 0)
        rows.append((cell.name, *(f"{count:,}" for count in counts)))
    header = ("cell", "ops", "in each step of a recursion", "parameters", "bytes a call")
    last = "explain(program, name) shows the cells whose names contain it, whole() shows all of them"
    return f"{table(header, rows, title=f'{len(cells)} cells')}\n{last}"
