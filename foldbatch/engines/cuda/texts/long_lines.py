"""Texts that go along one long line of each row, which the threads of the row share.

Each thread goes along every so many elements and leaves what it found in memory that the block shares. After
a barrier all threads put these together, in the order of threads. So there are two or three *phases*.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

from foldbatch.engines.cuda.texts.expressions import SUFFIX
from foldbatch.engines.cuda.texts.kernel_text import KernelText, indented, offset_of
from foldbatch.engines.cuda.texts.lines import added, total_of
from foldbatch.engines.nests import Strides, merged
from foldbatch.engines.places import given, written
from foldbatch.static.statements import Statement

LONG = 64  # elements from which on threads share a line
SHARED = -1  # stands for the memory that a block shares, where slots are told apart
HERE = "LANE_Y * LANES_X + LANE_X"

# The greatest, the last one of equal ones; or NaN, if there is one.
_TOP = """\
i8 best = -1;
{a} top = 0;
for (i8 k = lane; k < {length}; k += lanes) {{
  const {a} x = A(k);
  if ((best < 0) | (x >= top) | (x != x)) {{ best = k; top = x; }}
}}
{top}[HERE] = ({wide})top;
shared_best[HERE] = best;
"""
_TOGETHER = """\
i8 best = -1;
{a} top = 0;
for (i8 i = 0; i < LANES_X; i++) {{
  const i8 at = LANE_Y * LANES_X + i;
  const {a} x = ({a}){top}[at];
  if (shared_best[at] >= 0 && ((best < 0) | (x >= top) | (x != x))) {{ best = shared_best[at]; top = x; }}
}}
"""
# The first of the greatest, or the first NaN.
_FIRST = """\
i8 best = -1;
{a} top = 0;
for (i8 k = lane; k < {length}; k += lanes) {{
  const {a} x = A(k);
  if ((best < 0) | (x > top) | ((x != x) & (top == top))) {{ best = k; top = x; }}
}}
{top}[HERE] = ({wide})top;
shared_best[HERE] = best;
"""
_FIRST_TOGETHER = """\
i8 best = -1;
{a} top = 0;
for (i8 i = 0; i < LANES_X; i++) {{
  const i8 at = LANE_Y * LANES_X + i, k = shared_best[at];
  const {a} x = ({a}){top}[at];
  const int same = (x == top) | ((x != x) & (top != top));
  const int greater = (x > top) | ((x != x) & (top == top));
  if (k >= 0 && ((best < 0) | greater | (same & (k < best)))) {{ best = k; top = x; }}
}}
"""
_ADDED = """\
f8 total = 0;
for (i8 i = 0; i < LANES_X; i++) total += shared_sum[LANE_Y * LANES_X + i];
"""
# The sum of exp without its greatest term, and how much more the logarithm of the whole sum is.
_REST = (
    _TOGETHER
    + """\
f8 part = 0;
for (i8 k = lane; k < {length}; k += lanes)
  if (k != best) part += (f8)exp{f}(A(k) == top ? 0 : A(k) - top);
shared_sum[HERE] = part;
"""
)
_EXP = (
    _TOGETHER
    + """\
f8 part = 0;
for (i8 k = lane; k < {length}; k += lanes) {{
  const {a} x = exp{f}(A(k) - top);
  B(k) = x;
  part += (f8)x;
}}
shared_sum[HERE] = part;
"""
)
_LABEL = "min_i8(max_i8(C, 0), {length} - 1)"
_EACH = "for (i8 k = lane; k < {length}; k += lanes) "
PHASES: dict[str, tuple[str, ...]] = {
    "softmax": (_TOP, _EXP, _ADDED + _EACH + "B(k) = B(k) / ({a})total;\n"),
    "log_softmax": (
        _TOP,
        _REST,
        _TOGETHER + _ADDED + _EACH + "B(k) = ({b})((f8)A(k) - (f8)top - log1p(total));\n",
    ),
    "logsumexp": (
        _TOP,
        _REST,
        _TOGETHER + _ADDED + "if (lane == 0) B(0) = ({b})((f8)top + log1p(total));\n",
    ),
    "cross_entropy": (
        _TOP,
        _REST,
        _TOGETHER + _ADDED + f"if (lane == 0) B(0) = ({{b}})((f8)top - (f8)A({_LABEL}) + log1p(total));\n",
    ),
    "max": (_TOP, _TOGETHER + "if (lane == 0) B(0) = top;\n"),
    "argmax": (_FIRST, _FIRST_TOGETHER + "if (lane == 0) B(0) = best;\n"),
}


Phase = Callable[[KernelText], list[str]]  # writes the lines of one phase


def long_phases(statement: Statement) -> list[Phase]:
    """Return the phases of an op along one long line of each row; none where lines are short, or many."""
    name = statement.op
    if name != "sum" and name not in PHASES:
        return []
    shape, write = given(statement)[0].shape, written(statement)
    if name == "sum":
        kept = [extent for i, extent in enumerate(shape) if i not in statement.attrs["axes"]]
        if prod(kept) != 1 or prod(shape) < LONG:
            return []
        return [partial(_sum_part, statement=statement), partial(_sum_end, statement=statement)]
    axis = len(shape) - 1 if name == "cross_entropy" else statement.attrs["axis"]
    if shape[axis] < LONG or prod(shape) != shape[axis] or not prod(write.shape):
        return []
    return [partial(_phase, statement=statement, axis=axis, body=body) for body in PHASES[name]]


def _phase(text: KernelText, statement: Statement, axis: int, body: str) -> list[str]:
    reads, write = given(statement), written(statement)
    a, b = text.kind(reads[0].slot), text.kind(write.slot)
    step = write.strides[axis] if len(write.shape) == len(reads[0].shape) else 0
    places = [(reads[0], reads[0].strides[axis]), (write, step)]
    lines = [
        f"#define {name}(k) {text.here(place.slot)}[{offset_of(place.offset, [('(k)', stride)])}]"
        for name, (place, stride) in zip("AB", places, strict=True)
    ]
    if statement.op == "cross_entropy":
        lines.append(f"#define C {text.here(reads[1].slot)}[{reads[1].offset}]")
    top, wide = ("shared_top", "f8") if a in SUFFIX else ("shared_whole", "i8")  # a double has too few digits
    length = reads[0].shape[axis]
    lines += body.format(a=a, b=b, f=SUFFIX.get(a, ""), length=length, top=top, wide=wide).splitlines()
    lines += ["#undef A", "#undef B", *(["#undef C"] if statement.op == "cross_entropy" else [])]
    return _sharing(text, lines)


def _sum_part(text: KernelText, statement: Statement) -> list[str]:
    (read,) = given(statement)
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
    write = written(statement)
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
