"""Explanations: what the compiler made of a block, cell by cell, as text, data and pictures."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

from foldbatch.compiling import compile
from foldbatch.engines.numpy import TARGET
from foldbatch.errors import UnknownNameError
from foldbatch.params import Parameter
from foldbatch.program import Program
from foldbatch.static.cell import Cell
from foldbatch.views.boxes import boxes
from foldbatch.views.drawing import draw
from foldbatch.views.explain import CellExplanation, explain_cell
from foldbatch.views.rails import draw_rails


@dataclass(frozen=True, slots=True)
class Explanation:
    """What was made of some cells; prints itself, and shows itself in notebooks.

    Attributes:
        cells: one `foldbatch.views.explain.CellExplanation` each.
    """

    cells: tuple[CellExplanation, ...]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.cells))

    __repr__ = __str__

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
        return f"{self.svg()}<pre>{escape(str(self))}</pre>"


def explain(what: Program | Cell | Any, name: str = "") -> Explanation:
    """Return what the compiler made of a program's cells, as the program's engine runs them.

    Args:
        what: a program, a block (or what stands for one), which is compiled first, or a single cell, which is
            explained for the NumPy engine.
        name: only cells whose name contains it.

    Raises:
        UnknownNameError: when no cell's name does.
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
    if isinstance(what, Cell):
        cells: tuple[Cell, ...] = (what,)
        target = TARGET
    else:
        program = what if isinstance(what, Program) else compile(what)
        names = {parameter: name_of for name_of, parameter in program.params.parameters.items()}
        cells = program.model.cells
        target = program.engine.target
    chosen: list[Cell] = []
    if isinstance(name, str):  # not so where nobody checks types
        chosen = [cell for cell in cells if name in cell.name]
    if not chosen:
        listed = ", ".join(dict.fromkeys(cell.name for cell in cells)) or "none"
        raise UnknownNameError("explain", f"a part of the name of a cell ({listed})", repr(name))
    return Explanation(tuple(explain_cell(cell, target, names) for cell in chosen))
