"""Places as vectors: the block that a schema makes of each kind of values.

Each place is a vector of one size. That of a record is the sum of its fields' vectors, and that of a list the
sum of its items' over the root of their number. So from every value there is a linear path to the answer, as
in a linear model of bags, which little data suffice for. Beside it a layer with dropout reads fields, or
pooled items, side by side, and adds what they say only together.

Sources: Mandlik, Racinsky, Lisy and Pevny 2022, JsonGrinder.jl; Cheng et al. 2016, Wide and Deep Learning for
Recommender Systems; Gorishniy, Rubachev and Babenko 2022, On Embeddings for Numerical Features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch import blocks as fb
from foldbatch.schema import kinds, reading
from foldbatch.schema.pooling import POOLINGS, doubled, faint, log_count, over_root, seen_of, steps, unseen
from foldbatch.static import ops
from foldbatch.trees.vocabulary import Vocabulary

ROOT_NAME = "record"  # what the whole value is called
SPREAD = 0.01  # of the first numbers of tables: rows that training never sees stay without a say

AnyBlock = fb.Block[Any, Any]


@dataclass(frozen=True, slots=True)
class Settings:
    """How places are embedded; see `foldbatch.schema.Schema.block`."""

    size: int
    pooling: tuple[str, ...]
    ngram: int
    buckets: int
    dropout: float
    ignored: tuple[str, ...]
    shared: Mapping[str, Shared]  # the tables that several places have in common
    twofold: bool = False  # whether vectors are two side by side: what is added up, and what layers see


@dataclass(frozen=True, slots=True)
class Shared:
    """A table of texts that several places read, which have fields of one name: what they hold is alike."""

    vocabulary: Vocabulary
    table: AnyBlock


def tables_of(root: kinds.DataPosition, size: int) -> dict[str, Shared]:
    """Return a table for each name that several fields have whose categories have a value in common."""
    values: dict[str, list[tuple[str, ...]]] = {}
    for name, kind in _named(root, ""):
        if isinstance(kind, kinds.Category):
            values.setdefault(name, []).append(tuple(value for value, _ in kind.values))
    shared = {}
    for name, sets in values.items():
        if len(sets) > 1 and set.intersection(*map(set, sets)):
            vocabulary = Vocabulary(dict.fromkeys(value for of_place in sets for value in of_place))
            shared[name] = Shared(vocabulary, _table(len(vocabulary), size, f"every.{_utf8(name)}"))
    return shared


def has_texts(root: kinds.DataPosition) -> bool:
    """Return whether texts stand anywhere in the data: strings that are no category and no moment."""
    return any(isinstance(kind, kinds.Text) for _, kind in _named(root, ""))


def _named(place: kinds.DataPosition, name: str) -> Iterator[tuple[str, kinds.Kind]]:
    """Yield the kinds of a place and of all below it, with the names of the fields that they stand in."""
    for kind in place.kinds:
        yield name, kind
        for inner_name, inner in kinds.below(kind):
            yield from _named(inner, inner_name if isinstance(kind, kinds.Fields) else name)


def small(generator: np.random.Generator, shape: Sequence[int]) -> NDArray[np.float64]:
    """Return the first numbers of a table: random ones close to 0."""
    return generator.normal(0.0, SPREAD, tuple(shape))


def place_block(
    place: kinds.DataPosition, settings: Settings, path: str = "", field: str = ""
) -> AnyBlock | None:
    """Return the block that embeds a place, or None where the samples had no values.

    Args:
        place: what the samples had there.
        settings: how it is embedded.
        path: of the place, from the whole value on.
        field: the name of the field that it stands in.
    """
    pairs = [(kind, _inner_blocks(kind, settings, path, field)) for kind in place.kinds]
    pairs = [(kind, inner) for kind, inner in pairs if inner or not isinstance(kind, kinds.NESTED)]
    record = next(((kind, inner) for kind, inner in pairs if isinstance(kind, kinds.Fields)), None)
    fields = {"read": tuple(record[1]), "empty": tuple(record[0].fields.keys() - record[1])} if record else {}
    ignored = () if path else settings.ignored
    names = dict.fromkeys(kinds.VALUES.get(kinds.title(kind), kinds.title(kind)) for kind, _ in pairs)
    of_samples = reading.Place(path or ROOT_NAME, tuple(names), **fields, ignored=ignored)
    blocks = [
        block
        for kind, inner in pairs
        for block in _kind_blocks(kind, settings, path, field, inner, of_samples)
    ]
    if len(blocks) < 2:
        return blocks[0] if blocks else None
    # Each block yields zeros for values that it does not read, so none has to be chosen.
    return fb.AllOf(*blocks) >> fb.Sum()


def _inner_blocks(kind: kinds.Kind, settings: Settings, path: str, field: str) -> dict[Any, AnyBlock]:
    """Return the blocks of the places inside a kind, by field, or by number."""
    match kind:
        case kinds.ListOf():
            places: dict[Any, tuple[kinds.DataPosition, str, str]] = {0: (kind.item, f"{path}[]", field)}
        case kinds.Dictionary():
            places = {0: (kind.key, f"{path}.keys", field), 1: (kind.value, f"{path}.values", field)}
        case kinds.Fields():
            places = {
                name: (inner, f"{path}.{_utf8(name)}" if path else _utf8(name), name)
                for name, inner in kind.fields.items()
            }
        case _:
            return {}
    blocks = {key: place_block(inner, settings, *below) for key, (inner, *below) in places.items()}
    return {key: block for key, block in blocks.items() if block is not None}


def _utf8(name: str) -> str:
    """Return a name with half surrogates, which parameters cannot have in their names, as escapes."""
    return name.encode("utf-8", "backslashreplace").decode()


def _kind_blocks(
    kind: kinds.Kind,
    settings: Settings,
    path: str,
    field: str,
    inner: dict[object, AnyBlock],
    place: reading.Place,
) -> Iterator[AnyBlock]:
    """Yield the blocks that read values of a kind at a path; their vectors are to be added up."""
    size, name = settings.size, path or ROOT_NAME
    seen = partial(_followed, by=doubled if settings.twofold else None)
    match kind:
        case kinds.Flags():
            yield _read(place, reading.read_flag, (), seen(_row(_table(2, size, name))))
        case kinds.Number():
            read, figures, layer = _number(reading.read_number, reading.read_position, kind, size, name)
            yield _read(place, read, figures, seen(layer))
            if kind.values:
                codes = Vocabulary([*map(str, kind.values)])
                row = _row(_table(len(codes), size, f"{name}.codes"))
                yield _read(place, reading.read_code, (codes,), seen(row))
        case kinds.Category():
            shared = settings.shared.get(field)
            if shared is None:
                vocabulary = Vocabulary([value for value, _ in kind.values])
                row = _row(_table(len(vocabulary), size, name))
            else:
                vocabulary, row = shared.vocabulary, _row(shared.table) >> fb.Linear(size, name=name)
            yield _read(place, reading.read_category, (vocabulary,), seen(row))
        case kinds.Text():
            token = _row(_table(settings.buckets, size, f"{name}.ngrams"))
            tokens = settings.ngram, settings.buckets
            bag = fb.Map(token) >> _root_sum() >> fb.Function(unseen)
            yield _read(place, reading.read_tokens, tokens, bag)
            if kind.number is not None:
                spelled = reading.read_spelled, reading.read_spelled_position
                read, figures, layer = _number(*spelled, kind.number, size, f"{name}.number")
                yield _read(place, read, figures, seen(layer))
        case kinds.Moments():
            read, figures, layer = _number(
                reading.read_moment, reading.read_moment_position, kind, size, name
            )
            yield _read(place, read, figures, seen(layer))
        case kinds.ListOf():
            yield _read(place, reading.read_list, (), _pooled(inner[0], settings, path))
            if paths := _identifiers(kind.item):
                layer = fb.Vector(2 * len(paths)) >> fb.Linear(size, name=f"{name}.repeats")
                yield _read(place, reading.read_repeats, (paths,), seen(layer))
        case kinds.Dictionary():
            pair = fb.Record(inner) >> _together(settings, f"{path}.items", len(inner))
            yield _read(place, reading.read_pairs, (), _pooled(pair, settings, path))
        case kinds.Fields():
            yield _read(
                place, reading.read_fields, (), fb.Record(inner) >> _together(settings, path, len(inner))
            )


def _identifiers(item: kinds.DataPosition) -> tuple[tuple[str, ...], ...]:
    """Return the paths, from an item of a list on, to texts and whole numbers of which there are many."""
    paths: list[tuple[str, ...]] = []
    for kind in item.kinds:
        match kind:
            case kinds.Text():
                paths.append(())
            case kinds.Number() if kind.whole and not kind.values:
                paths.append(())
            case kinds.Fields():
                paths += [
                    (name, *path) for name, inner in kind.fields.items() for path in _identifiers(inner)
                ]
    return tuple(dict.fromkeys(paths))


def _read(
    place: reading.Place, read: Callable[..., Any], arguments: tuple[object, ...], block: AnyBlock
) -> AnyBlock:
    """Return a block that reads a value and embeds it; zeros for one that is missing or of another kind."""
    return fb.InputTransform(partial(read, place, *arguments)) >> fb.Optional(block)


def _table(rows: int, size: int, name: str) -> AnyBlock:
    return fb.Embedding(rows, size, small, name=name)


def _row(table: AnyBlock) -> AnyBlock:
    return fb.Scalar("int32") >> table


def _number(
    alone: Callable[..., object],
    placed: Callable[..., object],
    kind: kinds.Number | kinds.Moments,
    size: int,
    name: str,
) -> tuple[Callable[..., Any], tuple[Any, ...], AnyBlock]:
    """Return the reader of a number, its arguments, and a layer of its deviations and place among edges.

    A schema that knows no edges, or one, has the deviations `alone`.
    """
    width = 9 if isinstance(kind, kinds.Moments) else 1
    layer = fb.Linear(size, name=name)
    figures = kind.mean, kind.deviation
    if len(kind.edges) < 2:
        return alone, figures, fb.Vector(width) >> layer
    placed_in_steps = fb.Function(partial(steps, count=len(kind.edges) - 1))
    return placed, (*figures, kind.edges), fb.Vector(width + 1) >> placed_in_steps >> layer


def _root_sum() -> AnyBlock:
    return fb.AllOf(fb.Sum(), fb.Length()) >> fb.Function(over_root)


def _together(settings: Settings, path: str, count: int) -> AnyBlock:
    """Return a block of a record of `count` vectors: their sum, and what layers make of them side by side."""
    side_by_side = _followed(fb.Concat(), partial(seen_of, count=count) if settings.twofold else None)
    return fb.AllOf(fb.Sum(), side_by_side >> _deep(settings, path)) >> fb.Function(ops.add)


def _pooled(item: AnyBlock, settings: Settings, path: str) -> AnyBlock:
    """Return a block of a list: the sum of its items over a root, and layers of what is pooled."""
    pools = [POOLINGS[name]() for name in settings.pooling]
    if settings.twofold:
        pools = [fb.Map(fb.Function(partial(seen_of, count=1))) >> pool for pool in pools]
    count = fb.Length() >> fb.Function(log_count)
    deep = fb.AllOf(*pools, count) >> fb.Concat() >> _deep(settings, f"{path}[]")
    return fb.Map(item) >> fb.AllOf(_root_sum(), deep) >> fb.Function(ops.add)


def _followed(block: AnyBlock, by: Callable[..., Any] | None) -> AnyBlock:
    """Return a block whose results a function of tensors changes, if there is one."""
    return block if by is None else block >> fb.Function(by)


def _deep(settings: Settings, path: str) -> AnyBlock:
    """Return two layers with dropout between them, whose result is scaled down.

    Adam moves all parameters alike, so what is scaled down is learnt more slowly, behind the linear path.
    """
    name = path or ROOT_NAME
    hidden: AnyBlock = fb.Linear(settings.size, "relu", name=f"{name}.hidden")
    if settings.dropout:
        hidden = hidden >> fb.Dropout(settings.dropout)
    out = hidden >> fb.Linear(settings.size, name=f"{name}.out") >> fb.Function(faint)
    return _followed(out, doubled if settings.twofold else None)
