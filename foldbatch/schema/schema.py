"""`infer`: a schema of JSON samples; and `Schema`: printed, kept as plain data, made into a block.

Source: the idea and the kinds are those of JsonGrinder.jl (Mandlik, Racinsky, Lisy and Pevny 2022).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from foldbatch import blocks as fb
from foldbatch.blocks.drafts import is_int
from foldbatch.blocks.layers.layer import finite
from foldbatch.errors import BlockValueError, ExampleError, ExampleTypeError, ModelError, shortened
from foldbatch.model.columns import BadDataError
from foldbatch.schema import kinds
from foldbatch.schema.embedding import ROOT_NAME, Settings, has_texts, place_block, tables_of
from foldbatch.schema.kinds import Thresholds, place_of
from foldbatch.schema.moments import moment_of
from foldbatch.schema.pooling import POOLINGS, added
from foldbatch.schema.values import PLAIN, differing_kind, kind_of, plain_value
from foldbatch.trees.given import rows_of
from foldbatch.types import describe_value

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
        pooling: Sequence[str] = ("mean", "max", "lse"),
        ngram: int = 3,
        buckets: int = 16384,
        dropout: float = 0.0,
        ignored: Sequence[str] = (),
    ) -> fb.Block[Any, Any]:
        """Return a block from a value of such data to a vector ``[N, size]`` of float32.

        | kind | vector |
        |---|---|
        | flag, category | a row of a table; row 0 is for strings that the samples did not have |
        | number | a layer of its distance from the mean, in deviations, and of its place among quantiles |
        | whole numbers, few | the same, and a row of a table |
        | moment | as a number; sine and cosine of year, month, week and day |
        | text | rows of its n-grams and words, which are hashed; their sum over the root of their number |
        | text that spells a number | the same as a text, and as a number |
        | list, dictionary | the items' sum over the root of their number, and two layers of what is pooled |
        | list of texts or ids | the same, and a layer of whether items come again, and of how many do |
        | record | the sum of its fields, and two layers of them side by side |

        Where a place has several vectors, they are added up. So a linear path leads from each value to the
        block's result. The layers of lists and records do not see texts. Categories in fields of one name
        that have a value in common read one table, each place through a layer of its own.

        Nothing that JSON can hold is an error: null and a field that is absent give a vector of zeros. So
        does a value of a kind that the samples did not have at its place, and fields that the samples did
        not have are not read: of both an `UnlikeSamplesWarning` tells, once for each block and place. Values
        of Python that JSON has not are read as `foldbatch.schema.infer` reads them. The block holds functions
        of this package, vocabularies, texts and numbers only.

        Args:
            size: extent of the vector of every place.
            pooling: what layers see of the items of a list, beside the logarithm of 1 + their number: some of
                "mean", "max", "sum", "min", and "lse", the logarithm of the sum of exponentials.
            ngram: characters of an n-gram; with 1, texts are bags of characters and words.
            buckets: rows of the table of n-grams and words, of each place of texts.
            dropout: the share of each hidden layer that is dropped while training.
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
        if not 0 <= finite(dropout, "Schema.block dropout") < 1:
            raise BlockValueError(
                "Schema.block", "dropout from 0 up to 1", describe_value(dropout), "0.5 is usual"
            )
        shared = tables_of(self.root, size)
        twofold = has_texts(self.root)
        settings = Settings(
            size, tuple(pooling), ngram, buckets, float(dropout), tuple(ignored), shared, twofold
        )
        block = place_block(self.root, settings)
        if block is None:
            fix = "infer the schema from samples with values"
            raise BlockValueError("Schema.block", "a schema with values", str(self), fix)
        return block >> fb.Function(added) if twofold else block

    def compare(self, value: object) -> Comparison:
        """Compare a value with the samples: which of its fields, and kinds of values, they did not have.

        Raises:
            BadDataError: when a part of it is no value of JSON and stands for none.

        >>> schema = infer([{"age": 36, "tags": [{"id": 1}]}])
        >>> schema.compare({"age": "36", "tgas": 2, "tags": [{"di": 1}]})
        Comparison(fields=('tgas', 'tags[].di'), kinds=(('age', 'text'),), read=2)
        """
        fields, odd, read = dict[str, None](), dict[tuple[str, str], None](), 0
        waiting: list[tuple[object, kinds.DataPosition, str]] = [(value, self.root, "")]
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
        """List the paths of texts whose examples are numbers or dates in a form that a block does not read.

        It reads them as it reads any text.

        >>> infer([{"when": "6.5.2024", "price": "72.5 €"}, {"when": "17.5.2024"}]).texts_of_values()
        ['when']
        """
        paths = []
        waiting = [("", self.root)]
        while waiting:
            path, place = waiting.pop()
            for kind in place.kinds:
                if (
                    isinstance(kind, kinds.Text)
                    and kind.number is None
                    and all(map(DATE_OR_NUMBER.fullmatch, kind.examples))
                ):
                    paths.append(path or ROOT_NAME)
                named = isinstance(kind, kinds.Fields)
                below = [(name if named else INSIDE[name], inner) for name, inner in kinds.below(kind)]
                joint = "." if named and path else ""
                waiting += [(f"{path}{joint}{name}", inner) for name, inner in reversed(below)]
        return paths

    def to_plain(self) -> dict[str, object]:
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
    waiting: list[tuple[object, _Path, int]] = [(sample, (number,), 0)]
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
