"""Fused loops as texts to be compiled: plain Python over raw memory, which LLVM vectorises.

Numbers of elements are unsigned (signed numbers could count from the end), constants have the dtype of their
op. The bodies of ops say how elements are computed; tanh, sigmoid and exp are `vector_functions`.
"""

from __future__ import annotations

from collections.abc import Sequence

from foldbatch.static.bodies import template
from foldbatch.static.graph import Node
from foldbatch.static.op import Op
from foldbatch.static.printer import print_routine
from foldbatch.static.routines import Target
from foldbatch.static.statements import Element, FusedLoop, Routine, Sweep, nest

KINDS = {"float32": "f4", "float64": "f8", "int32": "i4", "int64": "i8", "bool": "b1"}  # by dtype
MEMORY = KINDS | {"bool": "u1"}  # what lies in memory: bools are bytes

# The functions, of those that bodies may call, that LLVM makes vector instructions of. Fused loops may have
# ops whose bodies call no others. A single op is no fused loop: a function that is compiled once a machine
# does it.
VECTORISED = frozenset({"abs", "exp", "sigmoid", "sqrt", "tanh"})
TARGET = Target(VECTORISED, dtypes=frozenset(KINDS))


def spell(loop: FusedLoop) -> str:
    """Return a loop's text, for `compiling.native`: ``loop(n, a0, a1, ..., s)``, one pointer a buffer."""
    buffers = range(len(loop.buffers))
    if len(loop.sweeps) == 1:
        lines = _sweep(loop, loop.sweeps[0], by_rows=loop.batched)
    else:
        inner = []
        for number, sweep in enumerate(loop.sweeps):
            inner += _sweep(loop, sweep, by_rows=False, mark=f"_{number}" if number else "")
        lines = ["for r in range(n):", *_indented(inner)] if loop.batched else inner
    kinds = " ".join(MEMORY[buffer.dtype] for buffer in loop.buffers)
    arguments = ", ".join(["n", *(f"a{i}" for i in buffers), "s"])
    return "\n".join([f"# {kinds}", f"def loop({arguments}):", *_indented(lines), ""])


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _sweep(loop: FusedLoop, sweep: Sweep, *, by_rows: bool, mark: str = "") -> list[str]:
    """Return the lines of a sweep, over one row, or over all rows if `by_rows`.

    Variables end in `mark`, as those of another sweep may be of other kinds.
    """
    places = sweep.places
    loops = nest(sweep.shape, places, by_rows=by_rows)
    row = loop.batched and not by_rows
    elements = [
        f"a{place.buffer}[{_number(place, strides, row=row)}]"
        for place, strides in zip(places, loops.strides, strict=True)
    ]
    is_bool = [loop.buffers[place.buffer].dtype == "bool" for place in places]  # bytes, in memory
    lines = [f"t{i}{mark} = {elements[i]}{' != 0' * is_bool[i]}" for i in range(len(sweep.loads))]
    for i, operation in enumerate(sweep.operations, len(sweep.loads)):
        operands = [f"t{x}{mark}" if isinstance(x, int) else _literal(x) for x in operation.operands]
        before, value_text = computed(operation.node.op, operation.node.dtype, operands, f"_{i}{mark}")
        lines += [*before, f"t{i}{mark} = {value_text}"]
    for i, (value, _) in enumerate(sweep.stores, len(sweep.loads)):
        lines.append(f"{elements[i]} = {f'u1(t{value}{mark})' if is_bool[i] else f't{value}{mark}'}")
    for i, turns in reversed(list(enumerate(loops.turns))):
        times = f"u8({turns})" if not by_rows or i else "n" if turns == 1 else f"n * u8({turns})"
        lines = [f"for j{i} in range({times}):", *_indented(lines)]
    return lines


def _number(place: Element, strides: Sequence[int], *, row: bool) -> str:
    """Return the expression of the number of an element in its buffer."""
    steps = [("r", place.row)] * row + [(f"j{i}", stride) for i, stride in enumerate(strides)]
    terms = [name if stride == 1 else f"{name} * u8({stride})" for name, stride in steps if stride]
    if place.offset or not terms:
        terms.append(f"u8({place.offset})")
    return " + ".join(terms)


def _literal(constant: Node) -> str:
    value = constant.attrs["value"].item()
    return repr(value) if constant.dtype == "bool" else f"{KINDS[constant.dtype]}({value!r})"


def computed(op: Op, dtype: str, operands: Sequence[str], mark: str) -> tuple[list[str], str]:
    """Return an op's body on elements: the lines that come before, and the expression of its value.

    Args:
        op: the op; attributes that its body names keep their names.
        dtype: of the value.
        operands: the expressions of the operands.
        mark: the end of the names of variables.
    """
    lines, value = template(op.body, len(operands))
    words = {"t": KINDS[dtype], "mark": mark} | {f"x{i}": operand for i, operand in enumerate(operands)}
    return [line.format(**words) for line in lines], value.format(**words)


def listing(title: str, routine: Routine) -> str:
    """Return a kernel's statements and results, and the texts of the loops among them, in order."""
    loops = [statement.loop for statement in routine.statements if statement.loop is not None]
    texts = [f"# loop {i} of {title}\n{spell(loop)}" for i, loop in enumerate(loops)]
    return "\n\n".join([f"# {title}\n{print_routine(routine)}", *texts])
