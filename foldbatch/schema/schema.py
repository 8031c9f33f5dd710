"""`infer`: a schema of JSON samples; and `Schema`: printed, kept as plain data, made into a block.

Source: the idea and the kinds are those of JsonGrinder.jl (Mandlik, Racinsky, Lisy and Pevny 2022).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from foldbatch import blocks as fb
from foldbatch.blocks.drafts import is_int
from foldbatch.errors import BlockValueError, ExampleError, ExampleTypeError, ModelError, shortened
from foldbatch.model.columns import BadDataError
from foldbatch.schema import kinds, reading
from foldbatch.schema.kinds import Thresholds, place_of
from foldbatch.schema.moments import moment_of
from foldbatch.schema.values import PLAIN, differing_kind, kind_of, plain_value
from foldbatch.trees.given import rows_of
from foldbatch.trees.vocabulary import Vocabulary
from foldbatch.types import describe_value

ROOT_NAME = "record"  # what the whole value is called
Pooling = Callable[[], fb.Block[Any, Any]]
POOLINGS: dict[str, Pooling] = {"mean": fb.Mean, "max": fb.Max, "sum": fb.Sum, "min": fb.Min}


@dataclass(frozen=True, slots=True)
class Settings:
    """How places are embedded; see `Schema.block`."""

    size: int
    pooling: tuple[str, ...]
    ngram: int
    buckets: int
    ignored: tuple[str, ...]


Blocks = dict[Any, fb.Block[Any, Any]]


def place_block(place: kinds.DataPosition, settings: Settings, path: str) -> fb.Block[Any, Any] | None:
    """Return the block that embeds a place, or None where the samples had no values."""
    pairs = [(kind, _inner_blocks(kind, settings, path)) for kind in place.kinds]
    pairs = [(kind, inner) for kind, inner in pairs if inner or not isinstance(kind, kinds.NESTED)]
    record = next(((kind, inner) for kind, inner in pairs if isinstance(kind, kinds.Fields)), None)
    fields = {"read": tuple(record[1]), "empty": tuple(record[0].fields.keys() - record[1])} if record else {}
    ignored = () if path else settings.ignored
    names = dict.fromkeys(kinds.VALUES.get(kinds.title(kind), kinds.title(kind)) for kind, _ in pairs)
    of_samples = reading.Place(path or ROOT_NAME, tuple(names), **fields, ignored=ignored)
    blocks = [_kind_block(kind, settings, path, inner, of_samples) for kind, inner in pairs]
    if len(blocks) < 2:
        return blocks[0] if blocks else None
    # Each block yields zeros for values of the other kinds, so none has to be chosen.
    return fb.AllOf(*blocks) >> _joined(settings, path)


def _inner_blocks(kind: kinds.Kind, settings: Settings, path: str) -> Blocks:
    """Return the blocks of the places inside a kind, by field, or by number."""
    match kind:
        case kinds.ListOf():
            places: dict[Any, tuple[kinds.DataPosition, str]] = {0: (kind.item, f"{path}[]")}
        case kinds.Dictionary():
            places = {0: (kind.key, f"{path}.keys"), 1: (kind.value, f"{path}.values")}
        case kinds.Fields():
            fields = kind.fields.items()
            places = {
                name: (inner, f"{path}.{_utf8(name)}" if path else _utf8(name)) for name, inner in fields
            }
        case _:
            return {}
    blocks = {key: place_block(inner, settings, below) for key, (inner, below) in places.items()}
    return {key: block for key, block in blocks.items() if block is not None}


def _utf8(name: str) -> str:
    """Return a name with half surrogates, which parameters cannot have in their names, as escapes."""
    return name.encode("utf-8", "backslashreplace").decode()


def _kind_block(
    kind: kinds.Kind, settings: Settings, path: str, inner: Blocks, place: reading.Place
) -> fb.Block[Any, Any]:
    """Return the block that reads values of a kind at a path, as a vector of the schema's size."""
    read: Callable[..., Any]
    size, name = settings.size, path or ROOT_NAME
    reader_arguments: tuple[Any, ...] = ()
    match kind:
        case kinds.Flags():
            read = reading.read_flag
            block = fb.Scalar("int32") >> fb.Embedding(2, size, name=name)
        case kinds.Number():
            read = reading.read_number
            reader_arguments = kind.mean, kind.deviation
            block = fb.Vector(1) >> fb.Linear(size, "tanh", name=name)
        case kinds.Category():
            read = reading.read_category
            vocabulary = Vocabulary([value for value, _ in kind.values])
            reader_arguments = (vocabulary,)
            block = fb.Scalar("int32") >> fb.Embedding(len(vocabulary), size, name=name)
        case kinds.Text():
            read = reading.read_ngrams
            reader_arguments = settings.ngram, settings.buckets
            gram = fb.Scalar("int32") >> fb.Embedding(settings.buckets, size, name=f"{name}.ngrams")
            block = fb.Map(gram) >> fb.Mean() >> fb.Linear(size, "tanh", name=name)
        case kinds.Moments():
            read = reading.read_moment
            reader_arguments = kind.mean, kind.deviation
            block = fb.Vector(9) >> fb.Linear(size, "tanh", name=name)
        case kinds.ListOf():
            read = reading.read_list
            block = _pooled(inner[0], settings, path)
        case kinds.Dictionary():
            read = reading.read_pairs
            block = _pooled(fb.Record(inner) >> _joined(settings, f"{path}.items"), settings, path)
        case kinds.Fields():
            read = reading.read_fields
            block = fb.Record(inner) >> _joined(settings, path)
    return fb.InputTransform(partial(read, place, *reader_arguments)) >> fb.Optional(block)


def _joined(settings: Settings, path: str) -> fb.Block[Any, Any]:
    return fb.Concat() >> fb.Linear(settings.size, "tanh", name=path or ROOT_NAME)


def _pooled(item: fb.Block[Any, Any], settings: Settings, path: str) -> fb.Block[Any, Any]:
    pooled = fb.AllOf(*(POOLINGS[name]() for name in settings.pooling))
    return fb.Map(item) >> pooled >> _joined(settings, path)


INSIDE = {"each": "[]", "key": ".keys", "value": ".values"}  # how paths go on into lists and dictionaries
DATE_OR_NUMBER = re.compile(
    r"\s*([-+]?[0-9][0-9,_]*(\.[0-9]*)?([eE][-+]?[0-9]+)?\s*%?|[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}"
    r"([T ][0-9:.]+\s*(Z|[-+][0-9:]+)?)?|[0-9]{1,2}:[0-9]{2}(:[0-9.]+)?)\s*"
)
MAX_NESTING = 64  # levels: blocks are nested as deep as the schema is
_FIX = "convert keys with str"
_Path = tuple[Any, ...]  # (the path of what is around, a key or an index); a sample's is (its number,)


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a value is unlike the samples of a schema; see `Schema.compare`.

    Attributes:
        fields: paths of fields that no sample had.
        kinds: paths of values of a kind that no sample had there, each with this kind.
        read: how many of its fields the samples had; of a value that is no record, 1 if it is of their kind.
    """

    fields: tuple[str, ...]
    kinds: tuple[tuple[str, str], ...]
    read: int


@dataclass(frozen=True, slots=True, repr=False)
class Schema:
    """The kinds of values at each place of JSON data, with counts and examples; `str` prints it.

    Attributes:
        root: the place of a whole sample.

    >>> print(infer([{"name": "ada", "age": 36}, {"name": "bob"}]))
    record (2 values)
      name: text (2 values): 3 characters, such as 'ada', 'bob'
      age: number (1 value, 1 missing): whole, 36, mean 36, deviation 1
    """

    root: kinds.DataPosition

    def block(
        self,
        size: int,
        *,
        pooling: Sequence[str] = ("mean", "max"),
        ngram: int = 3,
        buckets: int = 1024,
        ignored: Sequence[str] = (),
    ) -> fb.Block[Any, Any]:
        """Return a block from a value of such data to a vector ``[N, size]`` of float32.

        | kind | vector |
        |---|---|
        | flag, category | a row of an `Embedding`; row 0 is for strings that the samples did not have |
        | number | its distance from the mean in deviations (at most 10), through a `Linear` layer |
        | moment | its distance as of a number; sine and cosine of year, month, week, day; a `Linear` layer |
        | text, of numbers too | the mean of its n-grams' rows, which are hashed; a `Linear` layer |
        | list, dictionary | its items, or pairs of key and value, pooled, through a `Linear` layer |
        | record | its fields side by side, through a `Linear` layer |

        Nothing that JSON can hold is an error: null and a field that is absent give a vector of zeros. So
        does a value of a kind that the samples did not have at its place, and fields that the samples did
        not have are not read: of both an `UnlikeSamplesWarning` tells, once for each block and place. Values
        of Python that JSON has not are read as `foldbatch.schema.infer` reads them. The block holds functions
        of this package, vocabularies, texts and numbers only.

        Args:
            size: extent of the vector of every place.
            pooling: what is taken of the items of a list: some of "mean", "max", "sum", "min".
            ngram: characters of an n-gram; with 1, texts are bags of characters.
            buckets: rows of the table of n-grams.
            ignored: names of more fields that a record may have, such as its label: no warning names them.

        Raises:
            BlockValueError: when the samples had no values at all, or an argument is out of its range.

        >>> model = infer([{"age": 36}, {"age": 40, "tags": ["a"]}]).block(4)
        >>> model.eval({"age": np.int32(38), "tags": None}).shape
        (4,)
        """
        for name, number in (("size", size), ("ngram", ngram), ("buckets", buckets)):
            if not is_int(number) or number < 1:
                expected = f"a positive int as {name}"
                raise BlockValueError("Schema.block", expected, describe_value(number), "for example 64")
        if isinstance(pooling, str) or not pooling or not set(pooling) <= set(POOLINGS):
            expected = f"pooling as some of {', '.join(map(repr, POOLINGS))}"
            fix = "for example ('mean', 'max')"
            raise BlockValueError("Schema.block", expected, describe_value(pooling), fix)
        if isinstance(ignored, str) or not all(isinstance(name, str) for name in ignored):
            fix = "for example ('label',)"
            raise BlockValueError("Schema.block", "ignored as names of fields", describe_value(ignored), fix)
        block = place_block(self.root, Settings(size, tuple(pooling), ngram, buckets, tuple(ignored)), "")
        if block is None:
            fix = "infer the schema from samples with values"
            raise BlockValueError("Schema.block", "a schema with values", str(self), fix)
        return block

    def compare(self, value: object) -> Comparison:
        """Compare a value with the samples: which of its fields, and kinds of values, they did not have.

        Raises:
            BadDataError: when a part of it is no value of JSON and stands for none.

        >>> schema = infer([{"age": 36, "tags": [{"id": 1}]}])
        >>> schema.compare({"age": "36", "tgas": 2, "tags": [{"di": 1}]})
        Comparison(fields=('tgas', 'tags[].di'), kinds=(('age', 'text'),), read=2)
        """
        fields, odd, read = dict[str, None](), dict[tuple[str, str], None](), 0
        waiting: list[tuple[Any, kinds.DataPosition, str]] = [(value, self.root, "")]
        while waiting:
            part, place, path = waiting.pop()
            plain = plain_value(part)
            kind = kind_of(plain)
            of_place = {
                kinds.VALUES.get(kinds.title(entry), kinds.title(entry)): entry for entry in place.kinds
            }
            if kind not in of_place:
                if differing_kind(plain, tuple(of_place)):
                    odd[path or ROOT_NAME, str(kind)] = None
                continue
            match of_place[kind]:
                case kinds.Fields() as record:
                    paths = {name: f"{path}.{name}" if path else str(name) for name in plain}
                    fields |= dict.fromkeys(paths[name] for name in plain if name not in record.fields)
                    inside = [name for name in plain if name in record.fields]
                    read += len(inside)
                    waiting += [(plain[name], record.fields[name], paths[name]) for name in reversed(inside)]
                case kinds.Moments() if moment_of(plain) is None:
                    odd[path or ROOT_NAME, str(kind)] = None
                    continue
                case kinds.ListOf() as items:
                    waiting += [(inner, items.item, f"{path}[]") for inner in plain]
                case kinds.Dictionary() as pairs:
                    waiting += [(key, pairs.key, f"{path}.keys") for key in plain]
                    waiting += [(inner, pairs.value, f"{path}.values") for inner in plain.values()]
            if place is self.root and not isinstance(of_place[kind], kinds.Fields):
                read += 1
        return Comparison(tuple(fields), tuple(odd), read)

    def texts_of_values(self) -> list[str]:
        """List the paths of texts whose examples are all numbers, or dates in another form than ISO 8601.

        A block reads them as n-grams of characters, as it reads any text.

        >>> infer([{"when": "6.5.2024", "on": "2024-05-06"}, {"when": "17.5.2024"}]).texts_of_values()
        ['when']
        """
        paths = []
        waiting = [("", self.root)]
        while waiting:
            path, place = waiting.pop()
            for kind in place.kinds:
                if isinstance(kind, kinds.Text) and all(map(DATE_OR_NUMBER.fullmatch, kind.examples)):
                    paths.append(path or ROOT_NAME)
                named = isinstance(kind, kinds.Fields)
                below = [(name if named else INSIDE[name], inner) for name, inner in kinds.below(kind)]
                joint = "." if named and path else ""
                waiting += [(f"{path}{joint}{name}", inner) for name, inner in reversed(below)]
        return paths

    def to_plain(self) -> dict[str, Any]:
        """Return the schema as data of JSON.

        >>> infer([True, None]).to_plain()
        {'missing': 1, 'kinds': [{'kind': 'flag', 'count': 1, 'true': 1}]}
        """
        plain: dict[str, Any] = json.loads(json.dumps(msgspec.to_builtins(self.root)))  # lists for tuples
        return plain

    @classmethod
    def from_plain(cls, plain: object) -> Schema:
        """Return the schema that `to_plain` has written.

        Raises:
            ModelError: when it is none.

        >>> schema = infer([{"age": 36}])
        >>> Schema.from_plain(schema.to_plain()) == schema
        True
        """
        fix = "give what Schema.to_plain has returned"
        try:
            root = msgspec.convert(plain, kinds.DataPosition)
        except (msgspec.ValidationError, RecursionError) as error:
            raise ModelError("Schema.from_plain", "a schema", str(error), fix) from None
        stack = [(root, 0)]
        while stack:
            place, depth = stack.pop()
            if depth > MAX_NESTING:
                raise ModelError("Schema.from_plain", f"{MAX_NESTING} levels or fewer", "more", fix)
            for kind in place.kinds:
                if isinstance(kind, kinds.Number | kinds.Moments) and not kind.deviation > 0:
                    actual = repr(kind.deviation)
                    raise ModelError("Schema.from_plain", "a deviation above 0", actual, fix)
                if isinstance(kind, kinds.Category) and len(dict(kind.values)) < len(kind.values):
                    raise ModelError("Schema.from_plain", "distinct values of a category", "one twice", fix)
                stack += [(inner, depth + 1) for _, inner in kinds.below(kind)]
        return cls(root)

    def __str__(self) -> str:
        return "\n".join(kinds.lines(self.root))

    def __repr__(self) -> str:
        return f"Schema({shortened(kinds.title(kind) for kind in self.root.kinds)})"


def infer(samples: Iterable[object], *, categories: int = 100, fields: int = 32) -> Schema:
    """Return the schema of JSON samples: of what a value may be at each place.

    Values that JSON has not are read as what they stand for: numbers of NumPy, Arrow and `decimal` are
    numbers, durations seconds, dates and times their text of ISO 8601, arrays and tuples lists; named tuples,
    rows of pandas and objects with fields are records, enums the values of their members. None, NaN,
    infinity, pandas' NA and NaT, and what NumPy masks are missing.

    Args:
        samples: values of dict, list, str, int, float, bool and None, or what stands for such; also a table
            of Arrow, pandas or polars, whose rows are the samples. They may come from a generator; all are
            held at once.
        categories: strings at a place are a category if there are at most so many distinct ones, and they
            occur twice on average or more; else they are text.
        fields: objects at a place are a dictionary if they have more distinct keys than this, and each
            object has fewer than half of them on average; else they are a record.

    Raises:
        ExampleTypeError: when a sample holds anything else, or `samples` is one sample rather than several.
        ExampleError: when there are no samples, or one is nested deeper than 64 levels.

    >>> print(infer([{"tags": ["x", "y", "x", "x"]}, {"tags": None}]))
    record (2 values)
      tags: list (1 value, 1 missing): 4 items
        each: category (4 values): 'x' 3, 'y' 1
    """
    iterable = rows_of(samples)
    if isinstance(iterable, str | bytes | dict) or not isinstance(iterable, Iterable):
        raise ExampleTypeError("infer", "a list of samples", describe_value(samples), "write [sample]")
    listed = list(iterable)
    for number, sample in enumerate(listed):
        _check(sample, number)
    if not listed:
        raise ExampleError("infer", "one sample or more", "none", "check where they are read from")
    return Schema(place_of(listed, Thresholds(categories, fields)))


def _check(sample: object, number: int) -> None:
    """Raise an error with the path of a part of a sample that a schema cannot describe."""
    waiting: list[tuple[Any, _Path, int]] = [(sample, (number,), 0)]
    while waiting:
        value, path, depth = waiting.pop()
        if type(value) not in PLAIN:
            try:
                value = plain_value(value)
            except BadDataError as error:
                raise error.kind(_where(path), error.expected, error.found, error.fix) from None
        if isinstance(value, list | dict):
            if depth == MAX_NESTING:
                fix = "describe data of any depth, such as trees, with ForwardDeclaration"
                raise ExampleError(_where(path), f"{MAX_NESTING} levels or fewer", "more", fix)
            if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
                raise ExampleTypeError(_where(path), "keys of str", describe_value(value), _FIX)
            inside = list(value.items() if isinstance(value, dict) else enumerate(value))
            waiting += [(inner, (path, step), depth + 1) for step, inner in reversed(inside)]


def _where(path: _Path) -> str:
    steps = []
    while len(path) > 1:
        path, step = path
        steps.append(f"[{step!r}]")
    return f"samples[{path[0]}]" + "".join(reversed(steps))
