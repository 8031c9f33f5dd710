"""Explanations: what the compiler made of a block, cell by cell, as text, data and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

from foldbatch.compiling import compile
from foldbatch.engines.numpy import TARGET
from foldbatch.engines.report_text import table
from foldbatch.errors import counted
from foldbatch.model.model import FEW_CELLS, find_cells
from foldbatch.params import Parameter
from foldbatch.program import Program
from foldbatch.static.cell import Cell
from foldbatch.views.boxes import boxes
from foldbatch.views.drawing import draw
from foldbatch.views.explain import CellExplanation, explain_cell, ops_in
from foldbatch.views.parts import FORWARD
from foldbatch.views.rails import draw_rails


@dataclass(frozen=True, slots=True)
class Explanation:
    """What was made of some cells; prints itself (of many cells a line each), and shows itself in notebooks.

    Attributes:
        cells: one `foldbatch.views.explain.CellExplanation` each.
        tracing: how examples are traced, and what keeps them from being traced by columns; empty where some
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

    def svg(self, path: str | PathLike[str] | None = None, *, backward: bool = False) -> str:
        """Return the graphs drawn as one SVG, and write it to `path` if there is one.

        Args:
            path: of a file, which is replaced.
            backward: draw what computes the gradients, instead of what runs forward.
        """
        side = "backward" if backward else "forward"
        text = draw({f"{cell.name}, {side}": boxes(cell, backward=backward) for cell in self.cells})
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def text(self, *, backward: bool = False) -> str:
        """Return the graphs drawn as text: a node a line, rails from values to where they are read."""
        side = "backward" if backward else "forward"
        return "\n\n".join(
            f"{cell.name}, {side}\n{draw_rails(boxes(cell, backward=backward))}" for cell in self.cells
        )

    def _repr_html_(self) -> str:
        return f"{self.svg()}<pre>{escape(self.whole())}</pre>"


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
        tracing = "" if name else _tracing(program)
    chosen = find_cells(cells, name, "explain")
    return Explanation(tuple(explain_cell(cells[number], target, names) for number in chosen), tracing)


def _tracing(program: Program) -> str:
    columns = program.lowered.columns
    if isinstance(columns, str):
        return f"by the program, visit by visit. What keeps examples from being traced by columns: {columns}"
    if not columns.recurs:
        slow = "by the program, visit by visit, which takes no longer than columns where nothing recurs"
        last = f"; the last that were not: {columns.refusals.last}" if columns.refusals.last else ""
        return f"{slow}. Arrow arrays: by columns{last}"
    last = columns.refusals.last
    beside = f". The last batch that was traced by the program instead: {last}" if last else ""
    return f"by columns, all visits of a block at once{beside}"


def _summary(cells: Sequence[CellExplanation]) -> str:
    """Return a line for each cell, and how to see more."""
    rows = []
    for cell in cells:
        per_step = sum((placed.direction, placed.stage) == (FORWARD, "step") for placed in cell.stages)
        counts = ops_in(cell.graph_after), per_step, len(cell.parameters), cell.planned.get("N", 0)
        rows.append((cell.name, *(f"{count:,}" for count in counts)))
    header = ("cell", "ops", "in each step of a recursion", "parameters", "bytes a call")
    last = "explain(program, name) shows the cells whose names contain it, whole() shows all of them"
    return f"{table(f'{len(cells)} cells', header, rows)}\n{last}"
