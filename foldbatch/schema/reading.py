"""The functions with which blocks of a schema read values; each returns None for a value of another kind.

A value is read as what it stands for (see `values`). A value that is neither missing nor of a kind that the
samples had at its place is warned of, once; so is a field that they had not.
"""

import re
import warnings
from bisect import bisect_right
from dataclasses import dataclass, field
from math import log1p
from typing import Any
from zlib import crc32

from foldbatch.errors import UnlikeSamplesWarning, frames_inside, with_nearest
from foldbatch.model.columns import Datum
from foldbatch.schema.kinds import MAX_MAGNITUDE, bounded, number_in
from foldbatch.schema.moments import Moment, cycles, moment_of
from foldbatch.schema.values import KINDS, PLAIN, differing_kind, has_content, kind_of, plain_value
from foldbatch.trees.vocabulary import Vocabulary
from foldbatch.types import describe_value

FARTHEST = 10.0  # deviations from the mean; farther numbers are read as this far
MAX_TEXT = 1000  # characters of a text that are read
WORD = re.compile(r"\w+")
BEGIN, END = "\x02", "\x03"  # stand around a text, so that n-grams tell its ends


@dataclass(frozen=True, slots=True)
class Place:
    """A place of the samples: what readers compare values with, and whether they have warned already."""

    path: str  # for example ``tags[].name``
    kinds: tuple[str, ...]  # of the values that the samples had there and that are read
    read: tuple[str, ...] = ()  # fields that are read of a record
    empty: tuple[str, ...] = ()  # fields in which the samples had no values
    ignored: tuple[str, ...] = ()  # fields that no warning names
    names: frozenset[str] = field(init=False, repr=False, compare=False)  # those of `read`
    _fields: frozenset[str] = field(init=False, repr=False, compare=False)
    _warned: set[str] = field(init=False, repr=False, compare=False, default_factory=set)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", frozenset(self.read))
        object.__setattr__(self, "_fields", self.names.union(self.empty, self.ignored))

    def compare_fields(self, record: dict[str, object]) -> None:
        """Warn of fields that no sample had, and of values where the samples had none."""
        if not record.keys() <= self._fields:
            for name in record.keys() - self._fields:
                self._warn(f"field {name}", "fields that the samples had", with_nearest(name, self.read))
        for name in self.empty:
            value = record.get(name)
            if value is not None and has_content(value):
                actual = f"{name}: {describe_value(value)}"
                self._warn(f"value of {name}", "no value, as in the samples", actual)

    def compare(self, value: object) -> None:
        """Warn of a plain value that is of no kind which the samples had here."""
        kind = differing_kind(value, self.kinds)
        if kind is not None:
            expected = " or ".join(f"a {name}" for name in self.kinds)
            self._warn(kind, f"{expected}, as in the samples", describe_value(value))

    def compare_moment(self, text: str) -> None:
        """Warn of a text that is no date or time, where all texts of the samples were."""
        self._warn("moment", "a date or time of ISO 8601, as in the samples", describe_value(text))

    def _warn(self, key: str, expected: str, actual: str) -> None:
        if key not in self._warned:
            fix = "it is not read; convert or rename it, or infer a schema from samples that have it"
            warning = UnlikeSamplesWarning(self.path, expected, actual, fix)
            warnings.warn(warning, stacklevel=frames_inside())
            self._warned.add(key)  # not where a filter made an error of it


# The value comes last, so that a `partial` of the rest is called without making a dict of keywords.


def read_flag(place: Place, value: Datum) -> int | None:
    """Return 0 or 1 for a bool.

    >>> read_flag(ANYWHERE, True), read_flag(ANYWHERE, np.False_), read_flag(ANYWHERE, 1)
    (1, 0, None)
    """
    if type(value) is not bool:
        value = _converted(value, "flag", place)
    return None if value is None else int(value)


def read_number(place: Place, mean: float, deviation: float, value: Datum) -> list[float] | None:
    """Return how many deviations a number is away from the mean, at most 10.

    >>> read_number(ANYWHERE, 3.0, 2.0, 7), read_number(ANYWHERE, 3.0, 2.0, np.float32(-1e9))
    ([2.0], [-10.0])
    """
    kind = type(value)
    if (kind is not float and kind is not int) or not -MAX_MAGNITUDE < value < MAX_MAGNITUDE:
        value = _converted(value, "number", place)
        if value is None:
            return None
        value = bounded(value)
    return [_near((value - mean) / deviation)]


def _near(far: float) -> float:
    return far if -FARTHEST < far < FARTHEST else max(-FARTHEST, min(FARTHEST, far))


def read_category(place: Place, vocabulary: Vocabulary, value: Datum) -> int | None:
    """Return a string's number; 0 for one that the samples did not have.

    >>> read_category(ANYWHERE, Vocabulary(["a", "b"]), "b"), read_category(ANYWHERE, Vocabulary(["a"]), "c")
    (2, 0)
    """
    if type(value) is not str:
        value = _converted(value, "text", place)
    return None if value is None else vocabulary[value]


def read_ngrams(place: Place, size: int, buckets: int, value: Datum) -> list[int] | None:
    """Return a number below `buckets` for each run of `size` characters; the same on every machine.

    >>> long, short = read_ngrams(ANYWHERE, 3, 1000, "abab"), read_ngrams(ANYWHERE, 3, 1000, "ab")
    >>> short == [long[0], long[-1]]
    True
    """
    if type(value) is not str:
        value = _converted(value, "text", place)
        if value is None:
            return None
    text = f"{BEGIN}{value[:MAX_TEXT]}{END}"
    grams = (text[i : i + size] for i in range(max(len(text) - size, 0) + 1))
    return [_hashed(gram, buckets) for gram in grams]


def _moment(place: Place, value: object) -> Moment | None:
    """Return the date or time that a value is, or spells."""
    text = value if type(value) is str else _converted(value, "text", place)
    if text is None:
        return None
    moment = moment_of(text)
    if moment is None:
        place.compare_moment(text)
    return moment


def read_moment(place: Place, mean: float, deviation: float, value: object) -> list[float] | None:
    """Return nine numbers of a date or time: its deviations from the mean, and where it is in its cycles.

    >>> [round(x, 2) for x in read_moment(ANYWHERE, 0.0, 3600.0, "06:00")]
    [6.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    """
    moment = _moment(place, value)
    if moment is None:
        return None
    return [_near((moment.seconds - mean) / deviation), *cycles(moment)]


# What follows reads the same values in more ways than one, for the blocks of schemas that know `edges`.


def place_among(edges: tuple[float, ...], number: float) -> float:
    """Return where a number is among ascending edges: 1.5 is halfway between the second and the third.

    >>> place_among((0.0, 1.0, 5.0), 3.0), place_among((0.0, 1.0, 5.0), 9.0)
    (1.5, 2.0)
    """
    above = bisect_right(edges, number)
    if above == 0:
        return 0.0
    if above == len(edges):
        return above - 1.0
    low = edges[above - 1]
    return above - 1 + (number - low) / (edges[above] - low)


def read_position(
    place: Place, mean: float, deviation: float, edges: tuple[float, ...], value: Datum
) -> list[float] | None:
    """Return how many deviations a number is away from the mean, and its place among edges.

    >>> read_position(ANYWHERE, 3.0, 2.0, (1.0, 3.0, 5.0), 4)
    [0.5, 1.5]
    """
    kind = type(value)
    if (kind is not float and kind is not int) or not -MAX_MAGNITUDE < value < MAX_MAGNITUDE:
        value = _converted(value, "number", place)
        if value is None:
            return None
        value = bounded(value)
    return [_near((value - mean) / deviation), place_among(edges, value)]


def read_code(place: Place, codes: Vocabulary, value: Datum) -> int | None:
    """Return the number of a whole number among those that are codes; 0 for any other number.

    >>> read_code(ANYWHERE, Vocabulary(["22", "7"]), 7), read_code(ANYWHERE, Vocabulary(["22"]), 0.5)
    (2, 0)
    """
    if type(value) is not int:
        value = _converted(value, "number", place)
        if value is None:
            return None
        value = int(value) if value == value // 1 else value
    return codes[str(value)]


def read_tokens(place: Place, size: int, buckets: int, value: Datum) -> list[int] | None:
    """Return a number below `buckets` for each run of `size` characters and each word, in lower case.

    >>> len(read_tokens(ANYWHERE, 3, 1000, "Red wine")), read_tokens(ANYWHERE, 3, 1000, 5)
    (10, None)
    """
    if type(value) is not str:
        value = _converted(value, "text", place)
        if value is None:
            return None
    lower = value[:MAX_TEXT].lower()
    words = [f"{BEGIN}{word}{BEGIN}" for word in WORD.findall(lower)]
    grams = read_ngrams(place, size, buckets, lower) or []
    return [*grams, *(_hashed(word, buckets) for word in words)]


def _hashed(text: str, buckets: int) -> int:
    return crc32(text.encode("utf-8", "surrogatepass")) % buckets


def read_spelled(place: Place, mean: float, deviation: float, value: object) -> list[float] | None:
    """Return the deviations of the number that a text spells, as `read_number`; None where it spells none.

    >>> read_spelled(ANYWHERE, 3.0, 2.0, "7 kg"), read_spelled(ANYWHERE, 3.0, 2.0, "unknown")
    ([2.0], None)
    """
    number = _spelled(place, value)
    return None if number is None else [_near((number - mean) / deviation)]


def read_spelled_position(
    place: Place, mean: float, deviation: float, edges: tuple[float, ...], value: object
) -> list[float] | None:
    """Return the `read_position` of the number that a text spells; None where it spells none."""
    number = _spelled(place, value)
    return None if number is None else [_near((number - mean) / deviation), place_among(edges, number)]


def _spelled(place: Place, value: object) -> float | None:
    text = value if type(value) is str else _converted(value, "text", place)
    return None if text is None else number_in(text)


def read_moment_position(
    place: Place, mean: float, deviation: float, edges: tuple[float, ...], value: object
) -> list[float] | None:
    """Return ten numbers of a date or time: its places in cycles, and what `read_position` returns of it.

    >>> [round(x, 2) for x in read_moment_position(ANYWHERE, 0.0, 3600.0, (0.0, 86400.0), "06:00")][-4:]
    [1.0, 0.0, 6.0, 0.25]
    """
    moment = _moment(place, value)
    if moment is None:
        return None
    seconds = moment.seconds
    return [*cycles(moment), _near((seconds - mean) / deviation), place_among(edges, seconds)]


def read_list(place: Place, value: Datum) -> list[Any] | None:
    """Return a list, or a tuple or an array as a list.

    >>> read_list(ANYWHERE, (1, 2)), read_list(ANYWHERE, "ab")
    ([1, 2], None)
    """
    kind = type(value)
    if kind is list or kind is tuple:
        return list(value)
    items: list[Any] | None = _converted(value, "list", place)
    return items


def read_repeats(place: Place, paths: tuple[tuple[str, ...], ...], value: Datum) -> list[float] | None:
    """Return, for each path into the items of a list, whether values there come again, and how many do.

    The number is the logarithm of 1 + how many more values there are than different ones; missing values
    do not count.

    >>> read_repeats(ANYWHERE, (("id",),), [{"id": "a"}, {"id": "b"}, {"id": "a"}, {"id": None}])
    [1.0, 0.6931471805599453]
    """
    items = read_list(place, value)
    if items is None:
        return None
    figures = []
    for path in paths:
        values = [inner for item in items if isinstance(inner := _at(item, path), str | int)]
        repeats = len(values) - len(set(values))
        figures += [float(repeats > 0), log1p(repeats)]
    return figures


def _at(value: Any, path: tuple[str, ...]) -> Any:
    """Return the plain value at a path of fields; None where there is none."""
    for name in path:
        if type(value) is not dict:
            value = plain_value(value)
        value = value.get(name) if isinstance(value, dict) else None
    return value if type(value) in PLAIN else plain_value(value)


def read_fields(place: Place, value: Datum) -> dict[str, object] | None:
    """Return a dict that has all fields which are read: itself, or one in which what it lacks is None.

    >>> read_fields(Place("record", ("record",), ("a", "b"), ignored=("c",)), {"a": 1, "c": 2})
    {'a': 1, 'b': None}
    """
    if type(value) is not dict:
        value = _converted(value, "record", place)
        if value is None:
            return None
    complete = value.keys() >= place.names
    if len(value) != len(place.names) or not complete:
        place.compare_fields(value)
    return value if complete else {name: value.get(name) for name in place.read}


def read_pairs(place: Place, value: Datum) -> list[tuple[object, object]] | None:
    """Return the keys of a dict with their values.

    >>> read_pairs(ANYWHERE, {"a": 1}), read_pairs(ANYWHERE, None)
    ([('a', 1)], None)
    """
    if type(value) is not dict:
        value = _converted(value, "record", place)
        if value is None:
            return None
    return list(value.items())


def _converted(value: object, kind: str, place: Place) -> Any:
    """Convert a value to a plain one of a kind; None where it is missing, or of another kind."""
    if value is None:
        return None
    plain = plain_value(value)
    actual = kind_of(plain)
    if actual == kind:
        return plain
    if actual is not None and actual not in place.kinds:
        place.compare(plain)
    return None


# By these names models that foldbatch 0.2 saved read values. They know no place, and so warn of nothing.
ANYWHERE = Place("record", tuple(dict.fromkeys(KINDS.values())))


def as_flag(value: object) -> int | None:
    """Read a value as `read_flag` does, at a place without a name."""
    return read_flag(ANYWHERE, value)


def as_number(value: object, mean: float, deviation: float) -> list[float] | None:
    """Read a value as `read_number` does, at a place without a name."""
    return read_number(ANYWHERE, mean, deviation, value)


def as_category(value: object, vocabulary: Vocabulary) -> int | None:
    """Read a value as `read_category` does, at a place without a name."""
    return read_category(ANYWHERE, vocabulary, value)


def as_ngrams(value: object, size: int, buckets: int) -> list[int] | None:
    """Read a value as `read_ngrams` does, at a place without a name."""
    return read_ngrams(ANYWHERE, size, buckets, value)


def as_list(value: object) -> list[object] | None:
    """Read a value as `read_list` does, at a place without a name."""
    return read_list(ANYWHERE, value)


def as_fields(value: object, names: tuple[str, ...]) -> dict[str, object] | None:
    """Return a dict of fields of these names; those that a value lacks are None."""
    record = _converted(value, "record", ANYWHERE)
    return None if record is None else {name: record.get(name) for name in names}


def as_pairs(value: object) -> list[tuple[object, object]] | None:
    """Read a value as `read_pairs` does, at a place without a name."""
    return read_pairs(ANYWHERE, value)
