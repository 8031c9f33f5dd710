"""What a schema says of each place of the data: the kinds of values that stand there; and their counting.

Sources: the schemas of JsonGrinder.jl (Mandlik, Racinsky, Lisy, Pevny 2022); mean and deviation in one pass
are Welford's (1962), and of two parts Chan's (1979).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite, sqrt

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
class NumberCounts:
    """Numbers at a place: their count, mean, and sum of squared distances from the mean."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float = 0.0
    high: float = 0.0
    whole: bool = True

    def take(self, value: float) -> None:
        """Count a number."""
        self.merge(NumberCounts(1, number := bounded(value), 0.0, number, number, isinstance(value, int)))

    def merge(self, other: NumberCounts) -> None:
        """Add the numbers of another place."""
        if not other.count:
            return
        self.low = min(self.low, other.low) if self.count else other.low
        self.high = max(self.high, other.high) if self.count else other.high
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
class StringCounts:
    """Strings at a place, counted until there are too many distinct ones."""

    count: int = 0
    shortest: int = 0
    longest: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    many: bool = False

    def take(self, text: str, limits: Thresholds, times: int = 1) -> None:
        """Count a string, once or several times."""
        self.shortest = min(self.shortest, len(text)) if self.count else len(text)
        self.longest = max(self.longest, len(text))
        self.count += times
        if not self.many:
            self.counts[text] += times
            self.bound(limits)

    def merge(self, other: StringCounts, limits: Thresholds) -> None:
        """Add the strings of another place."""
        if not other.count:
            return
        self.shortest = min(self.shortest, other.shortest) if self.count else other.shortest
        self.longest = max(self.longest, other.longest)
        self.count += other.count
        self.many = self.many or other.many
        self.counts += other.counts
        self.bound(limits)

    def bound(self, limits: Thresholds) -> None:
        """Keep only a few examples once there are too many distinct strings for a category."""
        if self.many or len(self.counts) > limits.categories:
            self.many = True
            self.counts = Counter(dict(list(self.counts.items())[:EXAMPLES]))

    def kind(self) -> Category | Text:
        """Return what the schema says of them."""
        if not self.many and 2 * len(self.counts) <= self.count:
            return Category(self.count, tuple(self.counts.most_common()))
        return Text(self.count, self.shortest, self.longest, tuple(list(self.counts)[:EXAMPLES]))


@dataclass(slots=True)
class ListCounts:
    """Lists at a place, and what is in them."""

    count: int = 0
    shortest: int = 0
    longest: int = 0
    item: Counts | None = None

    def take(self, length: int) -> Counts:
        """Count a list, and return the place of its items."""
        self.merge_lengths(1, length, length)
        self.item = self.item or Counts()
        return self.item

    def merge(self, other: ListCounts, limits: Thresholds) -> None:
        """Add the lists of another place."""
        if other.count:
            self.merge_lengths(other.count, other.shortest, other.longest)
            self.item = self.item or Counts()
            self.item.merge(other.item or Counts(), limits)

    def merge_lengths(self, count: int, shortest: int, longest: int) -> None:
        """Count lists, knowing how many there are and the lengths between which all lie."""
        self.shortest = min(self.shortest, shortest) if self.count else shortest
        self.longest = max(self.longest, longest)
        self.count += count

    def kind(self, limits: Thresholds) -> ListOf:
        """Return what the schema says of them."""
        assert self.item is not None
        return ListOf(self.count, self.shortest, self.longest, self.item.place(limits))


@dataclass(slots=True)
class ObjectCounts:
    """Objects at a place: as records while their keys are few, then as dictionaries."""

    sizes: ListCounts = field(default_factory=ListCounts)
    total: int = 0  # of all their keys
    fields: dict[str, Counts] = field(default_factory=dict)
    presences: Counter[str] = field(default_factory=Counter)
    keys: StringCounts | None = None  # of a dictionary
    values: Counts | None = None

    def take(self, keys: list[str], limits: Thresholds) -> list[Counts]:
        """Count an object, and return the places of its values."""
        self.sizes.merge_lengths(1, len(keys), len(keys))
        self.total += len(keys)
        if self.keys is None:
            self.presences.update(keys)
            places = [self.fields.setdefault(key, Counts()) for key in keys]
            if len(self.fields) <= MANY_KEYS or not self.is_dictionary(limits):
                return places
            self.collapse(limits)
            assert self.values is not None
            return [self.values] * len(keys)
        assert self.values is not None
        for key in keys:
            self.keys.take(key, limits)
        return [self.values] * len(keys)

    def is_dictionary(self, limits: Thresholds) -> bool:
        """Whether there are more keys than `fields`, and an object has fewer than half of them on average."""
        distinct = len(self.fields)
        return distinct > limits.fields and 2 * self.total < distinct * self.sizes.count

    def collapse(self, limits: Thresholds) -> None:
        """From now on, count keys and values, and no fields."""
        if self.keys is not None:
            return
        self.keys, self.values = StringCounts(), Counts()
        for key, counts in self.fields.items():
            self.keys.take(key, limits, self.presences[key])
            self.values.merge(counts, limits)
        self.fields, self.presences = {}, Counter()

    def merge(self, other: ObjectCounts, limits: Thresholds) -> None:
        """Add the objects of another place."""
        self.sizes.merge_lengths(other.sizes.count, other.sizes.shortest, other.sizes.longest)
        self.total += other.total
        if self.keys is not None or other.keys is not None:
            self.collapse(limits)
            other.collapse(limits)
            assert self.keys is not None
            assert self.values is not None
            assert other.keys is not None
            assert other.values is not None
            self.keys.merge(other.keys, limits)
            self.values.merge(other.values, limits)
            return
        self.presences.update(other.presences)
        for key, counts in other.fields.items():
            self.fields.setdefault(key, Counts()).merge(counts, limits)

    def kind(self, limits: Thresholds) -> Fields | Dictionary:
        """Return what the schema says of them."""
        count = self.sizes.count
        if self.is_dictionary(limits):
            self.collapse(limits)
        if self.keys is None or self.values is None:
            places = {
                key: place.place(limits, absent=count - self.presences[key])
                for key, place in self.fields.items()
            }
            return Fields(count, places)
        key = DataPosition(0, (self.keys.kind(),))
        return Dictionary(count, self.sizes.shortest, self.sizes.longest, key, self.values.place(limits))


@dataclass(slots=True)
class Counts:
    """All that was counted at one place; parts that were not needed are None."""

    nulls: int = 0
    flags: int = 0
    true: int = 0
    numbers: NumberCounts | None = None
    strings: StringCounts | None = None
    lists: ListCounts | None = None
    objects: ObjectCounts | None = None

    def take_flag(self, value: bool) -> None:  # noqa: FBT001 - it is the value
        """Count a bool."""
        self.flags += 1
        self.true += value

    def take_number(self, value: float) -> None:
        """Count a number; one that is not finite is missing."""
        if not isfinite(bounded(value)):
            self.nulls += 1
            return
        self.numbers = self.numbers or NumberCounts()
        self.numbers.take(value)

    def take_string(self, value: str, limits: Thresholds) -> None:
        """Count a string."""
        self.strings = self.strings or StringCounts()
        self.strings.take(value, limits)

    def take_list(self, length: int) -> Counts:
        """Count a list, and return the place of its items."""
        self.lists = self.lists or ListCounts()
        return self.lists.take(length)

    def take_object(self, keys: list[str], limits: Thresholds) -> list[Counts]:
        """Count an object, and return the places of its values."""
        self.objects = self.objects or ObjectCounts()
        return self.objects.take(keys, limits)

    def merge(self, other: Counts, limits: Thresholds) -> None:
        """Add what was counted at another place; that one is not to be used again."""
        self.nulls += other.nulls
        self.flags += other.flags
        self.true += other.true
        if other.numbers is not None:
            self.numbers = self.numbers or NumberCounts()
            self.numbers.merge(other.numbers)
        if other.strings is not None:
            self.strings = self.strings or StringCounts()
            self.strings.merge(other.strings, limits)
        if other.lists is not None:
            self.lists = self.lists or ListCounts()
            self.lists.merge(other.lists, limits)
        if other.objects is not None:
            self.objects = self.objects or ObjectCounts()
            self.objects.merge(other.objects, limits)

    def place(self, limits: Thresholds, absent: int = 0) -> DataPosition:
        """Return the schema of the place, where the value was absent so many times."""
        present: list[Kind] = []
        if self.flags:
            present.append(Flags(self.flags, self.true))
        if self.numbers is not None:
            present.append(self.numbers.kind())
        if self.strings is not None:
            present.append(self.strings.kind())
        if self.lists is not None:
            present.append(self.lists.kind(limits))
        if self.objects is not None:
            present.append(self.objects.kind(limits))
        return DataPosition(self.nulls + absent, tuple(present))


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
