"""The picture of a model: its cells, and which of them read what others compute."""

from collections.abc import Iterable, Iterator, Sequence
from os import PathLike

from foldbatch.errors import counted
from foldbatch.program.compiling import compile
from foldbatch.program.program import Program
from foldbatch.scheduler.trace import CellSignature
from foldbatch.system.files import write_picture
from foldbatch.system.showing import Drawing
from foldbatch.views.shapes import LETTER, Box, Line, Shape, Size, Text, as_svg

FILL, RECURSIVE = "#e8effb", "#fbe9d7"
BOX_HEIGHT, BOX_GAP, FLOOR_HEIGHT, EDGE = 40.0, 26.0, 92.0, 30.0  # pixels


def draw_model(program: Program | object, path: str | PathLike[str] | None = None) -> str:
    """Return a picture of a model's cells, and write it to `path` if there is one.

    An arrow leads from a cell to one that reads its values. Cells of a recursion are orange. The example's
    data come in from below. A box says how many numbers of parameters its cell reads, and which losses and
    metrics come of it.

    Args:
        program: whose model is drawn; a block, or an object that stands for one, is compiled first.
        path: of a file `.svg`, which is replaced.

    Raises:
        BlockValueError: when the path has another ending.

    >>> total = fb.Map(fb.Scalar()) >> fb.Reduce(fb.Function(lambda a, b: a + b))
    >>> draw_model(fb.compile(total)).count("<rect")  # the paper, and cells
    4
    """
    shown = Drawing(as_svg(*shapes_of(program if isinstance(program, Program) else compile(program))))
    if path is not None:
        write_picture(path, shown)
    return shown


def edges_of(signatures: Sequence[CellSignature]) -> list[tuple[int, int]]:
    """Return pairs of cells, by number: one that computes values, and one that reads them."""
    writers: dict[int, list[int]] = {}
    for number, cell in enumerate(signatures):
        for arena in dict.fromkeys(cell.outputs):
            writers.setdefault(arena, []).append(number)
    pairs = (
        (writer, number)
        for number, cell in enumerate(signatures)
        for operand in cell.operands
        for writer in writers.get(operand.arena, ())
    )
    return list(dict.fromkeys(pairs))


def floors_of(count: int, edges: Iterable[tuple[int, int]], components: Sequence[int]) -> list[int]:
    """Return the floor of each cell: above those that it reads, those of one recursion apart from each other.

    >>> floors_of(3, [(0, 1), (1, 1), (1, 2)], [0, 1, 2])
    [0, 1, 2]
    """
    floors = [0] * count
    for component in sorted(set(components)):
        members = [number for number in range(count) if components[number] == component]
        below = [floors[a] + 1 for a, b in edges if b in members and components[a] != component]
        for place, number in enumerate(members):
            floors[number] = max(below, default=0) + place
    return floors


def shapes_of(program: Program) -> tuple[list[Shape], Size]:
    """Return the shapes of a program's model, and the size of the picture."""
    model = program.model
    signatures = model.signatures
    edges = edges_of(signatures)
    floors = floors_of(len(signatures), edges, [cell.component for cell in signatures])
    labels = [_label(program, number) for number in range(len(signatures))]
    widths = [max(map(len, lines)) * LETTER + 20 for lines in labels]
    by_floor: dict[int, list[int]] = {}
    for number, floor in enumerate(floors):
        by_floor.setdefault(floor, []).append(number)
    extents = [sum(widths[n] for n in on) + BOX_GAP * (len(on) - 1) for on in by_floor.values()]
    across, tallest = max(extents, default=0.0) + 2 * EDGE + BOX_GAP, max(floors, default=0)
    middles: dict[int, tuple[float, float]] = {}
    for (floor, on), extent in zip(by_floor.items(), extents, strict=True):
        x = (across - extent) / 2
        for number in on:
            middles[number] = x + widths[number] / 2, EDGE + (tallest - floor) * FLOOR_HEIGHT + BOX_HEIGHT / 2
            x += widths[number] + BOX_GAP
    shapes: list[Shape] = [*_arrows(edges, middles, widths)]
    for number, (x, y) in middles.items():
        fill = RECURSIVE if signatures[number].recursive else FILL
        title = f"{signatures[number].name}: {counted(len(model.cells[number].parameters), 'parameter')}"
        corner = x - widths[number] / 2, y - BOX_HEIGHT / 2
        shapes.append(Box(*corner, widths[number], BOX_HEIGHT, fill, "#5b6672", title))
        name, note = labels[number]
        shapes.append(Text(x, y + (-2 if note else 4), name, middle=True))
        shapes += [Text(x, y + 13, note, middle=True, fill="#5b6672")] if note else []
    return shapes, (across, 2 * EDGE + tallest * FLOOR_HEIGHT + BOX_HEIGHT)


def _label(program: Program, number: int) -> tuple[str, str]:
    """Return the two lines of a cell's box."""
    model = program.model
    weights = sum(parameter.type.size for parameter in dict.fromkeys(model.cells[number].parameters))
    parts = [f"{weights:,} weights"] if weights else []
    parts += [f"loss {name}" for name in model.losses[number]]
    parts += [f"metric {name}" for name in model.metrics[number]]
    return model.signatures[number].name, ", ".join(parts)


def _arrows(
    edges: Sequence[tuple[int, int]], middles: dict[int, tuple[float, float]], widths: Sequence[float]
) -> Iterator[Shape]:
    """Yield the arrows: from the top of a box to the bottom of a reader's; back and to itself at the side."""
    for a, b in edges:
        (xa, ya), (xb, yb) = middles[a], middles[b]
        if ya > yb:
            passes = abs(ya - yb) > FLOOR_HEIGHT and xa == xb
            yield Line(xa, ya - BOX_HEIGHT / 2, xb, yb + BOX_HEIGHT / 2, arrow=True, bend=60 if passes else 0)
        else:
            right_a, right_b = xa + widths[a] / 2, xb + widths[b] / 2
            bend = -25 if a == b else -30
            yield Line(right_a, ya - 10, right_b, yb + 10, arrow=True, bend=bend)
