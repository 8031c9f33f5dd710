"""The picture that explains dynamic batching: the calls of some examples, coloured by when they run."""

import colorsys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from os import PathLike

import numpy as np

from foldbatch.engines.batch import ScheduledBatch
from foldbatch.errors import ExampleError
from foldbatch.program.compiling import compile
from foldbatch.program.program import Program, schedule
from foldbatch.scheduler.levels import reads_of
from foldbatch.scheduler.schedule import Index
from foldbatch.scheduler.trace import CellSignature
from foldbatch.system.files import write_picture
from foldbatch.system.showing import Drawing
from foldbatch.views.shapes import PAPER, Box, Circle, Line, Shape, Size, Text, as_svg


@dataclass(frozen=True, slots=True)
class DrawnCall:
    """A call."""

    example: int  # its number in the batch
    cell: int  # its number
    step: int  # the number of the step that computes its result
    reads: tuple[int, ...]  # the numbers of the calls whose results it reads
    runs: bool  # whether it runs; if not, an identical one in its step does


def calls_of(batch: ScheduledBatch, cells: Sequence[CellSignature]) -> tuple[DrawnCall, ...]:
    """Return the calls of a batch, those that are read first."""
    trace = batch.merged.trace
    step_of = _steps(batch, cells)
    runs = [np.zeros(len(calls), bool) for calls in trace.calls]
    for mask, table in zip(runs, batch.schedule.cells, strict=True):
        mask[table.order] = True
    numbers = range(len(cells))
    reads = [reads_of(cells[k], trace.calls[k], trace.elements[k]) for k in numbers]
    examples = [batch.merged.examples(k) for k in numbers]
    sweep = sorted(
        (int(base), k, i) for k, rows in enumerate(trace.calls) for i, base in enumerate(rows[:, 0])
    )
    maker: dict[int, int] = {}  # by the number of a value, the number of the call that makes it
    calls: list[DrawnCall] = []
    for base, k, i in sweep:
        maker |= dict.fromkeys(range(base, base + len(cells[k].outputs)), len(calls))
        sources = tuple(dict.fromkeys(maker[value] for value in reads[k][i]))
        calls.append(DrawnCall(int(examples[k][i]), k, int(step_of[k][i]), sources, bool(runs[k][i])))
    return tuple(calls)


def _steps(batch: ScheduledBatch, cells: Sequence[CellSignature]) -> list[Index]:
    """Return the step of every call, per cell ``[calls] int64``."""
    of_rank = [np.zeros(len(table.order), np.int64) for table in batch.schedule.cells]
    steps = (step for step in batch.schedule.steps if "step" in step.stages and step.stop > step.start)
    for number, step in enumerate(steps):
        of_rank[step.cell][step.start : step.stop] = number
    return [numbers[_ranks(batch, cells, k)] for k, numbers in enumerate(of_rank)]


def _ranks(batch: ScheduledBatch, cells: Sequence[CellSignature], k: int) -> Index:
    """Return the rank at which the result of each of a cell's calls is computed: ``[calls] int64``."""
    bases, table = batch.merged.trace.calls[k][:, 0], batch.schedule.cells[k]
    if table.copies is None:
        ranks = np.zeros(len(bases), np.int64)
        ranks[table.order] = np.arange(len(table.order))
        return ranks
    # identical calls, copied or not, are recognised by the rows of their results
    rank_of_row = np.zeros(batch.schedule.arena_rows[cells[k].outputs[0]], np.int64)
    rank_of_row[table.outputs[0]] = np.repeat(np.arange(len(table.order)), np.diff(table.copies))
    return rank_of_row[batch.schedule.row_of[bases]]


Place = tuple[float, float]  # x and y in pixels

MAX_DRAWN_CALLS = 2000  # calls that a picture can show

# Lengths in pixels.
_RADIUS, _ACROSS, _UP, _MARGIN, _APART, _LINE = 9.0, 26.0, 44.0, 24.0, 30.0, 18.0


@dataclass(frozen=True, slots=True)
class Picture:
    """Calls with their places."""

    calls: tuple[DrawnCall, ...]  # in an order in which those that are read come first
    names: tuple[str, ...]  # of the cells
    places: tuple[Place, ...]  # of each call, x and y in pixels
    size: Place  # width and height in pixels, the legend left out


def draw_schedule(
    program: Program | object, examples: Iterable[object], path: str | PathLike[str] | None = None
) -> str:
    """Return a picture of how a batch runs, and write it to `path` if there is one.

    Args:
        program: whose schedule is drawn; a block, or what stands for one, is compiled first.
        examples: a few examples; what they hold must fit the program.
        path: of a file `.svg`, which is replaced.

    The batch is scheduled as the program was compiled to do, and whole, as `Program.describe` runs it. Calls
    that do not run, as an identical one does (`share` of `foldbatch.compile`), are drawn as rings.

    Raises:
        ExampleError: when the examples make more calls than a picture can show, or do not fit.
        BlockValueError: when the path has another ending.

    >>> total = fb.Map(fb.Scalar()) >> fb.Reduce(fb.Function(lambda a, b: a + b))
    >>> text = draw_schedule(fb.compile(total), [[1, 2, 3], [4, 5]])
    >>> text.count("<circle")
    8
    """
    shown = Drawing(as_svg(*shapes_of(picture(program, examples))))
    if path is not None:
        write_picture(path, shown)
    return shown


def picture(program: Program | object, examples: Iterable[object]) -> Picture:
    """Return the calls of a batch with their steps and places."""
    if not isinstance(program, Program):
        program = compile(program)
    prepared = program.prepare(examples)
    count = sum(example.trace.size for example in prepared)
    if count > MAX_DRAWN_CALLS:
        fix = "draw fewer or smaller examples"
        raise ExampleError("draw_schedule", f"up to {MAX_DRAWN_CALLS} calls", str(count), fix)
    cells = program.model.signatures
    calls = calls_of(schedule(program, prepared), cells)
    return Picture(calls, tuple(cell.name for cell in cells), *_placed(calls))


def _placed(calls: Sequence[DrawnCall]) -> tuple[tuple[Place, ...], Place]:
    """Return a place for each call, and the size of the picture.

    A call stands above the calls that it reads, in the middle. Examples stand side by side.
    """
    height: list[int] = []
    for call in calls:
        height.append(1 + max((height[i] for i in call.reads), default=-1))
    tallest = max(height, default=0)
    right: dict[tuple[int, int], float] = {}  # by example and height, the next free place
    x: list[float] = []
    leaf, example, edge = 0.0, -1, 0.0
    for number, call in enumerate(calls):
        if call.example != example:
            example, leaf = call.example, edge + (_APART if number else 0.0)
        wish = sum(x[i] for i in call.reads) / len(call.reads) if call.reads else leaf
        place = max(wish, right.get((example, height[number]), wish))
        x.append(place)
        right[example, height[number]] = place + _ACROSS
        leaf = leaf if call.reads else max(leaf, place + _ACROSS)
        edge = max(edge, place + _ACROSS)
    places = tuple(
        (_MARGIN + across, _MARGIN + (tallest - up) * _UP) for across, up in zip(x, height, strict=True)
    )
    return places, (2 * _MARGIN + edge, 2 * _MARGIN + tallest * _UP)


def colour(step: int, steps: int) -> str:
    """Return the colour of a step, from blue for the first to red for the last.

    >>> colour(0, 2), colour(1, 2)
    ('#4d8ce5', '#e5584d')
    """
    share = step / max(steps - 1, 1)
    red, green, blue = colorsys.hls_to_rgb(0.598 - 0.586 * share, 0.6, 0.745)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def shapes_of(drawn: Picture) -> tuple[list[Shape], Size]:
    """Return the picture's shapes, with a legend: a line for each step; and its size."""
    captions = _captions(drawn)
    shapes: list[Shape] = []
    for call, (x, y) in zip(drawn.calls, drawn.places, strict=True):
        shapes += [Line(*drawn.places[i], x, y) for i in call.reads]
    for call, (x, y) in zip(drawn.calls, drawn.places, strict=True):
        title = f"example {call.example}, step {call.step + 1}: {drawn.names[call.cell]}"
        paint, kind = colour(call.step, len(captions)), f"step{call.step}"
        if call.runs:
            shapes.append(Circle(x, y, _RADIUS, paint, title=title, kind=kind))
        else:
            title += ": an identical call runs for it"
            shapes.append(Circle(x, y, _RADIUS, PAPER, paint, 2, title, kind))
    for number, caption in enumerate(captions):
        y = drawn.size[1] + _LINE * number
        shapes.append(Box(_MARGIN, y, 12, 12, colour(number, len(captions))))
        shapes.append(Text(_MARGIN + 20, y + 10.5, caption))
    return shapes, (max(drawn.size[0], 420.0), drawn.size[1] + _LINE * (len(captions) + 1))


def _captions(drawn: Picture) -> list[str]:
    """Return a line for each step: its cell, how many calls take their results from it, how many run."""
    captions = []
    for number, of_step in groupby(sorted(drawn.calls, key=lambda call: call.step), lambda call: call.step):
        calls = list(of_step)
        runs, size = sum(call.runs for call in calls), len(calls)
        count = f"{size} call{'s' * (size != 1)}" if runs == size else f"{runs} of {size} run"
        captions.append(f"step {number + 1}: {drawn.names[calls[0].cell]}, {count}")
    return captions
