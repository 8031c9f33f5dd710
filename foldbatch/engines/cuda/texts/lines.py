"""Texts that go along one axis for each of the others: sums, maxima, softmax and its losses, one-hot rows.

A thread computes a whole line. Where each row has one line, and that is long, the threads of the row share
it: each goes along every so many elements and leaves what it found in memory that the block shares. After a
barrier all threads put these together, in the order of threads. So there are two or three *phases*. Sums are
of float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import NamedTuple

from foldbatch.engines.cuda.texts.elements import each, index_lines, zero_lines
from foldbatch.engines.cuda.texts.expressions import SUFFIX
from foldbatch.engines.cuda.texts.kernel_text import KernelText, indented, offset_of
from foldbatch.engines.nests import Strides, merged
from foldbatch.static.places import Place, without
from foldbatch.static.statements import Statement

LONG = 64  # elements from which on threads share a line
SHARED = -1  # stands for the memory that a block shares, where slots are told apart
HERE = "LANE_Y * LANES_X + LANE_X"


class Piece(NamedTuple):
    """What is found along a line: lines that find it, leave it to other threads, join what these left.

    A line's elements are A(k), of its result B(k), its label is C. A loop that begins with EACH goes along
    all elements, or those of a thread; what follows ONCE is done by one thread.
    """

    find: str
    leave: str = ""
    join: str = ""


# The greatest, the last one of equal ones; or NaN, if there is one.
_TOP = Piece(
    """\
i8 best = -1;
{a} top = 0;
EACH {{
  const {a} x = A(k);
  if ((best < 0) | (x >= top) | (x != x)) {{ best = k; top = x; }}
}}
""",
    "{top}[HERE] = ({wide})top;\nshared_best[HERE] = best;\n",
    """\
i8 best = -1;
{a} top = 0;
for (i8 i = 0; i < LANES_X; i++) {{
  const i8 at = LANE_Y * LANES_X + i;
  const {a} x = ({a}){top}[at];
  if (shared_best[at] >= 0 && ((best < 0) | (x >= top) | (x != x))) {{ best = shared_best[at]; top = x; }}
}}
""",
)
# The first of the greatest, or the first NaN.
_FIRST = Piece(
    """\
i8 best = -1;
{a} top = 0;
EACH {{
  const {a} x = A(k);
  if ((best < 0) | (x > top) | ((x != x) & (top == top))) {{ best = k; top = x; }}
}}
""",
    _TOP.leave,
    """\
i8 best = -1;
{a} top = 0;
for (i8 i = 0; i < LANES_X; i++) {{
  const i8 at = LANE_Y * LANES_X + i, k = shared_best[at];
  const {a} x = ({a}){top}[at];
  const int same = (x == top) | ((x != x) & (top != top));
  const int greater = (x > top) | ((x != x) & (top == top));
  if (k >= 0 && ((best < 0) | greater | (same & (k < best)))) {{ best = k; top = x; }}
}}
""",
)
_ADDED = """\
f8 total = 0;
for (i8 i = 0; i < LANES_X; i++) total += shared_sum[LANE_Y * LANES_X + i];
"""
# The sum of exp without its greatest term: the logarithm of the whole sum is more by log1p of it.
_REST = Piece(
    """\
f8 total = 0;
EACH
  if (k != best) total += (f8)exp{f}(A(k) == top ? 0 : A(k) - top);
""",
    "shared_sum[HERE] = total;\n",
    _ADDED,
)
_EXP = Piece(
    """\
f8 total = 0;
EACH {{
  const {a} x = exp{f}(A(k) - top);
  B(k) = x;
  total += (f8)x;
}}
""",
    _REST.leave,
    _ADDED,
)
_LABEL = "min_i8(max_i8(C, 0), {length} - 1)"
PIECES: dict[str, tuple[Piece, ...]] = {
    "softmax": (_TOP, _EXP, Piece("EACH B(k) = B(k) / ({a})total;\n")),
    "log_softmax": (_TOP, _REST, Piece("EACH B(k) = ({b})((f8)A(k) - (f8)top - log1p(total));\n")),
    "logsumexp": (_TOP, _REST, Piece("ONCE B(0) = ({b})((f8)top + log1p(total));\n")),
    "cross_entropy": (
        _TOP,
        _REST,
        Piece(f"ONCE B(0) = ({{b}})((f8)top - (f8)A({_LABEL}) + log1p(total));\n"),
    ),
    "max": (_TOP, Piece("ONCE B(0) = top;\n")),
    "argmax": (_FIRST, Piece("ONCE B(0) = best;\n")),
    "one_hot": (Piece("EACH B(k) = k == (i8)A(0);\n"),),
}
LABELLED = {"cross_entropy"}
Phase = Callable[[KernelText], list[str]]  # writes the lines of one phase


def _body(text: str, a: str, b: str, length: int, first: str, step: str) -> list[str]:
    """Return the lines of pieces, for a thread that begins with one element and goes on in steps."""
    top, wide = ("shared_top", "f8") if a in SUFFIX else ("shared_whole", "i8")  # a double has too few digits
    made = text.format(a=a, b=b, f=SUFFIX.get(a, ""), length=length, top=top, wide=wide)
    made = made.replace("EACH", f"for (i8 k = {first}; k < {length}; k += {step})")
    return made.replace("ONCE ", "if (lane == 0) " if first == "lane" else "").splitlines()


def line_lines(text: KernelText, statement: Statement) -> list[str]:
    """Return the lines of an op of `PIECES`, a thread a line."""
    reads, write, name = statement.reads, statement.result, statement.op
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
    lines += _body("".join(piece.find for piece in PIECES[name]), a, b, length, "0", "1")
    lines += [f"#undef {'ABC'[i]}" for i in range(len(places))]
    return each(prod(shape), lines)


def _without_line(given_places: Sequence[tuple[Place, int | None]]) -> tuple[list[Place], list[int]]:
    """Return places without the axis that lines run along, and the stride of each along it; 0 where none."""
    places = [place if axis is None else without(place, axis) for place, axis in given_places]
    steps = [0 if axis is None else place.strides[axis] for place, axis in given_places]
    return places, steps


def sum_lines(text: KernelText, statement: Statement) -> list[str]:
    """Return the lines of a sum over axes: a thread adds up one sum."""
    (read,), write, summed = statement.reads, statement.result, statement.attrs["axes"]
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


def long_phases(statement: Statement) -> list[Phase]:
    """Return the phases of an op along one long line of each row; none where lines are short, or many."""
    name = statement.op
    if name != "sum" and (name not in PIECES or name == "one_hot"):
        return []
    shape, write = statement.reads[0].shape, statement.result
    if name == "sum":
        kept = [extent for i, extent in enumerate(shape) if i not in statement.attrs["axes"]]
        if prod(kept) != 1 or prod(shape) < LONG:
            return []
        return [partial(_sum_part, statement=statement), partial(_sum_end, statement=statement)]
    axis = len(shape) - 1 if name in LABELLED else statement.attrs["axis"]
    if shape[axis] < LONG or prod(shape) != shape[axis] or not prod(write.shape):
        return []
    return [partial(_phase, statement=statement, axis=axis, number=n) for n in range(len(PIECES[name]))]


def _phase(text: KernelText, statement: Statement, axis: int, number: int) -> list[str]:
    reads, write, pieces = statement.reads, statement.result, PIECES[statement.op]
    a, b = text.kind(reads[0].slot), text.kind(write.slot)
    step = write.strides[axis] if len(write.shape) == len(reads[0].shape) else 0
    places = [(reads[0], reads[0].strides[axis]), (write, step)]
    lines = [
        f"#define {name}(k) {text.here(place.slot)}[{offset_of(place.offset, [('(k)', stride)])}]"
        for name, (place, stride) in zip("AB", places, strict=True)
    ]
    if statement.op in LABELLED:
        lines.append(f"#define C {text.here(reads[1].slot)}[{reads[1].offset}]")
    body = "".join(piece.join for piece in pieces[:number]) + pieces[number].find + pieces[number].leave
    lines += _body(body, a, b, reads[0].shape[axis], "lane", "lanes")
    lines += ["#undef A", "#undef B", *(["#undef C"] if statement.op in LABELLED else [])]
    return _sharing(text, lines)


def _sum_part(text: KernelText, statement: Statement) -> list[str]:
    (read,) = statement.reads
    kind = text.kind(read.slot)
    axes = merged(read.shape, [Strides(0, read.strides)]) or [(1, (0,))]
    terms, rest = [], "k"
    for extent, strides in reversed(axes[1:]):
        terms.append((f"{rest} % {extent}", strides[0]))
        rest = f"({rest} / {extent})"
    terms.append((rest, axes[0][1][0]))
    at = offset_of(read.offset, [(f"({name})", stride) for name, stride in terms])
    total = total_of(kind)
    lines = [
        f"{total} total = 0;",
        f"for (i8 k = lane; k < {prod(read.shape)}; k += lanes) {{",
        f"  {added(kind, f'{text.here(read.slot)}[{at}]')}",
        "}",
        f"{_place(total)}[HERE] = total;",
    ]
    return _sharing(text, lines)


def _sum_end(text: KernelText, statement: Statement) -> list[str]:
    write = statement.result
    kind = text.kind(write.slot)
    total = total_of(kind)
    plus = "|=" if kind == "b1" else "+="
    lines = [
        "if (lane == 0) {",
        f"  {total} total = 0;",
        f"  for (i8 i = 0; i < LANES_X; i++) total {plus} ({total}){_place(total)}[LANE_Y * LANES_X + i];",
        f"  {text.here(write.slot)}[{write.offset}] = ({kind})total;",
        "}",
    ]
    return _sharing(text, lines)


def _place(total: str) -> str:
    """Return the shared memory for sums of a type: of doubles, or of whole numbers."""
    return "shared_sum" if total == "f8" else "shared_best"


def _sharing(text: KernelText, lines: list[str]) -> list[str]:
    """Return lines, with the memory that they share declared for the whole kernel."""
    declared = ["SHARED f8 shared_top[256], shared_sum[256];", "SHARED i8 shared_best[256];"]
    if any("shared_whole" in line for line in lines):
        declared.append("SHARED i8 shared_whole[256];")
    text.head += [line for line in declared if line not in text.head]
    return [line.replace("HERE", HERE) for line in indented(lines, 0)]


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
