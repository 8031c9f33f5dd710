"""The picture that explains dynamic batching: the calls of some examples, coloured by when they run.

Each example is drawn as what it is, a tree, a chain, any graph of calls; calls of one colour, in
whatever example, are rows of one kernel. As SVG it stands still, as HTML it runs.
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

from foldbatch.errors import ExampleError
from foldbatch.program import Program, compile
from foldbatch.runtime.batch import Batch, schedule_batch
from foldbatch.scheduler.layout import find_layout
from foldbatch.scheduler.policies import find_policy
from foldbatch.scheduler.trace import CellSignature, arguments_of, lengths_of

MOST = 2000  # calls that a picture can show

# Lengths in pixels.
_RADIUS, _ACROSS, _UP, _MARGIN, _APART, _LINE = 9.0, 26.0, 44.0, 24.0, 30.0, 18.0


@dataclass(frozen=True, slots=True)
class Call:
    """A call: its example, cell and step (both numbers), the calls it reads, and its place."""

    example: int
    cell: int
    step: int
    reads: tuple[int, ...]
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Picture:
    """Calls with their places.

    Attributes:
        calls: in an order in which those that are read come first.
        steps: for each step its cell's number and how many calls it runs.
        names: of the cells.
        size: width and height in pixels, the legend left out.
    """

    calls: tuple[Call, ...]
    steps: tuple[tuple[int, int], ...]
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

    Calls that run once for several (`share` of `foldbatch.compile`) are drawn wherever they are made.

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
    lowered = program.lowered
    traces = [prepared.trace for prepared in program.prepare(examples)]
    count = sum(trace.size for trace in traces)
    if count > MOST:
        fix = "draw fewer or smaller examples"
        raise ExampleError("draw_schedule", f"up to {MOST} calls", str(count), fix)
    options = program.options
    policy, layout = find_policy(options.policy), find_layout(options.layout)
    batch = schedule_batch(traces, lowered.signatures, policy, layout, len(lowered.arenas))
    names = tuple(cell.name for cell in lowered.signatures)
    calls, steps = _calls(batch, lowered.signatures)
    placed, size = _placed(calls)
    return Picture(tuple(placed), steps, names, size)


_Bare = tuple[int, int, int, tuple[int, ...]]  # a call without a place


def _calls(batch: Batch, cells: Sequence[CellSignature]) -> tuple[list[_Bare], tuple[tuple[int, int], ...]]:
    """Return the calls of a batch in the order of their numbers, and the steps."""
    trace, schedule = batch.merged.trace, batch.schedule
    steps = [step for step in schedule.steps if "step" in step.stages and step.stop > step.start]
    step_of = [np.zeros(len(rows), np.int64) for rows in trace.calls]
    sizes = []
    for number, step in enumerate(steps):
        table = schedule.cells[step.cell]
        start, stop = step.start, step.stop
        if table.copies is not None:
            start, stop = int(table.copies[start]), int(table.copies[stop])
        step_of[step.cell][table.order[start:stop]] = number
        sizes.append((step.cell, stop - start))
    made_by: dict[int, int] = {}
    found: list[_Bare] = []
    sweep = sorted(
        (int(base), k, i) for k, rows in enumerate(trace.calls) for i, base in enumerate(rows[:, 0])
    )
    reads = [_reads(batch, cells, k) for k in range(len(cells))]
    examples = [batch.merged.examples(k) for k in range(len(cells))]
    for base, k, i in sweep:
        sources = dict.fromkeys(made_by[value] for value in reads[k][i])
        found.append((int(examples[k][i]), k, int(step_of[k][i]), tuple(sources)))
        for value in range(base, base + len(cells[k].outputs)):
            made_by[value] = len(found) - 1
    return found, tuple(sizes)


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
    for _, _, _, reads in calls:
        height.append(1 + max((height[i] for i in reads), default=-1))
    tallest = max(height, default=0)
    right: dict[tuple[int, int], float] = {}  # by example and height, the next free place
    x: list[float] = []
    leaf, example, edge = 0.0, -1, 0.0
    for number, (mine, _, _, reads) in enumerate(calls):
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
        parts.append(
            f'<circle class="step{call.step}" cx="{call.x:.1f}" cy="{call.y:.1f}" r="{_RADIUS:g}" '
            f'fill="{colour(call.step, len(drawn.steps))}" stroke="#1b1f24"><title>{name}</title></circle>'
        )
    for number, (cell, count) in enumerate(drawn.steps):
        y = drawn.size[1] + _LINE * number
        calls = f"{count} call{'s' * (count != 1)}"
        parts.append(
            f'<rect x="{_MARGIN:g}" y="{y:.1f}" width="12" height="12" '
            f'fill="{colour(number, len(drawn.steps))}"/>'
            f'<text x="{_MARGIN + 20:g}" y="{y + 10.5:.1f}" fill="#1b1f24">'
            f"step {number + 1}: {escape(drawn.names[cell])}, {calls}</text>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


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
    names = [f"step {i + 1}: {drawn.names[cell]}, {n} calls" for i, (cell, n) in enumerate(drawn.steps)]
    text = json.dumps(names).replace("<", "\\u003c")
    page = _PAGE.replace("PICTURE", svg(drawn)).replace("STEPS", str(len(names)))
    return page.replace("NAMES", text)
