"""Functions that visit each element of some places of one shape: elementwise ops, copies, zeros.

Their loops are rows and three axes. Their whole numbers `s` are: whether all rows are one run of the
innermost loop; the extents; then for each place its strides along rows and axes. Where all innermost strides
are 1 there is a loop that says so, which LLVM vectorises.
"""

from __future__ import annotations

from collections.abc import Sequence

from foldbatch.engines.llvm.loop_texts import KINDS, MEMORY, computed
from foldbatch.static.op import Op

AXES = 3

OF_BYTES = {"bool": "u1", "int32": "i4", "float32": "i4", "int64": "i8", "float64": "i8"}  # to be copied


def elementwise(op: Op, operands: Sequence[str], dtype: str) -> str:
    """Return the text of an elementwise op on operands of these dtypes; a number is told with the strides."""
    kinds, kind = [MEMORY[operand] for operand in operands], KINDS[dtype]
    lines, value = computed(op, dtype, [f"t{i}" for i in range(len(operands))], "")
    at = 1 + AXES + (len(kinds) + 1) * (AXES + 1)
    before = [f"{name} = {kind}(as_f8(s[{at + i}]))" for i, name in enumerate(numbers_of(op))]
    truths = [operand == "bool" for operand in operands]
    return _visit(kinds, MEMORY[dtype], f"u1({value})" if dtype == "bool" else value, truths, before, lines)


def numbers_of(op: Op) -> list[str]:
    """Return the attributes that an op's body names."""
    return ["exponent"] if "exponent" in op.body else []


def copy(dtype: str) -> str:
    """Return the text of a copy from one place to another."""
    kind = OF_BYTES[dtype]
    return _visit([kind], kind, "t0", [False])


def zero(dtype: str) -> str:
    """Return the text of what fills a place with zeros."""
    kind = OF_BYTES[dtype]
    return _visit([], kind, f"{kind}(0)", [])


def _visit(
    kinds: Sequence[str],
    written: str,
    value: str,
    truths: Sequence[bool],
    before: Sequence[str] = (),
    inside: Sequence[str] = (),
) -> str:
    """Return the text of a function of some operands that it reads and one place that it writes.

    Args:
        kinds: of the numbers of the operands.
        written: of those of the result.
        value: the expression of a result of t0, t1 ...
        truths: whether operands are bools, which are bytes in memory.
        before: lines that come first.
        inside: lines that come before the value.
    """
    places = len(kinds) + 1
    names = [f"x{i}" for i in range(len(kinds))] + ["y"]
    at = [1 + AXES + (AXES + 1) * i for i in range(places)]  # where a place's strides begin
    lines = [
        f"# {' '.join([*kinds, written])}",
        f"def loop(n, {', '.join(names)}, s):",
        *(f"    {line}" for line in before),
        "    rows, inner = n, u8(s[3])",
        "    if s[0] != 0:",
        "        rows, inner = u8(1), n * inner",
        *(f"    q{i} = u8(s[{at[i] + AXES}])" for i in range(places)),
        f"    side_by_side = {' & '.join(f'(q{i} == u8(1))' for i in range(places))}",
        "    for r in range(rows):",
        "        for i in range(u8(s[1])):",
        "            for j in range(u8(s[2])):",
    ]
    for i, name in enumerate(names):
        where = " + ".join(f"{turn} * u8(s[{at[i] + k}])" for k, turn in enumerate("rij"))
        lines.append(f"                b{i} = moved({name}, {where})")
    out = f"b{places - 1}"

    def innermost(strides: Sequence[str]) -> list[str]:
        loads = [
            f"    t{i} = b{i}[k * {stride}]{' != 0' * truth}"
            for i, (stride, truth) in enumerate(zip(strides, truths, strict=False))
        ]
        loads += [f"    {line}" for line in inside]
        return ["for k in range(inner):", *loads, f"    {out}[k * {strides[-1]}] = {value}"]

    loops = ["if side_by_side:", *(f"    {line}" for line in innermost(["u8(1)"] * places))]
    loops += ["else:", *(f"    {line}" for line in innermost([f"q{i}" for i in range(places)]))]
    return "\n".join([*lines, *(f"{' ' * 16}{line}" for line in loops), ""])
