"""The kinds of values that stand at each place of the data, found from all of them.

Sources: the schemas of JsonGrinder.jl (Mandlik, Racinsky, Lisy, Pevny 2022); mean and deviation in one pass
are Welford's (1962).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from itertools import chain
from math import isfinite, sqrt
from typing import Any, NamedTuple

import msgspec

from foldbatch.errors import counted
from foldbatch.schema.moments import Form, Moment, moment_of, written
from foldbatch.schema.values import PLAIN, kind_of, plain_value
from foldbatch.trees.text import shorten

SHOWN_VALUES = 5  # values of a category that are printed


class DataPosition(msgspec.Struct, frozen=True):
    """One place of the data: how often its value was null or absent, and what stood there otherwise."""

    missing: int
    kinds: tuple[Kind, ...]


class Flags(msgspec.Struct, frozen=True, tag="flag", tag_field="kind"):
    """Values true and false."""

    count: int
    true: int


class Number(msgspec.Struct, frozen=True, tag="number", tag_field="kind"):
    """Ints and floats; `whole` says that all are ints. The deviation is 1 where all numbers are equal.

    Schemas that were written before there were `edges` and `values` have none.
    """

    count: int
    mean: float
    deviation: float
    minimum: float
    maximum: float
    whole: bool
    edges: tuple[float, ...] = ()  # ascending; between two neighbours lie about as many numbers as elsewhere
    values: tuple[
        int, ...
    ] = ()  # whole numbers of which there are few, as codes are; the most frequent first


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
    number: Number | None = None  # of texts which nearly all spell a number


class Moments(msgspec.Struct, frozen=True, tag="moment", tag_field="kind"):
    """Strings that are dates, times of day or both, in seconds; the deviation is 1 where all are equal."""

    count: int
    form: Form
    mean: float
    deviation: float
    minimum: float
    maximum: float
    edges: tuple[float, ...] = ()  # as of a `Number`


class ListOf(msgspec.Struct, frozen=True, tag="list", tag_field="kind"):
    """Lists of any length; `item` describes the items of all of them."""

    count: int
    shortest: int
    longest: int
    item: DataPosition


class Fields(msgspec.Struct, frozen=True, tag="record", tag_field="kind"):
    """Objects of a few named fields."""

    count: int
    fields: dict[str, DataPosition]


class Dictionary(msgspec.Struct, frozen=True, tag="dictionary", tag_field="kind"):
    """Objects whose keys are data: there are many keys, and most objects have few of them."""

    count: int
    shortest: int
    longest: int
    key: DataPosition
    value: DataPosition


Kind = Flags | Number | Category | Text | Moments | ListOf | Fields | Dictionary
NESTED = ListOf, Fields, Dictionary
VALUES = {
    "category": "text",
    "dictionary": "record",
    "moment": "text",
}  # how `values.kind_of` calls what stands at such a place


def lines(place: DataPosition, name: str = "", indent: str = "") -> Iterator[str]:
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
    detail = _detail(kind)
    yield f"{lead}{title(kind)} ({counted(kind.count, 'value')}{missing})" + (f": {detail}" if detail else "")
    for name, place in below(kind):
        yield from lines(place, name, indent + "  ")


def below(kind: Kind) -> Sequence[tuple[str, DataPosition]]:
    """Return the places inside a kind, with their names."""
    match kind:
        case ListOf():
            return [("each", kind.item)]
        case Fields():
            return list(kind.fields.items())
        case Dictionary():
            return [("key", kind.key), ("value", kind.value)]
    return []


def _detail(kind: Kind) -> str:
    """Return the figures and examples of a kind of values as one line."""
    match kind:
        case Flags():
            return f"{kind.true:,} true"
        case Number():
            form = "whole, " if kind.whole else ""
            return (
                f"{form}{_span(kind.minimum, kind.maximum)}, mean {kind.mean:.4g}, "
                f"deviation {kind.deviation:.4g}"
            )
        case Category():
            shown = ", ".join(f"{shorten(value)} {count:,}" for value, count in kind.values[:SHOWN_VALUES])
            unlisted = len(kind.values) - SHOWN_VALUES
            return shown + (f" and {unlisted} more" if unlisted > 0 else "")
        case Text():
            shown = ", ".join(map(shorten, kind.examples))
            return f"{_span(kind.shortest, kind.longest)} characters, such as {shown}"
        case Moments():
            first, last = written(kind.form, kind.minimum), written(kind.form, kind.maximum)
            return first if first == last else f"{first} to {last}"
        case ListOf():
            return f"{_span(kind.shortest, kind.longest)} items"
        case Dictionary():
            return f"{_span(kind.shortest, kind.longest)} keys"
        case Fields():
            return "" if kind.fields else "no fields"


def title(kind: Kind) -> str:
    """Return how a kind is called."""
    return str(kind.__struct_config__.tag)


def _span(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


EXAMPLES = 3
QUANTILES = 16  # between which numbers are spread evenly
MOST_CODES = 64  # different whole numbers that may be codes
LONGEST_NUMBER = 40  # characters of a text that spells a number
MOSTLY = 0.9  # the share of texts that spell numbers, from which on they are numbers
MAX_MAGNITUDE = 1e100  # numbers beyond it count as it: their squares must be numbers, too


class Thresholds(NamedTuple):
    """When strings are categories, and when an object is a dictionary; see `foldbatch.schema.infer`."""

    categories: int
    fields: int


def place_of(values: Iterable[object], limits: Thresholds, absent: int = 0) -> DataPosition:
    """Return the entry of a schema for the values at one place, with the number of missing ones.

    >>> place_of([1, None, "a", "a", 3], Thresholds(100, 32)).kinds[1:]
    (Category(count=2, values=(('a', 2),)),)
    """
    of_kind: dict[str | None, list[Any]] = {kind: [] for kind in (*MAKERS, None)}
    for value in values:
        plain = value if type(value) in PLAIN else plain_value(value)
        of_kind[kind_of(plain)].append(plain)
    missing = absent + len(of_kind.pop(None))
    return DataPosition(
        missing, tuple(MAKERS[kind](members, limits) for kind, members in of_kind.items() if members)
    )


def _flags(values: Sequence[bool], limits: Thresholds) -> Flags:
    return Flags(len(values), sum(values))


def _numbers(values: Sequence[float], limits: Thresholds) -> Number:
    """Return mean, deviation and range of numbers, and whether all are whole."""
    integral = all(isinstance(value, int) for value in values)
    numbers = [*map(bounded, values)]
    return Number(
        len(values), *_figures(numbers), integral, _edges(numbers), _codes(values) if integral else ()
    )


def _edges(numbers: Sequence[float]) -> tuple[float, ...]:
    """Return the least number, the greatest, and quantiles between them, each once."""
    ordered = sorted(numbers)
    last = len(ordered) - 1
    return tuple(sorted({ordered[last * place // QUANTILES] for place in range(QUANTILES + 1)}))


def _codes(values: Sequence[float]) -> tuple[int, ...]:
    """Return different whole numbers by how often they occur, if they are few; none where they are many."""
    counts = Counter(values)
    repeated = len(counts) <= MOST_CODES and 2 * len(counts) <= len(values)
    return tuple(int(value) for value, _ in counts.most_common()) if repeated else ()


def _figures(numbers: Sequence[float]) -> tuple[float, float, float, float]:
    """Return mean, deviation, minimum and maximum, computed in one stable pass."""
    mean, squares = 0.0, 0.0
    for count, number in enumerate(numbers, 1):
        distance = number - mean
        squares += distance * distance * ((count - 1) / count)
        mean += distance * (1 / count)
    low, high = min(numbers), max(numbers)
    deviation = sqrt(squares / len(numbers)) if low < high else 0.0
    return mean, deviation or 1.0, low, high


def _moments(values: Sequence[str]) -> Moments | None:
    """Return the figures of dates and times; None where a string is neither, or some have no date."""
    moments: list[Moment] = []
    for value in values:
        moment = moment_of(value)
        if moment is None:
            return None
        moments.append(moment)
    forms = {moment.form for moment in moments}
    if "time" in forms and len(forms) > 1:
        return None
    form: Form = "date-time" if "date-time" in forms else moments[0].form
    seconds = [moment.seconds for moment in moments]
    return Moments(len(values), form, *_figures(seconds), _edges(seconds))


def _strings(values: Sequence[str], limits: Thresholds) -> Category | Text | Moments:
    """Return dates and times, a category or a text."""
    if (moments := _moments(values)) is not None:
        return moments
    counts = Counter(values)
    if len(counts) <= limits.categories and 2 * len(counts) <= len(values):
        return Category(len(values), tuple(counts.most_common()))
    return Text(len(values), *_lengths(values), tuple(counts)[:EXAMPLES], _spelled_numbers(values, limits))


def _spelled_numbers(values: Sequence[str], limits: Thresholds) -> Number | None:
    """Return the figures of the numbers that texts spell, if nearly all do."""
    numbers = [number for number in map(number_in, values) if number is not None]
    return _numbers(numbers, limits) if len(numbers) >= MOSTLY * len(values) else None


SPELLED = re.compile(r"[^0-9+-]{0,3}([-+]?[0-9][0-9,_]*(\.[0-9]*)?([eE][-+]?[0-9]+)?)\D{0,5}")


def number_in(text: str) -> float | None:
    """Return the number that a text spells, with a sign of currency or a unit around it; else None.

    >>> number_in("-1.5"), number_in("1,200 kg"), number_in("6.5.2024")
    (-1.5, 1200.0, None)
    """
    match = SPELLED.fullmatch(text) if len(text) <= LONGEST_NUMBER else None
    return None if match is None else bounded(float(match[1].replace(",", "").replace("_", "")))


def _lists(values: Sequence[Sequence[object]], limits: Thresholds) -> ListOf:
    return ListOf(len(values), *_lengths(values), place_of(chain.from_iterable(values), limits))


def _objects(values: Sequence[Mapping[str, object]], limits: Thresholds) -> Fields | Dictionary:
    """Return a dictionary if keys are many, and an object has fewer than half of them on average."""
    values_of: dict[str, list[object]] = {}
    for value in values:
        for key, inner in value.items():
            values_of.setdefault(str.__str__(key), []).append(inner)
    total, count = sum(map(len, values)), len(values)
    if len(values_of) > limits.fields and 2 * total < len(values_of) * count:
        keys = _strings([key for key, inner in values_of.items() for _ in inner], limits)
        inside = place_of(chain.from_iterable(values_of.values()), limits)
        return Dictionary(count, *_lengths(values), DataPosition(0, (keys,)), inside)
    return Fields(
        count, {key: place_of(inner, limits, count - len(inner)) for key, inner in values_of.items()}
    )


Maker = Callable[[Sequence[Any], Thresholds], Kind]
MAKERS: dict[Any, Maker] = {
    "flag": _flags,
    "number": _numbers,
    "text": _strings,
    "list": _lists,
    "record": _objects,
}


def _lengths(values: Sequence[Sized]) -> tuple[int, int]:
    lengths = list(map(len, values))
    return min(lengths), max(lengths)


def bounded(value: float) -> float:
    """Return a number as a float between -1e100 and 1e100; one that is infinite or no number as it is.

    >>> bounded(3), bounded(10**400), bounded(float("inf"))
    (3.0, 1e+100, inf)
    """
    try:
        number = float(value)
    except OverflowError:  # an int beyond all floats
        return MAX_MAGNITUDE if value > 0 else -MAX_MAGNITUDE
    return max(-MAX_MAGNITUDE, min(MAX_MAGNITUDE, number)) if isfinite(number) else number
