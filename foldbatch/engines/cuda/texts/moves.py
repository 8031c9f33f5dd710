"""Texts that bring rows from where other cells left them, and to where others look for them."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from foldbatch.engines.cuda.texts.elements import each, visit
from foldbatch.engines.cuda.texts.kernel_text import KernelText, buffer_of, field_of, indented
from foldbatch.engines.launch import BASE, COPIES, FIRST, INDEX, STORES
from foldbatch.static.op import CALL, Axis
from foldbatch.static.places import Place, contiguous


def take_lines(text: KernelText, number: int) -> list[str]:
    """Return the lines that copy rows of an arena together, or sum the cotangents of shared calls."""
    slot = text.routine.slots[number]
    text.here(number)
    kind, size, width = text.kind(number), text.size(number), text.setting.widths.get(number, 1)
    grain, lower = size // width, text.lower(slot.axis)
    at = f"const i4* at = ints + {field_of(number, INDEX)}"
    lines = [f"const {kind}* arena = {buffer_of(kind, field_of(number, BASE))};"]
    rows = f"({lower} + r)" if width == 1 else f"(({lower} + r) * {width} + e / {grain})"
    column = "e" if width == 1 else f"e % {grain}"
    plain = [f"{at};", *each(size, [f"p{number}[e] = arena[(i8)at[{rows}] * {grain} + {column}];"])]
    if slot.binding.kind == "operand":
        lines += plain
    else:
        total = [
            "f8 total = 0;",
            f"for (i8 j = copies[0]; j < copies[1]; j++) total += (f8)arena[(i8)at[j] * {size} + e];",
            f"p{number}[e] = ({kind})total;",
        ]
        copies = f"const i4* copies = ints + {field_of(number, COPIES)} + {lower} + r;"
        summed = [copies, f"{at};", *each(size, total)]
        lines += [
            f"if ({field_of(number, COPIES)} >= 0) {{",
            *indented(summed),
            "} else {",
            *indented(plain),
            "}",
        ]
    return [f"if (apart{number}) {{", *indented(lines), "}"]


def value_lines(text: KernelText, number: int, place: Place) -> list[str]:
    """Return the lines that bring a row to the rows of an arena where its readers look for it."""
    axis = place.axis if place.axis.rank else CALL
    size, kind = prod(place.shape), text.kind(place.slot)
    lower = text.lower(axis)
    target = _dense(text, "d", kind, place)
    copies = field_of(number, COPIES)
    return [
        f"const i4* at = ints + {field_of(number, INDEX)} + ({copies} < 0 ? {lower} : 0);",
        f"const i4* copies = ints + {copies} + {lower} + r;",
        f"const i8 first = {copies} < 0 ? r : copies[0], last = {copies} < 0 ? r + 1 : copies[1];",
        "for (i8 j = first; j < last; j++) {",
        f"  {kind}* d = {buffer_of(kind, field_of(number, BASE))} + (i8)at[j] * {size};",
        *indented(visit(text, place.shape, [place], lambda x, _: ([], list(x)), [target])),
        "}",
    ]


def cotangent_lines(text: KernelText, number: int, place: Place, width: int) -> list[str]:
    """Return the lines that store a row of cotangents, or add it, where rows follow each other."""
    size, kind = prod(place.shape), text.kind(place.slot)
    target = _dense(text, "d", kind, place, size // width)
    first, stores = field_of(number, FIRST), field_of(number, STORES)

    def compute(x: list[str], mark: str) -> tuple[list[str], list[str]]:
        return [], [f"({stores} ? {x[0]} : {x[1]} + {x[0]})"]

    begin = f"{first} * {size // width} + ({text.lower(place.axis)} + r) * {size}"
    return [
        f"if ({first} >= 0) {{",
        f"  {kind}* d = {buffer_of(kind, field_of(number, BASE))} + {begin};",
        *indented(visit(text, place.shape, [place, target], compute, [target], stores)),  # type: ignore[arg-type]
        "}",
    ]


def store_lines(text: KernelText, number: int) -> list[str]:
    """Return the lines that add a row of a `store` slot to the arena, where rows follow each other."""
    slot = text.routine.slots[number]
    place = Place(number, slot.axis, slot.type.size, 0, slot.type.shape, contiguous(slot.type.shape))
    width = text.setting.widths.get(number, 1)
    return [
        f"if (!{field_of(number, STORES)}) {{",
        *indented(cotangent_lines(text, number, place, width)),
        "}",
    ]


def gradient_lines(text: KernelText, number: int, place: Place) -> list[str]:
    """Return the lines that store the gradient of a parameter, or add it to what is there."""
    kind = text.kind(place.slot)
    target, stores = replace(_dense(text, "d", kind, place), row=0), field_of(number, STORES)

    def compute(x: list[str], mark: str) -> tuple[list[str], list[str]]:
        return [], [f"({stores} ? {x[0]} : {x[1]} + {x[0]})"]

    return [
        f"{kind}* d = {buffer_of(kind, field_of(number, BASE))};",
        *visit(text, place.shape, [place, target], compute, [target], stores),  # type: ignore[arg-type]
    ]


def ranked_lines(text: KernelText, number: int, place: Place, axis: Axis) -> list[str]:
    """Return the lines that bring a row to its place by rank."""
    size, kind = prod(place.shape), text.kind(place.slot)
    target = _dense(text, "d", kind, place)
    begin = f"({text.lower(axis)} + r) * {size}"
    return [
        f"{kind}* d = {buffer_of(kind, field_of(number, BASE))} + {begin};",
        *visit(text, place.shape, [place], lambda x, _: ([], list(x)), [target]),
    ]


def _dense(text: KernelText, name: str, kind: str, place: Place, grain: int | None = None) -> Place:
    """Return a place without gaps, of a place's shape, that begins where a pointer of the text says."""
    size = prod(place.shape)
    number = text.rows_at(name, kind, size if grain is None else grain)
    return Place(number, place.axis, size, 0, place.shape, contiguous(place.shape))
