"""Functions that go along lines: of an axis, for each of the others, and of the elements of sequences.

They are written from the bodies of ops. Their loops are rows and two axes, and inside these along a line. For
contiguous elements LLVM adds a loop of vectors by itself.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from textwrap import indent

from foldbatch.engines.llvm.sum_texts import COLUMNS, sum_of_rows
from foldbatch.static.bodies import lines_of, renamed
from foldbatch.static.ops.reduce import GREATEST, TOTAL
from foldbatch.static.ops.rows import REPEATED

LINE_AXES = 2

# The place of the greatest number, or of NaN if there is one: the last such place, or the first; in vectors.
_PLACE = "place = {least}(place, i4(k) if (x == {top}) | (x != x) else i4({none}))"

# Adds up {term} of the elements along a line: vectors of terms, and then four of these at a time.
_TOTAL = """\
{total}, left, terms = f8(0), u8(0), accumulators()
while left < length:
    many = min(u8({many}), length - left)
    for m in range(many):
        k = left + m
        {read}terms[m] = f8({term})
    m, left = u8(0), left + many
    while m + u8(4) <= many:
        {total} += terms[m] + terms[m + u8(1)] + (terms[m + u8(2)] + terms[m + u8(3)])
        m += u8(4)
    while m < many:
        {total} += terms[m]
        m += u8(1)"""


def _spelled(body: str, kinds: Mapping[str, str], start: str) -> list[str]:
    """Return a body's lines: elements are a[k * p], those of the result b[k * q], the label is c[0].

    Greatest numbers begin with `start`.
    """
    elements = {"x": "a[u8(0)]", "x[k]": "x", "y[k]": "b[k * q]", "t": kinds["y"]}
    elements["x[label]"] = "a[min(label, length - u8(1)) * p]"
    lines = ["label = u8(c[u8(0)])"] * ("label" in kinds)

    def along(read: ast.expr, inside: str) -> None:
        lines.append("for k in range(length):")
        lines.extend(["    x = a[k * p]"] * ("x[k]" in ast.unparse(read)))
        lines.extend(indent(inside, "    ").splitlines())

    for line in lines_of(body):
        assert isinstance(line, ast.Assign), f"{body} has a line that is no assignment"
        value = renamed(ast.unparse(line.value), elements)
        target = ast.unparse(line.targets[0])
        match line.value, target:
            case ast.Call(func=ast.Name(id="greatest" | "first" as name), args=[x]), _:
                *at, top = target.strip("()").split(", ")
                lines.append(f"{top} = {start}")
                along(x, f"{top} = greatest({top}, x)")
                if at:
                    least, none = ("min", "length") if name == "first" else ("max", "0")
                    lines.append(f"place = i4({none})")
                    along(x, _PLACE.format(least=least, top=top, none=none))
                    lines.append(f"{at[0]} = u8(place)")
            case ast.Call(func=ast.Name(id="sum"), args=[x]), _:
                read = "x = a[k * p]\n        " if "x[k]" in ast.unparse(x) else ""
                term = renamed(ast.unparse(x), elements)
                words = {"total": target, "term": term, "read": read, "many": COLUMNS}
                lines.extend(_TOTAL.format(**words).splitlines())
            case _, "y[k]":
                along(line.value, f"b[k * q] = {kinds['y']}({value})")
            case _, "y[label]":
                lines += ["if label < length:", f"    b[label * q] = {kinds['y']}({value})"]
            case _, "y":
                lines.append(f"b[u8(0)] = {kinds['y']}({value})")
            case _:
                lines.append(f"{target} = {value}")
    return lines


def along_lines(body: str, kinds: Mapping[str, str]) -> str:
    """Return the text, in the loop language, of an op that works along an axis, as a softmax does.

    Its statics `s` are the extents of two outer axes and of the line; then, for each place, its strides
    along rows, both axes, and the line; the last is 1 for a place without that axis.

    Args:
        body: the op's body for one line.
        kinds: the kinds of numbers at the places ``x``, ``y`` and ``label``, as far as the body names them.
    """
    lines = [
        f"# {' '.join(kinds.values())}",
        f"def loop(n, {', '.join(f'{name}s' for name in kinds)}, s):",
        "    length, p, q = u8(s[2]), u8(1), u8(1)",
    ]
    at = {name: 1 + LINE_AXES + (LINE_AXES + 2) * i for i, name in enumerate(kinds)}
    lines += [f"    {step} = u8(s[{at[name] + 3}])" for name, step in (("x", "p"), ("y", "q")) if name in at]
    lines += [
        "    for r in range(n):",
        "        for i in range(u8(s[0])):",
        "            for j in range(u8(s[1])):",
    ]
    for name, pointer in (("x", "a"), ("y", "b"), ("label", "c")):
        if name in at:
            where = " + ".join(f"{turn} * u8(s[{at[name] + k}])" for k, turn in enumerate("rij"))
            lines.append(f"                {pointer} = moved({name}s, {where})")
    lines += [" " * 16 + line for line in _spelled(body, kinds, "a[u8(0)]")]
    return "\n".join([*lines, ""])


# s: extents of two axes; strides of the operand along rows and axes, and of the result.
_SEGMENTS = """\
# i8 {x} {y}
def loop(n, segments, xs, ys, s):
    inner, p, q = u8(s[1]), u8(s[{p}]), u8(s[{q}])
    for i in range(n):
        lower, upper = u8(segments[i] - segments[0]), u8(segments[i + u8(1)] - segments[0])
        for j in range(u8(s[0])):
"""
_LINES = """\
length = upper - lower
for e in range(inner):
    a = moved(xs, {first} * p + j * u8(s[3]) + e * u8(s[4]))
    b = moved(ys, {other} * q + j * u8(s[6]) + e * u8(s[7]))
"""
# A body that is one of these goes along all lines together, as they lie side by side.
_ROWS = "a, b = moved(xs, j * u8(s[3])), moved(ys, j * u8(s[6]))\n"
_REPEAT = """\
for r in range(lower, upper):
    u, v = moved(a, i * u8(s[2])), moved(b, r * u8(s[5]))
    for k in range(inner):
        v[k * q] = u[k * p]
"""
_GREATEST = """\
v = moved(b, i * u8(s[5]))
for k in range(inner):
    v[k * q] = {x}(0) if lower == upper else a[lower * u8(s[2]) + k * p]
for r in range(lower, upper):
    u = moved(a, r * u8(s[2]))
    for k in range(inner):
        v[k * q] = greatest(v[k * q], u[k * p])
"""
_SUM = "v, first, last, width, more = moved(b, i * u8(s[5])), lower, upper, inner, False\n"
TOGETHER = {REPEATED: _REPEAT, GREATEST: _GREATEST, TOTAL: _SUM}


def along_segments(body: str, x: str, y: str, plus: str = "+") -> str:
    """Return the text of a function along the elements of each call's sequence, from kind `x` to kind `y`."""
    rows = TOGETHER.get(body)
    head = _SEGMENTS.format(x=x, y=y, p=4 if rows else 2, q=7 if rows else 5)
    if rows is None:
        first, written = ("lower" if f"{name}[k]" in body else "i" for name in "xy")
        lines = _LINES.format(first=first, other=written)
        spelled = _spelled(body, {"x": x, "y": y}, f"a[u8(0)] if length != u8(0) else {x}(0)")
        return head + indent(lines, " " * 12) + indent("\n".join(spelled), " " * 16) + "\n"
    lines = rows + sum_of_rows(x, "{e} * u8(s[2])", plus=plus) if rows is _SUM else rows.format(x=x)
    return head + indent(_ROWS + lines, " " * 12)
