"""What a schema says of each place of the data: the kinds of values that stand there; and their counting.

Sources: the schemas of JsonGrinder.jl (Mandlik, Racinsky, Lisy, Pevny 2022); mean and deviation in one pass
are Welford's (1962), and of two parts Chan's (1979).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, sqrt
from typing import Any, TypeVar

import msgspec

from foldbatch.errors import counted
from foldbatch.trees.text import shorten

SHOWN = 5  # values of a category that are printed


class DataPosition(msgspec.Struct, frozen=True):
    """One place of the data: how often its value was null or absent, and what stood there otherwise."""

    missing: int
    kinds: tuple[Kind, ...]


class Flags(msgspec.Struct, frozen=True, tag="flag", tag_field="kind"):
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


Kind = Flags | Number | Category | Text | ListOf | Fields | Dictionary


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
    said = _detail(kind)
    yield f"{lead}{title(kind)} ({counted(kind.count, 'value')}{missing})" + (f": {said}" if said else "")
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
            shown = ", ".join(f"{shorten(value)} {count:,}" for value, count in kind.values[:SHOWN])
            more = len(kind.values) - SHOWN
            return shown + (f" and {more} more" if more > 0 else "")
        case Text():
            shown = ", ".join(map(shorten, kind.examples))
            return f"{_span(kind.shortest, kind.longest)} characters, such as {shown}"
        case ListOf():
            return f"{_span(kind.shortest, kind.longest)} items"
        case Dictionary():
            return f"{_span(kind.shortest, kind.longest)} keys"
        case Fields():
            return "" if kind.fields else "no fields"


def title(kind: Kind) -> str:
    """Return how a kind is called.

    >>> title(Flags(1, 0))
    'flag'
    """
    return str(kind.__struct_config__.tag)


def _span(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


EXAMPLES = 3
MANY_KEYS = 10_000
LARGEST = 1e100  # numbers beyond it count as it: their squares must be numbers, too


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When strings are categories, and when an object is a dictionary; see `infer`."""

    categories: int
    fields: int


@dataclass(slots=True)
class FlagCounts:
    """Bools at a place."""

    limits: Thresholds
    count: int = 0
    true: int = 0

    def take(self, value: bool) -> None:  # noqa: FBT001 - it is the value
        """Count a bool."""
        self.count += 1
        self.true += value

    def merge(self, other: FlagCounts) -> None:
        """Add the bools of another place."""
        self.count += other.count
        self.true += other.true

    def kind(self) -> Flags:
        """Return what the schema says of them."""
        return Flags(self.count, self.true)


@dataclass(slots=True)
class NumberCounts:
    """Numbers at a place: their count, mean, and sum of squared distances from the mean."""

    limits: Thresholds
    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float = inf
    high: float = -inf
    whole: bool = True

    def take(self, value: float) -> None:
        """Count a number."""
        number, whole = bounded(value), isinstance(value, int)
        self.merge(NumberCounts(self.limits, 1, number, 0.0, number, number, whole))

    def merge(self, other: NumberCounts) -> None:
        """Add the numbers of another place."""
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        count = self.count + other.count
        distance = other.mean - self.mean
        self.squares += other.squares + distance * distance * (self.count * other.count / count)
        self.mean += distance * (other.count / count)
        self.count = count
        self.whole = self.whole and other.whole

    def kind(self) -> Number:
        """Return what the schema says of them."""
        deviation = sqrt(self.squares / self.count) if self.low < self.high else 0.0
        return Number(self.count, self.mean, deviation or 1.0, self.low, self.high, self.whole)


@dataclass(slots=True)
class Sized:
    """Values at a place that have lengths: how many there are, and between which lengths all lie."""

    limits: Thresholds
    count: int = 0
    shortest: int = 0
    longest: int = 0

    def add(self, count: int, shortest: int, longest: int) -> None:
        """Count values, knowing how many there are and the lengths between which all lie."""
        self.shortest = min(self.shortest, shortest) if self.count else shortest
        self.longest = max(self.longest, longest)
        self.count += count


@dataclass(slots=True)
class StringCounts(Sized):
    """Strings at a place, counted until there are too many distinct ones."""

    counts: Counter[str] = field(default_factory=Counter)
    many: bool = False

    def take(self, text: str, times: int = 1) -> None:
        """Count a string, once or several times."""
        self.add(times, len(text), len(text))
        if not self.many:
            self.counts[text] += times
            self.bound()

    def merge(self, other: StringCounts) -> None:
        """Add the strings of another place."""
        self.add(other.count, other.shortest, other.longest)
        self.many = self.many or other.many
        self.counts += other.counts
        self.bound()

    def bound(self) -> None:
        """Keep only a few examples once there are too many distinct strings for a category."""
        if self.many or len(self.counts) > self.limits.categories:
            self.many = True
            self.counts = Counter(dict(list(self.counts.items())[:EXAMPLES]))

    def kind(self) -> Category | Text:
        """Return what the schema says of them."""
        if not self.many and 2 * len(self.counts) <= self.count:
            return Category(self.count, tuple(self.counts.most_common()))
        return Text(self.count, self.shortest, self.longest, tuple(list(self.counts)[:EXAMPLES]))


@dataclass(slots=True)
class ListCounts(Sized):
    """Lists at a place, and what is in them."""

    item: Counts = field(init=False)

    def __post_init__(self) -> None:
        self.item = Counts(self.limits)

    def take(self, length: int) -> Counts:
        """Count a list, and return the place of its items."""
        self.add(1, length, length)
        return self.item

    def merge(self, other: ListCounts) -> None:
        """Add the lists of another place."""
        self.add(other.count, other.shortest, other.longest)
        self.item.merge(other.item)

    def kind(self) -> ListOf:
        """Return what the schema says of them."""
        return ListOf(self.count, self.shortest, self.longest, self.item.place())


@dataclass(slots=True)
class ObjectCounts(Sized):
    """Objects at a place: as records while their keys are few, then as dictionaries."""

    total: int = 0  # of all their keys
    fields: dict[str, Counts] = field(default_factory=dict)
    presences: Counter[str] = field(default_factory=Counter)
    pairs: tuple[StringCounts, Counts] | None = None  # keys and values of a dictionary

    def take(self, keys: list[str]) -> list[Counts]:
        """Count an object, and return the places of its values."""
        self.add(1, len(keys), len(keys))
        self.total += len(keys)
        if self.pairs is None:
            self.presences.update(keys)
            places = [self.fields.setdefault(key, Counts(self.limits)) for key in keys]
            if len(self.fields) > MANY_KEYS and self.is_dictionary():
                return [self.collapsed()[1]] * len(keys)
            return places
        for key in keys:
            self.pairs[0].take(key)
        return [self.pairs[1]] * len(keys)

    def is_dictionary(self) -> bool:
        """Whether there are more keys than `fields`, and an object has fewer than half of them on average."""
        distinct = len(self.fields)
        return distinct > self.limits.fields and 2 * self.total < distinct * self.count

    def collapsed(self) -> tuple[StringCounts, Counts]:
        """Return keys and values, which alone are counted from now on."""
        if self.pairs is None:
            keys, values = self.pairs = StringCounts(self.limits), Counts(self.limits)
            for key, counts in self.fields.items():
                keys.take(key, self.presences[key])
                values.merge(counts)
            self.fields, self.presences = {}, Counter()
        return self.pairs

    def merge(self, other: ObjectCounts) -> None:
        """Add the objects of another place."""
        self.add(other.count, other.shortest, other.longest)
        self.total += other.total
        if self.pairs is not None or other.pairs is not None:
            (keys, values), (other_keys, other_values) = self.collapsed(), other.collapsed()
            keys.merge(other_keys)
            values.merge(other_values)
            return
        self.presences.update(other.presences)
        for key, counts in other.fields.items():
            self.fields.setdefault(key, Counts(self.limits)).merge(counts)

    def kind(self) -> Fields | Dictionary:
        """Return what the schema says of them."""
        if self.pairs is None and not self.is_dictionary():
            absent = {key: self.count - self.presences[key] for key in self.fields}
            return Fields(self.count, {key: part.place(absent[key]) for key, part in self.fields.items()})
        keys, values = self.collapsed()
        key = DataPosition(0, (keys.kind(),))
        return Dictionary(self.count, self.shortest, self.longest, key, values.place())


PARTS = (FlagCounts, NumberCounts, StringCounts, ListCounts, ObjectCounts)  # as a schema has them in turn
P = TypeVar("P", FlagCounts, NumberCounts, StringCounts, ListCounts, ObjectCounts)


@dataclass(slots=True)
class Counts:
    """All that was counted at one place."""

    limits: Thresholds
    nulls: int = 0
    parts: dict[Any, Any] = field(default_factory=dict)  # by their classes

    def of(self, kind: type[P]) -> P:
        """Return the part that counts values of a kind."""
        part: P | None = self.parts.get(kind)
        if part is None:
            part = self.parts[kind] = kind(self.limits)
        return part

    def merge(self, other: Counts) -> None:
        """Add what was counted at another place; that one is not to be used again."""
        self.nulls += other.nulls
        for kind, part in other.parts.items():
            self.of(kind).merge(part)

    def place(self, absent: int = 0) -> DataPosition:
        """Return the schema of the place, where the value was absent so many times."""
        return DataPosition(
            self.nulls + absent, tuple(self.parts[kind].kind() for kind in PARTS if kind in self.parts)
        )


def bounded(value: float) -> float:
    """Return a number as a float between -1e100 and 1e100; one that is infinite or no number as it is.

    >>> bounded(3), bounded(10**400), bounded(float("inf"))
    (3.0, 1e+100, inf)
    """
    try:
        number = float(value)
    except OverflowError:  # an int beyond all floats
        return LARGEST if value > 0 else -LARGEST
    return max(-LARGEST, min(LARGEST, number)) if isfinite(number) else number
