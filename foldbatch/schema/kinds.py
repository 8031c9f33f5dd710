"""What a schema says: for each place of the data, the kinds of values that stand there.

These are plain data that `msgspec` converts to JSON and back. A place with several kinds is mixed. A place
without any was always null, or never seen.

Source: the schemas of JsonGrinder.jl (Mandlik, Racinsky, Lisy and Pevny 2022).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from foldbatch.errors import counted
from foldbatch.trees.text import shorten

SHOWN = 5  # values of a category that are printed


class Place(msgspec.Struct, frozen=True):
    """One place of the data: how often its value was null or absent, and what stood there otherwise."""

    missing: int
    kinds: tuple[Kind, ...]


class Flag(msgspec.Struct, frozen=True, tag="flag", tag_field="kind"):
    """Values true and false."""

    count: int
    true: int


class Number(msgspec.Struct, frozen=True, tag="number", tag_field="kind"):
    """Ints and floats; `whole` says that all are ints. The deviation is 1 where all numbers are equal."""

    count: int
    mean: float
    deviation: float
    minimum: float
    maximum: float
    whole: bool


class Category(msgspec.Struct, frozen=True, tag="category", tag_field="kind"):
    """Strings of which there are few, with their counts, the most frequent first."""

    count: int
    values: tuple[tuple[str, int], ...]


class Text(msgspec.Struct, frozen=True, tag="text", tag_field="kind"):
    """Strings of which there are many; lengths are in characters."""

    count: int
    shortest: int
    longest: int
    examples: tuple[str, ...]


class Items(msgspec.Struct, frozen=True, tag="list", tag_field="kind"):
    """Lists of any length; `item` describes the items of all of them."""

    count: int
    shortest: int
    longest: int
    item: Place


class Fields(msgspec.Struct, frozen=True, tag="record", tag_field="kind"):
    """Objects of a few named fields."""

    count: int
    fields: dict[str, Place]


class Dictionary(msgspec.Struct, frozen=True, tag="dictionary", tag_field="kind"):
    """Objects whose keys are data: there are many keys, and most objects have few of them."""

    count: int
    shortest: int
    longest: int
    key: Place
    value: Place


Kind = Flag | Number | Category | Text | Items | Fields | Dictionary


def lines(place: Place, name: str = "", indent: str = "") -> Iterator[str]:
    """Yield the lines that show a place and all below it."""
    lead = indent + (f"{name}: " if name else "")
    missing = f", {place.missing:,} missing" if place.missing else ""
    if not place.kinds:
        yield f"{lead}nothing{missing}"
    elif len(place.kinds) == 1:
        yield from _kind_lines(place.kinds[0], lead, missing, indent)
    else:
        yield f"{lead}mixed ({len(place.kinds)} kinds{missing})"
        for kind in place.kinds:
            yield from _kind_lines(kind, indent + "  ", "", indent + "  ")


def _kind_lines(kind: Kind, lead: str, missing: str, indent: str) -> Iterator[str]:
    said = _detail(kind)
    yield f"{lead}{title(kind)} ({counted(kind.count, 'value')}{missing})" + (f": {said}" if said else "")
    for name, place in below(kind):
        yield from lines(place, name, indent + "  ")


def below(kind: Kind) -> Sequence[tuple[str, Place]]:
    """Return the places inside a kind, with their names."""
    match kind:
        case Items():
            return [("each", kind.item)]
        case Fields():
            return list(kind.fields.items())
        case Dictionary():
            return [("key", kind.key), ("value", kind.value)]
    return []


def _detail(kind: Kind) -> str:
    match kind:
        case Flag():
            return f"{kind.true:,} true"
        case Number():
            form = "whole, " if kind.whole else ""
            return (
                f"{form}{_span(kind.minimum, kind.maximum)}, mean {kind.mean:.4g}, "
                f"deviation {kind.deviation:.4g}"
            )
        case Category():
            shown = ", ".join(f"{shorten(value)} {count:,}" for value, count in kind.values[:SHOWN])
            more = len(kind.values) - SHOWN
            return shown + (f" and {more} more" if more > 0 else "")
        case Text():
            shown = ", ".join(map(shorten, kind.examples))
            return f"{_span(kind.shortest, kind.longest)} characters, such as {shown}"
        case Items():
            return f"{_span(kind.shortest, kind.longest)} items"
        case Dictionary():
            return f"{_span(kind.shortest, kind.longest)} keys"
        case Fields():
            return "" if kind.fields else "no fields"


def title(kind: Kind) -> str:
    """Return how a kind is called.

    >>> title(Flag(1, 0))
    'flag'
    """
    return str(kind.__struct_config__.tag)


def _span(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
