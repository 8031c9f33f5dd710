"""Routines as text, for tests to compare."""

from __future__ import annotations

from math import prod

from foldbatch.static.places import Place
from foldbatch.static.statements import Routine, Statement

LETTERS = {"operand": "x", "feed": "f", "cotangent": "g", "parameter": "p", "constant": "c"} | {
    "kept": "k",
    "scratch": "s",
    "segments": "offsets",
    "store": "d",
}


def text(found: Routine) -> str:
    """Write a routine down: a letter for the kind of each slot, its number among those of its kind."""
    names: list[str] = []
    for slot in found.slots:
        letter = LETTERS[slot.binding.kind]
        keyed = isinstance(slot.binding.key, int) and slot.binding.kind != "scratch"
        number = slot.binding.key if keyed else sum(name.rstrip("0123456789") == letter for name in names)
        names.append(f"{letter}{number}")

    def place(p: Place | None) -> str:
        if p is None:
            return "-"
        slot = found.slots[p.slot]
        strides = tuple(prod(slot.type.shape[i + 1 :]) for i in range(len(slot.type.shape)))
        whole = (p.shape, p.strides, p.offset) == (slot.type.shape, strides, 0)
        where = "" if whole else f"[{p.offset}: {p.shape} by {p.strides}]"
        return names[p.slot] + where + (f" along {p.axis}" if p.axis is not slot.axis else "")

    def line(s: Statement) -> str:
        if s.loop is not None:
            return f"loop({', '.join(names[slot] for slot in s.slots)})"
        written = "" if s.write is None else f"{place(s.write)} = "
        return f"{written}{s.op}({', '.join(map(place, s.reads))})"

    lines = [line(s) for s in found.statements]
    lines += [f"{result.binding.kind} {place(result.place)}" for result in found.results]
    return "\n".join(lines) + "\n"
