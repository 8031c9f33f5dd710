"""Texts that go along one axis for each of the others: sums, maxima, softmax and its losses, one-hot rows.

A thread computes a whole line. Sums are of float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from foldbatch.engines.cuda.texts.elements import each, index_lines, zero_lines
from foldbatch.engines.cuda.texts.expressions import SUFFIX
from foldbatch.engines.cuda.texts.kernel_text import KernelText, offset_of
from foldbatch.engines.nests import Strides, merged
from foldbatch.engines.places import given, without, written
from foldbatch.static.statements import Place, Statement

# A line's elements are A(k), of its result B(k), its label is C. The greatest, or NaN if there is one:
_TOP = """\
{a} top = A(0);
for (i8 k = 1; k < {length}; k++) {{
  const {a} x = A(k);
  top = (x >= top) | (x != x) ? x : top;
}}
"""
_SOFTMAX = (
    _TOP
    + """\
f8 total = 0;
for (i8 k = 0; k < {length}; k++) {{
  const {a} x = exp{f}(A(k) - top);
  B(k) = x;
  total += (f8)x;
}}
for (i8 k = 0; k < {length}; k++) B(k) = B(k) / ({a})total;
"""
)
# The greatest, and how much more the logarithm of the sum of exp(A) is: `ops.reduce.top_and_rest`.
_REST = """\
i8 best = 0;
{a} top = A(0);
for (i8 k = 1; k < {length}; k++) {{
  const {a} x = A(k);
  const int greater = (x >= top) | (x != x);
  best = greater ? k : best;
  top = greater ? x : top;
}}
f8 rest = 0;
for (i8 k = 0; k < {length}; k++)
  if (k != best) rest += (f8)exp{f}(A(k) == top ? 0 : A(k) - top);
rest = log1p(rest);
"""
BODIES = {
    "softmax": _SOFTMAX,
    "log_softmax": _REST + "for (i8 k = 0; k < {length}; k++) B(k) = ({b})((f8)A(k) - (f8)top - rest);\n",
    "logsumexp": _REST + "B(0) = ({b})((f8)top + rest);\n",
    "cross_entropy": _REST + "B(0) = ({b})((f8)top - (f8)A(min_i8(max_i8(C, 0), {length} - 1)) + rest);\n",
    "max": _TOP + "B(0) = top;\n",
    # the first of the greatest, or the first NaN
    "argmax": """\
i8 best = 0;
{a} top = A(0);
for (i8 k = 1; k < {length}; k++) {{
  const {a} x = A(k);
  if ((x > top) | ((x != x) & (top == top))) {{ best = k; top = x; }}
}}
B(0) = best;
""",
    "one_hot": "for (i8 k = 0; k < {length}; k++) B(k) = k == (i8)A(0);\n",
}
LABELLED = {"cross_entropy"}


def line_lines(text: KernelText, statement: Statement) -> list[str]:
    """Return the lines of an op of `BODIES`."""
    reads, write, name = given(statement), written(statement), statement.op
    if name == "one_hot":
        axis, length = None, write.shape[-1]
    elif name in LABELLED:
        axis, length = len(reads[0].shape) - 1, reads[0].shape[-1]
    else:
        axis, length = statement.attrs["axis"], reads[0].shape[statement.attrs["axis"]]
    along = len(write.shape) - 1 if name == "one_hot" else axis
    kept = name in ("softmax", "log_softmax", "one_hot")
    places, steps = _without_line([(reads[0], axis), (write, along if kept else None)])
    if name in LABELLED:
        places, steps = [*places, reads[1]], [*steps, 0]
    shape = places[0].shape
    if 0 in shape or length == 0:
        return []
    axes = merged(shape, [Strides(place.row, place.strides) for place in places]) or [(1, (0,) * len(places))]
    names, lines = index_lines("e", [extent for extent, _ in axes])
    for i, (place, step) in enumerate(zip(places, steps, strict=True)):
        at = offset_of(place.offset, [(n, s[i]) for n, (_, s) in zip(names, axes, strict=True)])
        element = f"{text.here(place.slot)}[{at} + (k) * {step}]"
        lines.append(f"#define {'ABC'[i]}{'(k)' if i < 2 else ''} {element.replace(' + (k) * 0', '')}")
    a, b = text.kind(places[0].slot), text.kind(places[1].slot)
    body = BODIES[name].format(a=a, b=b, f=SUFFIX.get(a, ""), length=length)
    lines += body.splitlines()
    lines += [f"#undef {'ABC'[i]}" for i in range(len(places))]
    return each(prod(shape), lines)


def _without_line(given_places: Sequence[tuple[Place, int | None]]) -> tuple[list[Place], list[int]]:
    """Return places without the axis that lines run along, and the stride of each along it; 0 where none."""
    places = [place if axis is None else without(place, axis) for place, axis in given_places]
    steps = [0 if axis is None else place.strides[axis] for place, axis in given_places]
    return places, steps


def sum_lines(text: KernelText, statement: Statement) -> list[str]:
    """Return the lines of a sum over axes: a thread adds up one sum."""
    (read,), write, summed = given(statement), written(statement), statement.attrs["axes"]
    rest = [i for i in range(len(read.shape)) if i not in summed]
    if 0 in write.shape:
        return []
    if any(read.shape[i] == 0 for i in summed):
        return zero_lines(text, write)
    kept = merged(
        write.shape,
        [Strides(read.row, tuple(read.strides[i] for i in rest)), Strides(write.row, write.strides)],
    ) or [(1, (0, 0))]
    over = merged([read.shape[i] for i in summed], [Strides(0, tuple(read.strides[i] for i in summed))])
    over = over or [(1, (0,))]
    kind = text.kind(write.slot)
    names, lines = index_lines("e", [extent for extent, _ in kept])
    inner, inner_lines = index_lines("k", [extent for extent, _ in over])
    terms = [(n, s[0]) for n, (_, s) in zip(names, kept, strict=True)]
    at = offset_of(read.offset, [*terms, *((n, s[0]) for n, (_, s) in zip(inner, over, strict=True))])
    to = offset_of(write.offset, [(n, s[1]) for n, (_, s) in zip(names, kept, strict=True)])
    lines += [f"{total_of(kind)} total = 0;"]
    lines += [f"for (i8 k = 0; k < {prod(extent for extent, _ in over)}; k++) {{"]
    lines += [f"  {line}" for line in inner_lines]
    lines += [f"  {added(kind, f'{text.here(read.slot)}[{at}]')}", "}"]
    lines += [f"{text.here(write.slot)}[{to}] = ({kind})total;"]
    return each(prod(write.shape), lines)


def total_of(kind: str) -> str:
    """Return the type in which numbers of a kind are added up; whole numbers wrap around."""
    return {"f4": "f8", "f8": "f8", "b1": "b1"}.get(kind, "u8")


def added(kind: str, value: str) -> str:
    """Return the statement that adds a value to ``total``; bools are joined by "or", as NumPy has it."""
    return f"total |= {value} != 0;" if kind == "b1" else f"total += ({total_of(kind)}){value};"


def increased(kind: str, element: str, value: str) -> str:
    """Return the statement that adds a value to an element of memory, as `added` does."""
    if kind == "b1":
        return f"{element} |= {value} != 0;"
    if total_of(kind) == "u8":
        return f"{element} = ({kind})((u8){element} + (u8){value});"
    return f"{element} += {value};"
