"""The loops of this room as functions of arrays: compiled, or plain Python where this process cannot compile.

Both compute the same, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from foldbatch.loops.compiling import can_compile, compiled_function, compiled_late
from foldbatch.planning import integer_loops, noting, room_loops, table_loops, turns


class Loops(NamedTuple):
    """The loops that Python calls; each writes to its last arguments, and checks the kinds of all of them."""

    join: Callable[..., int]  # `integer_loops.join`
    noted: Callable[..., int]  # `integer_loops.noted`
    learn: Callable[..., int]  # `integer_loops.learn`
    weigh: Callable[..., object]  # `turns.weigh`
    drain: Callable[..., int]  # `turns.drain`
    group: Callable[..., int]  # `table_loops.group`, of keys of 32 bits
    group_long: Callable[..., int]  # the same, of 64 bits
    levels: Callable[..., int]  # `table_loops.levels`
    write_tables: Callable[..., int]  # `table_loops.write_tables`
    write_launches: Callable[..., object]  # `table_loops.write_launches`
    measure: Callable[..., object]  # `room_loops.measure`
    find: Callable[..., int]  # `room_loops.find`
    place: Callable[..., object]  # `room_loops.place`


PLAIN = Loops(
    integer_loops.join,
    integer_loops.noted,
    integer_loops.learn,
    turns.weigh,
    turns.drain,
    table_loops.group,
    table_loops.group,
    table_loops.levels,
    table_loops.write_tables,
    table_loops.write_launches,
    room_loops.measure,
    room_loops.find,
    room_loops.place,
)
# the kinds of arguments, see `foldbatch.loops.translation.translate_function`
SIGNATURES = {
    "join": "i4[] i8[] i8[] i8[] i8[] i4[] i4[,]",
    "noted": "i8[] i8[] i4[] i4[] i8[]",
    "learn": "i8[] i8[] i4[]",
    "weigh": "i8[] i8[] i8[] f8[]",
    "drain": "i8[] i8[] i8[] f8[] f8[] i8[] f8[] f8[] f8[] i8[] i8[] i4[] i4[] i8[]",
    "group": "i4[] i8 i8[] i8[] i8[]",
    "group_long": "i8[] i8 i8[] i8[] i8[]",
    "levels": "i8[] i8[] i4[] i8[]",
    "write_tables": "i8[] i8[] i4[] i8[]",
    "write_launches": "i8[] i8[] i8[] i8[]",
    "measure": "i8[] i8[] i8[]",
    "find": "i8[] i8[] i8[]",
    "place": "i8[] i8[] i8[] i8[] i8[] i8[] i4[] i8[] i8[]",
}
MODULES = turns, noting, integer_loops, table_loops, room_loops  # whose functions call each other
OF_EACH_BATCH = frozenset(("group", "write_tables", "write_launches"))  # compiled or loaded all together


def loops() -> Loops:
    """Return the loops; those that each batch needs are compiled or read from disk the first time."""
    return _loops(compile=can_compile())


@cache
def _loops(*, compile: bool) -> Loops:
    """Return the loops, compiled or not."""
    if not compile:
        return PLAIN
    functions = {}
    for name, function in PLAIN._asdict().items():
        make = compiled_function if name in OF_EACH_BATCH else compiled_late
        functions[name] = make(function, SIGNATURES[name], *MODULES)
    return Loops(**functions)
