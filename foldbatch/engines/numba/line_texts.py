"""Functions that go along one axis for each of the others: maxima, softmax and its losses, one-hot rows.

Their loops are rows and two axes, and inside these along a line. Their whole numbers `s` are the extents of
the two axes and of the line; then for each place its strides along rows, both axes, and the line, which is 1
for a place that has no such axis. Where all lie side by side along the line there is a loop that says so.
"""

from __future__ import annotations

from collections.abc import Sequence

AXES = 2

# A line's elements are a[k * p], of the result b[k * q]; its label is c[0]. Sums are of float64.
# The greatest number, or NaN if there is one:
_TOP = """\
top = a[u8(0)]
for k in range(length):
    t = a[k * {p}]
    top = t if (t >= top) | (t != t) else top
"""
SOFTMAX = f"""\
{_TOP}for k in range(length):
    b[k * {{q}}] = exp(a[k * {{p}}] - top)
total = f8(0)
for k in range(length):
    total += f8(b[k * {{q}}])
for k in range(length):
    b[k * {{q}}] = b[k * {{q}}] / {{f}}(total)
"""
# The greatest number, and how much more the logarithm of the sum of exp(a) is: `ops.reduce.top_and_rest`.
_REST = """\
at, top = u8(0), a[u8(0)]
for k in range(length):
    t = a[k * {p}]
    greater = (t >= top) | (t != t)
    at, top = k if greater else at, t if greater else top
rest = f8(0)
for k in range(length):
    t = a[k * {p}]
    t = {f}(0) if t == top else t - top
    rest += f8(0) if k == at else f8(exp(t))
rest = log1p(rest)
"""
LOGSUMEXP = f"{_REST}b[u8(0)] = {{f}}(f8(top) + rest)\n"
CROSS_ENTROPY = f"{_REST}b[u8(0)] = {{f}}(f8(top) - f8(a[u8(c[u8(0)]) * {{p}}]) + rest)\n"
LOG_SOFTMAX = f"""\
{_REST}for k in range(length):
    b[k * {{q}}] = {{f}}(f8(a[k * {{p}}]) - f8(top) - rest)
"""
MAX = f"{_TOP}b[u8(0)] = top\n"
# the first of the greatest, or the first NaN
ARGMAX = """\
best, top = u8(0), a[u8(0)]
for k in range(length):
    t = a[k * {p}]
    if (t > top) | ((t != t) & (top == top)):
        best, top = k, t
b[u8(0)] = i8(best)
"""
ONE_HOT = """\
for k in range(length):
    b[k * {q}] = {f}(0)
if u8(a[u8(0)]) < length:
    b[u8(a[u8(0)]) * {q}] = {f}(1)
"""
BODIES = {
    "softmax": SOFTMAX,
    "log_softmax": LOG_SOFTMAX,
    "logsumexp": LOGSUMEXP,
    "cross_entropy": CROSS_ENTROPY,
    "max": MAX,
    "argmax": ARGMAX,
    "one_hot": ONE_HOT,
}


def along_lines(name: str, kinds: Sequence[str]) -> str:
    """Return the text of a function of `BODIES`.

    Args:
        name: its name.
        kinds: of the numbers of its places: operand, result, and of `cross_entropy` the labels.
    """
    kind = kinds[1] if name == "one_hot" else kinds[0]
    lines = [
        f"# {' '.join(kinds)}",
        f"def loop(n, {', '.join(f'x{i}' for i in range(len(kinds)))}, s):",
        "    length, p, q = u8(s[2]), u8(s[6]), u8(s[10])",
        "    for r in range(n):",
        "        for i in range(u8(s[0])):",
        "            for j in range(u8(s[1])):",
    ]
    for i in range(len(kinds)):
        at = 1 + AXES + (AXES + 2) * i
        where = " + ".join(f"{turn} * u8(s[{at + k}])" for k, turn in enumerate("rij"))
        lines.append(f"                {'abc'[i]} = moved(x{i}, {where})")
    lines.append("                if (p == u8(1)) & (q == u8(1)):")
    for p, q in (("u8(1)", "u8(1)"), ("p", "q")):
        lines += [f"{' ' * 20}{line}" for line in BODIES[name].format(f=kind, p=p, q=q).splitlines()]
        lines += ["                else:"] * (p == "u8(1)")
    return "\n".join([*lines, ""])
