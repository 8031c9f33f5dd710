"""All levels of a recursion in one call: a kernel's statements inside a loop that is compiled with them.

Called level by level from Python, a kernel costs some 20 microseconds a level, and two threads that take
turns at Python wait for each other. Here the same statements stand in a loop over levels: each level finds
its rows in whole arenas, kept buffers and data, computes, and puts its results where the schedule says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from foldbatch.engines.numba.named_loops import KINDS


@dataclass(frozen=True, slots=True)
class Base:
    """What a loop over levels is given for a parameter or a result of its kernel, in this order.

    ======================  =====================================================================
    ``operand``             arena, first row, width, rows, buffer
    ``cotangent``           arena, rows, buffer
    ``store``               arena, first row, width, rows, whether it stores, buffer
    ``kept``, ``feed``      the array of the whole batch
    ``scratch``             an array for the widest level
    ``parameter``,          the array
    ``constant``
    ``product``             arena, weight, table, place, ranks, rows, counts, width, buffer
    ``value`` (a result)    arena, rows
    ``sum`` (a result)      arena, first row, width, rows, whether it stores
    ``products`` (another)  arena, weight, cotangents, ranks, rows, counts, width, whether it stores,
                            whether rows repeat
    ======================  =====================================================================

    Arenas and buffers have two axes, ``[rows, numbers]``. A call has `width` rows, side by side from the
    first one on; if that is -1, `rows` tells where each lies, and a buffer, which has as many rows as the
    widest level needs, holds copies.

    A product by a weight that the loop makes itself (see `scheduler.hoisting`) starts as sums of rows of a
    table, at the places told; then ranks of this level (counts tell which), multiply, column by column,
    the rows told. Backward, cotangents are multiplied by the transposed weight, likewise.

    Attributes:
        kind: see above.
        key: what tells it from others of its kind; see `codegen.Argument`.
        shape, dtype: of one call's part.
        batched: whether it has rows at all.
    """

    kind: str
    key: Any
    shape: tuple[int, ...]
    dtype: str
    batched: bool = True


@dataclass(frozen=True, slots=True)
class Levels:
    """A loop over levels: its text, whose first line tells its types, and what it is given."""

    source: str
    bases: tuple[Base, ...]


def spell(
    given: Sequence[tuple[str, Base]], lines: Sequence[str], results: Sequence[tuple[str, Base]]
) -> Levels | None:
    """Return the loop around a kernel's statements; None where numbers have a type that is not compiled.

    Args:
        given: the kernel's parameters: their names, and what they are made of.
        lines: its statements.
        results: expressions of what it returns, and what becomes of them.
    """
    named = [*given, *((f"r{i}", base) for i, (_, base) in enumerate(results))]
    if any(base.dtype not in KINDS for _, base in named):
        return None
    parameters = {
        name: type_ for part in (_parameters(*pair) for pair in named) for name, type_ in part.items()
    }
    around = [_around(name, base) for name, base in given]
    body = [line for before, _ in around for line in before]
    body += lines
    body += [line for _, after in around for line in after]
    for i, (value, base) in enumerate(results):
        body += _put(f"r{i}", value, base)
    source = [
        f"# {', '.join(['i8[2]', *parameters.values()])}",
        f"def loop({', '.join(['bounds', *parameters])}):",
        "    for level in range(bounds.shape[0]):",
        "        start, stop = bounds[level, 0], bounds[level, 1]",
        "        n = stop - start",
        *(f"        {line}" for line in body),
    ]
    return Levels("\n".join(source) + "\n", tuple(base for _, base in named))


def _parameters(name: str, base: Base) -> dict[str, str]:
    """Return the loop's parameters for one of its kernel's, with their types."""
    kind = KINDS[base.dtype]
    arena, buffer = ({f"{name}_{part}": f"{kind}[2]w"} for part in ("arena", "buffer"))
    rows = {f"{name}_rows": "i8[1]"}
    place = {f"{name}_first": "i8", f"{name}_width": "i8"} | rows
    match base.kind:
        case "operand":
            return arena | place | buffer
        case "cotangent":
            return arena | rows | buffer
        case "store":
            return arena | place | {f"{name}_stores": "i8"} | buffer
        case "value":
            return arena | rows
        case "sum":
            return arena | place | {f"{name}_stores": "i8"}
        case "product" | "products":
            split = {f"{name}_ranks": "i8[1]"} | rows | {f"{name}_counts": "i8[2]", f"{name}_width": "i8"}
            weight = {f"{name}_weight": f"{kind}[2]a"}
            if base.kind == "product":
                known = {f"{name}_table": f"{kind}[2]", f"{name}_place": "i8[1]"}
                return {f"{name}_arena": f"{kind}[2]"} | weight | known | split | buffer
            told = {f"{name}_stores": "i8", f"{name}_repeats": "i8"}
            return arena | weight | {f"{name}_cotangents": f"{kind}[2]"} | split | told
        case _:
            whole = f"{name}_all" if base.batched else name
            written = "w" if base.kind in ("kept", "scratch") else ""
            return {whole: f"{kind}[{len(base.shape) + base.batched}]{written}"}


def _around(name: str, base: Base) -> tuple[list[str], list[str]]:
    """Return the lines that make a level's part of a parameter, and those that bring it where it belongs."""
    if not base.batched:
        return [], []
    part = f"{name} = {name}_part.reshape({', '.join(map(str, ('n', *base.shape)))})"
    match base.kind:
        case "operand":
            copies = f"gather({name}_arena, {_rows(name)}, {name}_part)"
            return [*_either(f"{name}_first >= 0", name), f"    {copies}", part], []
        case "cotangent":
            copies = f"gather({name}_arena, {name}_rows[start:stop], {name}_part)"
            return [f"{name}_part = {name}_buffer[:n]", copies, part], []
        case "store":
            after = [f"if not {name}_stores:", *(f"    {line}" for line in _add(name, f"{name}_part"))]
            return [*_either(f"{name}_stores", name), part], after
        case "scratch":
            return [f"{name} = {name}_all[:n]"], []
        case "product":
            return [*_product(name, KINDS[base.dtype]), part], []
        case _:
            return [f"{name} = {name}_all[start:stop]"], []


def _either(test: str, name: str) -> list[str]:
    """Return lines that take the arena's rows themselves, or the buffer's."""
    rows = f"{name}_buffer[: n * {name}_width]"
    return [f"if {test}:", f"    {name}_part = {_extent(name)}", "else:", f"    {name}_part = {rows}"]


def _put(name: str, value: str, base: Base) -> list[str]:
    """Return the lines that put a result where it belongs."""
    if base.kind == "products":
        return _products(name, KINDS[base.dtype])
    if base.kind == "value":
        rows = f"{value}.reshape(n, {prod(base.shape)})"
        return [f"scatter({rows}, {name}_rows[start:stop], {name}_arena)"]
    part = f"{name}_part"
    return [
        f"{part} = {value}.reshape(n * {name}_width, {name}_arena.shape[1])",
        f"if {name}_stores:",
        f"    keep({part}, {_extent(name)})",
        "else:",
        *(f"    {line}" for line in _add(name, part)),
    ]


def _product(name: str, kind: str) -> list[str]:
    """Return the lines that add up the products known beforehand and those of this level."""
    place = f"{name}_place[start * {name}_width : stop * {name}_width]"
    some = f"{name}_rows[first:last], weight, {name}_part, {name}_ranks[first:last]"
    return [
        f"{name}_part = {name}_buffer[:n]",
        f"add_up_{kind}({name}_table, {place}, {name}_part)",
        *_columns(name, "0"),
        f"    weight = {name}_weight[column * height : (column + 1) * height]",
        f"    product_rows_{kind}({name}_arena, {some}, start, 1)",
    ]


def _products(name: str, kind: str) -> list[str]:
    """Return the lines that multiply a level's cotangents; where rows repeat, one after the other."""
    some = f"{name}_ranks[i : i + some], weight, {name}_arena, {name}_rows[i : i + some]"
    return [
        *_columns(name, "1"),
        f"    weight = {name}_weight[:, column * height : (column + 1) * height]",
        f"    some = 1 if {name}_repeats else max(last - first, 1)",
        "    for i in range(first, last, some):",
        f"        product_rows_{kind}({name}_cotangents, {some}, 0, 1 - {name}_stores)",
    ]


def _columns(name: str, axis: str) -> list[str]:
    """Return the lines that begin a loop over columns, whose parts of the weight lie along an axis of it."""
    return [
        f"height = {name}_weight.shape[{axis}] // {name}_width",
        f"for column in range({name}_width):",
        f"    first, last = {name}_counts[column, start], {name}_counts[column, stop]",
    ]


def _add(name: str, part: str) -> list[str]:
    return [
        f"if {name}_first >= 0:",
        f"    add({part}, {_extent(name)})",
        "else:",
        f"    add_at({part}, {_rows(name)}, {name}_arena)",
    ]


def _extent(name: str) -> str:
    first, width = f"{name}_first", f"{name}_width"
    return f"{name}_arena[{first} + start * {width} : {first} + stop * {width}]"


def _rows(name: str) -> str:
    return f"{name}_rows[start * {name}_width : stop * {name}_width]"
