"""Making a block of a schema: each place becomes a vector, and those of an object or list become one.

A value that is null, absent or of another kind than the samples had is a vector of zeros.

Source: the models of Mill.jl (Pevny and Somol 2017), with mean and maximum over lists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from foldbatch.blocks import (
    AllOf,
    Block,
    Concat,
    Embedding,
    InputTransform,
    Linear,
    Map,
    Max,
    Mean,
    Min,
    Optional,
    Record,
    Scalar,
    Sum,
    Vector,
)
from foldbatch.schema import kinds, reading
from foldbatch.trees.vocabulary import Vocabulary

POOLINGS: dict[str, Callable[[], Block[Any, Any]]] = {"mean": Mean, "max": Max, "sum": Sum, "min": Min}


@dataclass(frozen=True, slots=True)
class Settings:
    """How places are embedded; see `Schema.block`."""

    size: int
    pooling: tuple[str, ...]
    ngram: int
    buckets: int


def place_block(place: kinds.Place, settings: Settings) -> Block[Any, Any] | None:
    """Return the block that embeds a place, or None where the samples had no values."""
    blocks = [block for kind in place.kinds if (block := _kind_block(kind, settings)) is not None]
    if len(blocks) < 2:
        return blocks[0] if blocks else None
    # Each block yields zeros for values of the other kinds, so none has to be chosen.
    return AllOf(*blocks) >> _joined(settings)


def _kind_block(kind: kinds.Kind, settings: Settings) -> Block[Any, Any] | None:
    read: Callable[[Any], Any]
    match kind:
        case kinds.Flag():
            return _read(reading.as_flag, Scalar("int32") >> Embedding(2, settings.size))
        case kinds.Number():
            read = partial(reading.as_number, mean=kind.mean, deviation=kind.deviation)
            return _read(read, Vector(1) >> Linear(settings.size, "tanh"))
        case kinds.Category():
            vocabulary = Vocabulary([value for value, _ in kind.values])
            read = partial(reading.as_category, vocabulary=vocabulary)
            return _read(read, Scalar("int32") >> Embedding(len(vocabulary), settings.size))
        case kinds.Text():
            read = partial(reading.as_ngrams, size=settings.ngram, buckets=settings.buckets)
            grams = Map(Scalar("int32") >> Embedding(settings.buckets, settings.size)) >> Mean()
            return _read(read, grams >> Linear(settings.size, "tanh"))
        case kinds.Items():
            item = place_block(kind.item, settings)
            return None if item is None else _read(reading.as_list, _pooled(item, settings))
        case kinds.Dictionary():
            pair = enumerate(place_block(inner, settings) for inner in (kind.key, kind.value))
            blocks = {number: block for number, block in pair if block is not None}
            return _read(reading.as_pairs, _pooled(Record(blocks) >> _joined(settings), settings))
        case kinds.Fields():
            fields = {name: place_block(place, settings) for name, place in kind.fields.items()}
            named = {name: block for name, block in fields.items() if block is not None}
            read = partial(reading.as_fields, names=tuple(named))
            return _read(read, Record(named) >> _joined(settings)) if named else None


def _read(read: Callable[[Any], Any], block: Block[Any, Any]) -> Block[Any, Any]:
    return InputTransform(read) >> Optional(block)


def _joined(settings: Settings) -> Block[Any, Any]:
    return Concat() >> Linear(settings.size, "tanh")


def _pooled(item: Block[Any, Any], settings: Settings) -> Block[Any, Any]:
    return Map(item) >> AllOf(*(POOLINGS[name]() for name in settings.pooling)) >> _joined(settings)
