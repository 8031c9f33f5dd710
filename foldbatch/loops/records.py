"""Records: named integers in an array, which loops read and write as attributes.

A class names the integers, in order; an instance is a view of an array, so that what is written to a field
stands in the array:

>>> class Span(Record):
...     first: int
...     last: int
>>> memory = [0, 0, 7, 9]
>>> span = Span(memory, 2)
>>> span.first, span.last
(7, 9)
>>> span.last += 1
>>> memory
[0, 0, 7, 10]

The class itself has the number of its fields, `size`, and the place of each field among them, which code
outside of loops adds to an offset:

>>> Span.size, Span.last
(2, 1)

Loops run as plain Python with these classes; `foldbatch.loops.translation` compiles ``span.last`` to
the instructions of ``memory[offset + 1]``.
"""

from __future__ import annotations

from inspect import get_annotations
from typing import Any, ClassVar, TypeAlias

Memory: TypeAlias = Any  # an array of integers; while a loop is compiled, a pointer to them


class _Field:
    """A field of a record: the integer of an instance, or, asked of the class, its place."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __get__(self, record: Record | None, owner: type[Record]) -> Any:
        return self.place if record is None else record.memory[record.offset + self.place]

    def __set__(self, record: Record, value: int) -> None:
        record.memory[record.offset + self.place] = value


class Record:
    """A view of some integers of an array; a subclass annotates one field for each, in their order.

    A subclass of it has the fields of its base, and its own behind them.

    Args:
        memory: an array of integers, `[*]`.
        offset: where the record begins in it.

    Raises:
        TypeError: when a subclass names a field as a part of every record is named.
    """

    __slots__ = ("memory", "offset")
    size: ClassVar[int] = 0
    fields: ClassVar[tuple[str, ...]] = ()

    def __init__(self, memory: Memory, offset: int) -> None:
        self.memory = memory
        self.offset = offset

    def __init_subclass__(cls) -> None:
        inherited = cls.fields
        cls.fields = inherited + tuple(get_annotations(cls))
        cls.size = len(cls.fields)
        for place, name in enumerate(cls.fields[len(inherited) :], len(inherited)):
            if hasattr(Record, name):
                raise TypeError(f"{cls.__name__}: expected a name of its own for a field, found {name}")
            setattr(cls, name, _Field(place))


class Header(Record):
    """A record at the beginning of an array: it says what stands behind it, and where.

    Args:
        memory: an array of integers, `[*]`.
    """

    __slots__ = ()

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory, 0)
