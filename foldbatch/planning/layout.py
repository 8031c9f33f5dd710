"""Numbering the rows: a value lives where its consumer reads it.

In a tree every value has one consumer inside the recursion. Giving a value the row at which
that consumer will look makes the operands of a level consecutive rows of the arena: no gather
before a kernel, no scatter-add after its derivative. A value with several consumers lives at
the first; the others get an index array. The layout `producer` instead numbers values as they are
made, and leaves every operand to an index array: the plain way, for comparison.

`table_loops.number_by_consumer` and `table_loops.number_results` do the numbering.
"""

from __future__ import annotations

from typing import NamedTuple

from foldbatch.errors import UnknownNameError


class Layout(NamedTuple):
    """A way of giving rows to values."""

    name: str  # what users call it
    by_consumer: bool  # whether the first consumer decides; else values have rows as they are made


LAYOUTS = {name: Layout(name, name == "consumer") for name in ("consumer", "producer")}


def find_layout(name: str) -> Layout:
    """Return a layout by name."""
    if name not in LAYOUTS:
        raise UnknownNameError("layout", f"one of {', '.join(LAYOUTS)}", repr(name))
    return LAYOUTS[name]
