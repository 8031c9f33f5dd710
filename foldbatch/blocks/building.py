"""Building: what a block makes of a symbolic value, with errors that say where it stands."""

from __future__ import annotations

from typing import Protocol

from foldbatch.blocks.builder import Builder
from foldbatch.blocks.drafts import Value, pattern
from foldbatch.errors import BlockTypeError, GraphError, lines_outside


class Buildable(Protocol):
    """A block, as the machinery that builds and traces it knows it."""

    def build(self, builder: Builder, value: Value, /) -> Value:
        """Return the block's result for `value`; raises BlockTypeError where it cannot be used."""


def build(block: Buildable, builder: Builder, value: Value) -> Value:
    """Build a block, turning the errors of tensor expressions into errors of the block.

    While types are inferred, a block is built once for each pattern of values (see `drafts.pattern`): for
    another value of the same pattern, the earlier result is copied.
    """
    if not builder.inferring:
        return _build(block, builder, value)
    inferred = block.__dict__.setdefault("_inferred", {})
    kind = pattern(value)
    if kind is None or kind not in inferred:
        result = _build(block, builder, value)
        if kind is not None and pattern(result) is not None:
            inferred[kind] = builder.renewed(result)
        return result
    return builder.renewed(inferred[kind])


def _build(block: Buildable, builder: Builder, value: Value) -> Value:
    """Build a block; an error of a tensor expression becomes one of the block, with its place."""
    try:
        return block.build(builder, value)
    except GraphError as error:
        inside = "" if error.where == repr(block) else f" in {error.where}"
        where = builder.where(block) + inside
        wrapped = BlockTypeError(where, error.expected, error.found, error.fix)
        for line in lines_outside(error):
            wrapped.add_note(line)
        raise wrapped from None
