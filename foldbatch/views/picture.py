"""The picture that explains dynamic batching: the calls of some examples, coloured by when they run.

Each example is drawn as what it is, a tree, a chain, any graph of calls; calls of one colour, in
whatever example, are rows of one kernel. Calls that do not run, as an identical one does, are rings.
As SVG the picture stands still, as HTML it runs.
"""

from __future__ import annotations

import colorsys
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from foldbatch.engines.batch import Batch
from foldbatch.errors import ExampleError
from foldbatch.program import Program, compile
from foldbatch.scheduler.schedule import Index
from foldbatch.scheduler.trace import CellSignature, arguments_of, lengths_of

MOST = 2000  # calls that a picture can show

# Lengths in pixels.
_RADIUS, _ACROSS, _UP, _MARGIN, _APART, _LINE = 9.0, 26.0, 44.0, 24.0, 30.0, 18.0


@dataclass(frozen=True, slots=True)
class Call:
    """A call: its example, cell and step (all numbers), the calls it reads, and its place.

    One that does not run (`runs`) takes the result of an identical one, which runs in its step.
    """

    example: int
    cell: int
    step: int
    reads: tuple[int, ...]
    runs: bool
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Group:
    """A step: its cell's number, how many calls run in it, and how many take their results from these."""

    cell: int
    runs: int
    calls: int


@dataclass(frozen=True, slots=True)
class Picture:
    """Calls with their places.

    Attributes:
        calls: in an order in which those that are read come first.
        steps: in the order in which they run.
        names: of the cells.
        size: width and height in pixels, the legend left out.
    """

    calls: tuple[Call, ...]
    steps: tuple[Group, ...]
    names: tuple[str, ...]
    size: tuple[float, float]


def draw_schedule(
    program: Program | Any,
    examples: Iterable[Any],
    path: str | PathLike[str] | None = None,
    *,
    animate: bool = False,
) -> str:
    """Return a picture of how a batch runs, and write it to `path` if there is one.

    Args:
        program: whose schedule is drawn; a block, or what stands for one, is compiled first.
        examples: a few examples; what they hold must fit the program.
        path: of a file, which is replaced.
        animate: return an HTML page in which the steps light up one after the other, instead of SVG.
            Both need nothing but themselves.

    The batch is scheduled as the program was compiled to do, and whole, as `Program.describe` runs it. Calls
    that do not run, as an identical one does (`share` of `foldbatch.compile`), are drawn as rings.

    Raises:
        ExampleError: when the examples make more calls than a picture can show, or do not fit.

    >>> import foldbatch as fb
    >>> total = fb.Map(fb.Scalar()) >> fb.Reduce(fb.Function(lambda a, b: a + b))
    >>> text = draw_schedule(fb.compile(total), [[1, 2, 3], [4, 5]])
    >>> text.count("<circle")
    8
    """
    drawn = picture(program, examples)
    text = html(drawn) if animate else svg(drawn)
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def picture(program: Program | Any, examples: Iterable[Any]) -> Picture:
    """Return the calls of a batch with their steps and places.

    Raises:
        ExampleError: as `draw_schedule`.
    """
    if not isinstance(program, Program):
        program = compile(program)
    prepared = program.prepare(examples)
    count = sum(example.trace.size for example in prepared)
    if count > MOST:
        fix = "draw fewer or smaller examples"
        raise ExampleError("draw_schedule", f"up to {MOST} calls", str(count), fix)
    cells = program.lowered.signatures
    calls, steps = _calls(program.schedule(prepared), cells)
    placed, size = _placed(calls)
    return Picture(tuple(placed), steps, tuple(cell.name for cell in cells), size)


_Bare = tuple[int, int, int, tuple[int, ...], bool]  # a call without a place


def _calls(batch: Batch, cells: Sequence[CellSignature]) -> tuple[list[_Bare], tuple[Group, ...]]:
    """Return the calls of a batch in the order of their numbers, and the steps."""
    trace = batch.merged.trace
    ranks = [_ranks(batch, cells, k) for k in range(len(cells))]
    step_of, steps = _steps(batch, ranks)
    runs = [np.zeros(len(calls), bool) for calls in trace.calls]
    for mask, table in zip(runs, batch.schedule.cells, strict=True):
        mask[table.order] = True
    made_by: dict[int, int] = {}
    calls: list[_Bare] = []
    sweep = sorted(
        (int(base), k, i) for k, rows in enumerate(trace.calls) for i, base in enumerate(rows[:, 0])
    )
    reads = [_reads(batch, cells, k) for k in range(len(cells))]
    examples = [batch.merged.examples(k) for k in range(len(cells))]
    for base, k, i in sweep:
        sources = dict.fromkeys(made_by[value] for value in reads[k][i])
        calls.append((int(examples[k][i]), k, int(step_of[k][i]), tuple(sources), bool(runs[k][i])))
        for value in range(base, base + len(cells[k].outputs)):
            made_by[value] = len(calls) - 1
    return calls, steps


def _steps(batch: Batch, ranks: Sequence[Index]) -> tuple[list[Index], tuple[Group, ...]]:
    """Return the step of every call, per cell ``[calls] int64``, and the steps.

    Shapes: `ranks`, per cell ``[calls] int64``: at which rank of the cell each call's result is computed.
    """
    schedule = batch.schedule
    of_rank = [np.zeros(len(table.order), np.int64) for table in schedule.cells]
    steps = [step for step in schedule.steps if "step" in step.stages and step.stop > step.start]
    for number, step in enumerate(steps):
        of_rank[step.cell][step.start : step.stop] = number
    of_call = [numbers[at] for numbers, at in zip(of_rank, ranks, strict=True)]
    calls = np.bincount(np.concatenate([np.zeros(0, np.int64), *of_call]), minlength=len(steps))
    groups = [
        Group(step.cell, step.stop - step.start, int(count)) for step, count in zip(steps, calls, strict=True)
    ]
    return of_call, tuple(groups)


def _ranks(batch: Batch, cells: Sequence[CellSignature], k: int) -> Index:
    """Return the rank at which the result of each of a cell's calls is computed: ``[calls] int64``."""
    bases, table = batch.merged.trace.calls[k][:, 0], batch.schedule.cells[k]
    if table.copies is None:
        ranks = np.zeros(len(bases), np.int64)
        ranks[table.order] = np.arange(len(table.order))
        return ranks
    # identical calls, be their results copied or not, are told by the rows in which their results lie
    rank_of_row = np.zeros(batch.schedule.arena_rows[cells[k].outputs[0]], np.int64)
    rank_of_row[table.outputs[0]] = np.repeat(np.arange(len(table.order)), np.diff(table.copies))
    return rank_of_row[batch.schedule.row_of[bases]]


def _reads(batch: Batch, cells: Sequence[CellSignature], k: int) -> list[list[int]]:
    trace = batch.merged.trace
    reads: list[list[int]] = arguments_of(trace, cells, k).tolist()
    for sequence, elements in enumerate(trace.elements[k]):
        ends = np.cumsum(lengths_of(trace, cells, k, sequence))
        for mine, part in zip(reads, np.split(elements, ends[:-1]), strict=False):
            mine.extend(part.ravel().tolist())
    return reads


def _placed(calls: Sequence[_Bare]) -> tuple[list[Call], tuple[float, float]]:
    """Give each call a place: above what it reads, in the middle of it; examples side by side."""
    height: list[int] = []
    for _, _, _, reads, _ in calls:
        height.append(1 + max((height[i] for i in reads), default=-1))
    tallest = max(height, default=0)
    right: dict[tuple[int, int], float] = {}  # by example and height, the next free place
    x: list[float] = []
    leaf, example, edge = 0.0, -1, 0.0
    for number, (mine, _, _, reads, _) in enumerate(calls):
        if mine != example:
            example, leaf = mine, edge + (_APART if number else 0.0)
        wish = sum(x[i] for i in reads) / len(reads) if reads else leaf
        place = max(wish, right.get((mine, height[number]), leaf if not reads else wish))
        x.append(place)
        right[mine, height[number]] = place + _ACROSS
        leaf = max(leaf, place + _ACROSS) if not reads else leaf
        edge = max(edge, place + _ACROSS)
    placed = [
        Call(*bare, _MARGIN + at, _MARGIN + (tallest - h) * _UP)
        for bare, at, h in zip(calls, x, height, strict=True)
    ]
    return placed, (2 * _MARGIN + edge, 2 * _MARGIN + tallest * _UP)


def colour(step: int, steps: int) -> str:
    """Return the colour of a step, from blue for the first to red for the last.

    >>> colour(0, 2), colour(1, 2)
    ('#4d8ce5', '#e5584d')
    """
    share = step / max(steps - 1, 1)
    red, green, blue = colorsys.hls_to_rgb(0.598 - 0.586 * share, 0.6, 0.745)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def svg(drawn: Picture) -> str:
    """Return the picture as SVG, with a legend: a line for each step."""
    width = max(drawn.size[0], 420.0)
    height = drawn.size[1] + _LINE * (len(drawn.steps) + 1)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-family="system-ui, sans-serif" font-size="12">'
    )
    parts = [head, f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>']
    for call in drawn.calls:
        for i in call.reads:
            source = drawn.calls[i]
            parts.append(
                f'<line x1="{source.x:.1f}" y1="{source.y:.1f}" x2="{call.x:.1f}" y2="{call.y:.1f}" '
                'stroke="#9aa4af"/>'
            )
    for call in drawn.calls:
        name = escape(f"example {call.example}, step {call.step + 1}: {drawn.names[call.cell]}")
        paint = colour(call.step, len(drawn.steps))
        if call.runs:
            look = f'fill="{paint}" stroke="#1b1f24"'
        else:
            look = f'fill="#ffffff" stroke="{paint}" stroke-width="2"'
            name += ": an identical call runs for it"
        parts.append(
            f'<circle class="step{call.step}" cx="{call.x:.1f}" cy="{call.y:.1f}" r="{_RADIUS:g}" '
            f"{look}><title>{name}</title></circle>"
        )
    for number, caption in enumerate(_captions(drawn)):
        y = drawn.size[1] + _LINE * number
        parts.append(
            f'<rect x="{_MARGIN:g}" y="{y:.1f}" width="12" height="12" '
            f'fill="{colour(number, len(drawn.steps))}"/>'
            f'<text x="{_MARGIN + 20:g}" y="{y + 10.5:.1f}" fill="#1b1f24">'
            f"{escape(caption)}</text>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _captions(drawn: Picture) -> list[str]:
    """Return a line for each step: its cell, and how many calls it is about."""
    captions = []
    for number, step in enumerate(drawn.steps):
        calls = f"{step.calls} call{'s' * (step.calls != 1)}"
        if step.runs < step.calls:
            calls = f"{step.runs} of {calls} run"
        captions.append(f"step {number + 1}: {drawn.names[step.cell]}, {calls}")
    return captions


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>How a batch runs</title>
<style>body{font:14px system-ui,sans-serif;margin:1.5em;background:#ffffff;color:#1b1f24}
circle{opacity:.12;transition:opacity .25s}circle.done{opacity:.55}circle.now{opacity:1;stroke-width:3}
input{width:20em;vertical-align:middle}</style></head><body>
<p><button id="play">Pause</button> <input id="at" type="range" min="0" max="STEPS" value="0">
<span id="what"></span></p>
PICTURE
<script>
const names = NAMES, at = document.getElementById("at"), play = document.getElementById("play");
function show() {
  const now = Number(at.value) - 1;
  names.forEach((_, step) => document.querySelectorAll(".step" + step).forEach(circle => {
    circle.classList.toggle("done", step < now);
    circle.classList.toggle("now", step === now);
  }));
  document.getElementById("what").textContent = now < 0 ? "nothing has run yet" : names[now];
}
let timer = null;
function run(on) {
  clearInterval(timer);
  const next = () => { at.value = (Number(at.value) + 1) % (names.length + 1); show(); };
  timer = on ? setInterval(next, 700) : null;
  play.textContent = on ? "Pause" : "Play";
}
play.onclick = () => run(timer === null);
at.oninput = () => { run(false); show(); };
show();
run(true);
</script></body></html>
"""


def html(drawn: Picture) -> str:
    """Return a page in which the steps of the picture light up one after the other."""
    names = _captions(drawn)
    text = json.dumps(names).replace("<", "\\u003c")
    page = _PAGE.replace("PICTURE", svg(drawn)).replace("STEPS", str(len(names)))
    return page.replace("NAMES", text)
