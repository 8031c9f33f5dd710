"""`infer`: a schema of JSON samples; and `Schema`: printed, kept as plain data, made into a block.

Source: the idea and the kinds are those of JsonGrinder.jl (Mandlik, Racinsky, Lisy and Pevny 2022).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from foldbatch import blocks as fb
from foldbatch.blocks.drafts import is_int
from foldbatch.errors import BlockValueError, ExampleError, ExampleTypeError, ModelError, shortened
from foldbatch.schema import kinds, reading
from foldbatch.schema.kinds import Thresholds, place_of
from foldbatch.trees.given import rows_of
from foldbatch.trees.vocabulary import Vocabulary
from foldbatch.types import describe_value

WHOLE = "record"  # what the whole value is called
Pooling = Callable[[], fb.Block[Any, Any]]
POOLINGS: dict[str, Pooling] = {"mean": fb.Mean, "max": fb.Max, "sum": fb.Sum, "min": fb.Min}


@dataclass(frozen=True, slots=True)
class Settings:
    """How places are embedded; see `Schema.block`."""

    size: int
    pooling: tuple[str, ...]
    ngram: int
    buckets: int


def place_block(place: kinds.DataPosition, settings: Settings, path: str) -> fb.Block[Any, Any] | None:
    """Return the block that embeds a place, or None where the samples had no values."""
    blocks = [block for kind in place.kinds if (block := _kind_block(kind, settings, path)) is not None]
    if len(blocks) < 2:
        return blocks[0] if blocks else None
    # Each block yields zeros for values of the other kinds, so none has to be chosen.
    return fb.AllOf(*blocks) >> _joined(settings, path)


def _kind_block(kind: kinds.Kind, settings: Settings, path: str) -> fb.Block[Any, Any] | None:
    read: Callable[[Any], Any]
    size, name = settings.size, path or WHOLE
    match kind:
        case kinds.Flags():
            return _read(reading.as_flag, fb.Scalar("int32") >> fb.Embedding(2, size, name=name))
        case kinds.Number():
            read = partial(reading.as_number, mean=kind.mean, deviation=kind.deviation)
            return _read(read, fb.Vector(1) >> fb.Linear(size, "tanh", name=name))
        case kinds.Category():
            vocabulary = Vocabulary([value for value, _ in kind.values])
            read = partial(reading.as_category, vocabulary=vocabulary)
            return _read(read, fb.Scalar("int32") >> fb.Embedding(len(vocabulary), size, name=name))
        case kinds.Text():
            read = partial(reading.as_ngrams, size=settings.ngram, buckets=settings.buckets)
            gram = fb.Scalar("int32") >> fb.Embedding(settings.buckets, size, name=f"{name}.ngrams")
            return _read(read, fb.Map(gram) >> fb.Mean() >> fb.Linear(size, "tanh", name=name))
        case kinds.ListOf():
            item = place_block(kind.item, settings, f"{path}[]")
            return None if item is None else _read(reading.as_list, _pooled(item, settings, path))
        case kinds.Dictionary():
            inner = {0: (kind.key, settings, f"{path}.keys"), 1: (kind.value, settings, f"{path}.values")}
            pair = {number: place_block(*of) for number, of in inner.items()}
            blocks = {number: block for number, block in pair.items() if block is not None}
            pairs = fb.Record(blocks) >> _joined(settings, f"{path}.items")
            return _read(reading.as_pairs, _pooled(pairs, settings, path))
        case kinds.Fields():
            paths = {name: f"{path}.{name}" if path else str(name) for name in kind.fields}
            fields = {name: place_block(inner, settings, paths[name]) for name, inner in kind.fields.items()}
            named = {name: block for name, block in fields.items() if block is not None}
            read = partial(reading.as_fields, names=tuple(named))
            return _read(read, fb.Record(named) >> _joined(settings, path)) if named else None


def _read(read: Callable[[Any], Any], block: fb.Block[Any, Any]) -> fb.Block[Any, Any]:
    return fb.InputTransform(read) >> fb.Optional(block)


def _joined(settings: Settings, path: str) -> fb.Block[Any, Any]:
    return fb.Concat() >> fb.Linear(settings.size, "tanh", name=path or WHOLE)


def _pooled(item: fb.Block[Any, Any], settings: Settings, path: str) -> fb.Block[Any, Any]:
    pooled = fb.AllOf(*(POOLINGS[name]() for name in settings.pooling))
    return fb.Map(item) >> pooled >> _joined(settings, path)


DEEPEST = 64  # levels: blocks are nested as deep as the schema is
_FIX = "give samples as read_json and read_jsonlines do"
_Path = tuple[Any, ...]  # (the path of what is around, a key or an index); a sample's is (its number,)


@dataclass(frozen=True, slots=True, repr=False)
class Schema:
    """What stands at each place of JSON data, with counts and examples; `str` prints it.

    Attributes:
        root: the place of a whole sample.

    >>> print(infer([{"name": "ada", "age": 36}, {"name": "bob"}]))
    record (2 values)
      name: text (2 values): 3 characters, such as 'ada', 'bob'
      age: number (1 value, 1 missing): whole, 36, mean 36, deviation 1
    """

    root: kinds.DataPosition

    def block(
        self, size: int, *, pooling: Sequence[str] = ("mean", "max"), ngram: int = 3, buckets: int = 1024
    ) -> fb.Block[Any, Any]:
        """Return a block from a value of such data to a vector ``[N, size]`` of float32.

        | kind | vector |
        |---|---|
        | flag, category | a row of an `Embedding`; row 0 is for strings that the samples did not have |
        | number | its distance from the mean in deviations (at most 10), through a `Linear` layer |
        | text | the mean of the rows of its n-grams, which are hashed, through a `Linear` layer |
        | list, dictionary | its items, or pairs of key and value, pooled, through a `Linear` layer |
        | record | its fields side by side, through a `Linear` layer |

        Nothing that JSON can hold is an error: null, a field that is absent, and a value of a kind that the
        samples did not have at its place give a vector of zeros; fields that the samples did not have are
        not read. The block holds functions of this package, vocabularies and numbers only.

        Args:
            size: extent of the vector of every place.
            pooling: what is taken of the items of a list: some of "mean", "max", "sum", "min".
            ngram: characters of an n-gram; with 1, texts are bags of characters.
            buckets: rows of the table of n-grams.

        Raises:
            BlockValueError: when the samples had no values at all, or an argument is out of its range.

        >>> model = infer([{"age": 36}, {"age": 40, "tags": ["a"]}]).block(4)
        >>> model.eval({"age": "unknown", "tags": None, "extra": 1}).shape
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
        block = place_block(self.root, Settings(size, tuple(pooling), ngram, buckets), "")
        if block is None:
            fix = "infer the schema from samples with values"
            raise BlockValueError("Schema.block", "a schema with values", str(self), fix)
        return block

    def fields_of(self, value: Any) -> tuple[int, list[str]]:
        """Return how many fields of a value the samples had, and the paths of those that they had not.

        >>> infer([{"age": 36, "tags": [{"id": 1}]}]).fields_of({"age": 1, "tgas": 2, "tags": [{"di": 1}]})
        (2, ['tgas', 'tags[].di'])
        """
        known, unknown = 0, dict[str, None]()
        stack: list[tuple[Any, kinds.DataPosition, str]] = [(value, self.root, "")]
        while stack:
            found, place, path = stack.pop()
            fields = next((k.fields for k in place.kinds if isinstance(k, kinds.Fields)), None)
            item = next((k.item for k in place.kinds if isinstance(k, kinds.ListOf)), None)
            if isinstance(found, dict) and fields is not None:
                named = {name: f"{path}.{name}" if path else str(name) for name in found}
                unknown |= dict.fromkeys(named[name] for name in found if name not in fields)
                inside = [name for name in found if name in fields]
                known += len(inside)
                stack += [(found[name], fields[name], named[name]) for name in inside]
            elif isinstance(found, list | tuple) and item is not None:
                stack += [(inner, item, f"{path}[]") for inner in found]
        return known, list(unknown)

    def to_plain(self) -> dict[str, Any]:
        """Return the schema as data of JSON.

        >>> infer([True, None]).to_plain()
        {'missing': 1, 'kinds': [{'kind': 'flag', 'count': 1, 'true': 1}]}
        """
        plain: dict[str, Any] = json.loads(json.dumps(msgspec.to_builtins(self.root)))  # lists for tuples
        return plain

    @classmethod
    def from_plain(cls, plain: Any) -> Schema:
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
            if depth > DEEPEST:
                raise ModelError("Schema.from_plain", f"{DEEPEST} levels or fewer", "more", fix)
            for kind in place.kinds:
                if isinstance(kind, kinds.Number) and not kind.deviation > 0:
                    found = repr(kind.deviation)
                    raise ModelError("Schema.from_plain", "a deviation above 0", found, fix)
                if isinstance(kind, kinds.Category) and len(dict(kind.values)) < len(kind.values):
                    raise ModelError("Schema.from_plain", "distinct values of a category", "one twice", fix)
                stack += [(inner, depth + 1) for _, inner in kinds.below(kind)]
        return cls(root)

    def __str__(self) -> str:
        return "\n".join(kinds.lines(self.root))

    def __repr__(self) -> str:
        return f"Schema({shortened(kinds.title(kind) for kind in self.root.kinds)})"


def infer(samples: Iterable[Any], *, categories: int = 100, fields: int = 32) -> Schema:
    """Return the schema of JSON samples: of what a value may be at each place.

    Numbers that are not finite count as missing. Samples may come from a generator; all are held at once.

    Args:
        samples: values of dict, list, str, int, float, bool and None, or Arrow data.
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
    given = rows_of(samples)
    if isinstance(given, str | bytes | dict) or not isinstance(given, Iterable):
        raise ExampleTypeError("infer", "a list of samples", describe_value(samples), "write [sample]")
    held = list(given)
    for number, sample in enumerate(held):
        _check(sample, number)
    if not held:
        raise ExampleError("infer", "one sample or more", "none", "check where they are read from")
    return Schema(place_of(held, Thresholds(categories, fields)))


def _check(sample: Any, number: int) -> None:
    stack: list[tuple[Any, _Path, int]] = [(sample, (number,), 0)]
    while stack:
        value, path, depth = stack.pop()
        if isinstance(value, list | tuple | dict):
            if depth == DEEPEST:
                fix = "describe data of any depth, such as trees, with ForwardDeclaration"
                raise ExampleError(_where(path), f"{DEEPEST} levels or fewer", "more", fix)
            if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
                raise ExampleTypeError(_where(path), "keys of str", describe_value(value), _FIX)
            inside = list(value.items() if isinstance(value, dict) else enumerate(value))
            stack += [(inner, (path, step), depth + 1) for step, inner in reversed(inside)]
        elif not isinstance(value, str | int | float | None):
            raise ExampleTypeError(_where(path), "a value of JSON", describe_value(value), _FIX)


def _where(path: _Path) -> str:
    steps = []
    while len(path) > 1:
        path, step = path
        steps.append(f"[{step!r}]")
    return f"samples[{path[0]}]" + "".join(reversed(steps))
