"""Texts of rows: looked up by id, drawn, checked."""

from __future__ import annotations

from math import prod

from foldbatch.engines.cuda.texts.elements import each, index_lines
from foldbatch.engines.cuda.texts.kernel_text import STATUS_AT, KernelText, indented, offset_of
from foldbatch.engines.cuda.texts.lines import bounds
from foldbatch.engines.nests import Strides, merged
from foldbatch.static.ops.random import BITS, GAMMA, WORD
from foldbatch.static.places import Place, contiguous
from foldbatch.static.statements import Statement


def gather_lines(text: KernelText, statement: Statement) -> list[str]:
    """Return the lines that look up rows of a table by ids; ids out of range are brought into it."""
    (table, ids), write = statement.reads, statement.result
    if prod(write.shape) == 0 or table.shape[0] == 0:
        return []
    cut = len(ids.shape)
    names, lines = index_lines("e", [*ids.shape, *table.shape[1:]] or [1])
    lead, inner = names[:cut], names[cut:] if cut or len(table.shape) > 1 else []
    at = offset_of(ids.offset, list(zip(lead, ids.strides, strict=True)))
    lines.append(f"const i8 id = {in_range(f'{text.here(ids.slot)}[{at}]', table.shape[0])};")
    source = offset_of(table.offset, [("id", table.strides[0]), *zip(inner, table.strides[1:], strict=True)])
    target = offset_of(write.offset, list(zip(names, write.strides, strict=True))) if write.shape else None
    target = target or offset_of(write.offset, [])
    lines.append(f"{text.here(write.slot)}[{target}] = {text.here(table.slot)}[{source}];")
    return each(prod(write.shape), lines)


def in_range(id: str, size: int) -> str:
    """Return the expression of an id that is brought into its range."""
    return f"min_i8(max_i8((i8){id}, 0), {size - 1})"


def random_lines(text: KernelText, statement: Statement) -> list[str]:
    """Return the lines that draw numbers, as `ops.random.random_bits` does."""
    (keys,), write = statement.reads, statement.result
    if 0 in write.shape:
        return []
    kind, shape = text.kind(write.slot), write.shape
    order = Strides(0, contiguous(shape))
    axes = merged(shape, [Strides(0, write.strides), order]) or [(1, (0, 0))]
    names, lines = index_lines("e", [extent for extent, _ in axes])
    number = offset_of(1, [(n, s[1]) for n, (_, s) in zip(names, axes, strict=True)])
    at = offset_of(write.offset, [(n, s[0]) for n, (_, s) in zip(names, axes, strict=True)])
    site = (statement.attrs["site"] + 1) * GAMMA & WORD
    key = f"(u8){text.here(keys.slot)}[{keys.offset}]"
    lines += [
        f"const u8 bits = mixed(mixed({key} + {site}ull) + (u8)({number}) * {GAMMA}ull) >> {64 - BITS};",
        f"{text.here(write.slot)}[{at}] = ({kind})((f8)bits * {2.0**-BITS!r});",
    ]
    return each(prod(shape), lines)


def check_lines(text: KernelText, statement: Statement) -> list[str]:
    """Return the lines that tell the status of ids out of range: the first that a thread meets."""
    ids, *segments = statement.reads
    size = statement.attrs["size"]
    if prod(ids.shape) == 0:
        return []
    axes = merged(ids.shape, [Strides(0, ids.strides)]) or [(1, (0,))]
    names, lines = index_lines("e", [extent for extent, _ in axes])
    at = offset_of(ids.offset, [(n, s[0]) for n, (_, s) in zip(names, axes, strict=True)])
    pointer = text.row(ids.slot, "q") if segments else text.here(ids.slot)
    rank = "start" if ids.axis.rank == 0 else "start + r"
    lines += [
        f"const i8 id = (i8){pointer}[{at}];",
        f"i8* status = (i8*)t[{STATUS_AT}];",
        f"if ((id < 0 || id >= {size}) && FIRST_OF(status)) {{",
        f"  status[1] = {rank}; status[2] = id; status[3] = {size}; status[4] = {text.setting.cell};",
        "}",
    ]
    checks = each(prod(ids.shape), lines)
    if not segments:
        return checks
    return [*bounds(text, segments[0]), "for (i8 q = lower; q < upper; q++) {", *indented(checks), "}"]


def product_lines(
    text: KernelText, x: Place, weight: Place, write: Place, ids: Place | None = None
) -> list[str]:
    """Return the lines of ``write = x weight``, a thread a number: for what no library multiplies.

    Shapes: ``x: [*, k]``, ``weight: [k, n]``, ``write: [*, n]``; with ids, ``weight: [size, k, n]``.
    """
    names, lines = index_lines("e", write.shape)
    k = x.shape[-1]
    *lead, column = names
    kind = text.kind(write.slot)
    place = weight
    terms: list[tuple[str, int]] = []
    if ids is not None:
        lines.append(f"const i8 id = {in_range(f'{text.here(ids.slot)}[{ids.offset}]', weight.shape[0])};")
        terms = [("id", weight.strides[0])]
    a = offset_of(x.offset, [*zip(lead, x.strides[:-1], strict=True), ("k", x.strides[-1])])
    b = offset_of(place.offset, [*terms, ("k", place.strides[-2]), (column, place.strides[-1])])
    to = offset_of(write.offset, list(zip(names, write.strides, strict=True)))
    value = f"{text.here(x.slot)}[{a}] * {text.here(place.slot)}[{b}]"
    lines += [f"{kind} total = 0;", f"for (i8 k = 0; k < {k}; k++) total += {value};"]
    lines += [f"{text.here(write.slot)}[{to}] = total;"]
    return each(prod(write.shape), lines)
