"""Reads: which tensors of PyTorch a model read, so that gradients can flow back into them.

While examples are traced, all that one block reads at all its visits is noted as one list. Where that list
has tensors, they become one tensor of PyTorch, by operations that PyTorch differentiates itself: what the
model computes is a function of these few tensors, one for each place that reads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.autograd import forward_ad

from foldbatch.errors import BackendError, BlockValueError
from foldbatch.model.drafts import Feed
from foldbatch.types import describe_value


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A tensor that is read row by row: ``flat: [n, *row]``."""

    flat: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A row of a tensor, which a block reads; made by `rows`."""

    source: Source
    index: int

    def detach(self) -> torch.Tensor:
        """Return the row's numbers, which know no gradient."""
        return self.source.flat[self.index].detach()

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        if self.source.flat.requires_grad:
            raise RuntimeError("a row of a tensor that requires gradients is no array")
        row: NDArray[Any] = self.detach().cpu().numpy()
        return row if dtype is None else row.astype(dtype)

    def __repr__(self) -> str:
        return f"Row({list(self.source.flat.shape[1:])} of {self.source.flat.shape[0]})"


def rows(tensor: torch.Tensor, axes: int = 1) -> list[Any]:
    """Return a tensor as nested lists of its rows, for examples to hold; gradients flow back into it.

    A tensor ``[batch, words, dim]`` becomes a list of lists: ``rows(encoded)[b][i]`` is read by
    ``fb.Vector(dim)``. Slicing a tensor of PyTorch word by word yields the same numbers and gradients, but
    each slice costs microseconds, and as many again on the way back; rows cost a look-up each.

    Args:
        tensor: of floats.
        axes: how many of the last axes a row has: 0 for `fb.Scalar`, 1 for `fb.Vector`, 2 for matrices.

    Raises:
        BlockValueError: when the tensor has not more axes than a row.

    >>> import torch
    >>> import foldbatch as fb
    >>> encoded = torch.ones(1, 3, 2, requires_grad=True)
    >>> total = fb.torch.Module(fb.Map(fb.Vector(2)) >> fb.Sum())
    >>> total([rows(encoded)[0][:2]]).sum().backward()
    >>> encoded.grad.tolist()
    [[[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]]
    """
    if not isinstance(tensor, torch.Tensor) or not 0 <= axes < tensor.dim():
        fix = "a tensor [batch, words, dim] has rows of one axis"
        found = f"{list(tensor.shape)}" if isinstance(tensor, torch.Tensor) else describe_value(tensor)
        raise BlockValueError("rows", f"a tensor of more than {axes} axes", found, fix)
    leading = tensor.shape[: tensor.dim() - axes]
    flat = tensor.reshape(math.prod(leading), *tensor.shape[len(leading) :])
    numbered = map(partial(Row, Source(flat)), itertools.count())
    return _nested(numbered, leading)


def _nested(items: Iterator[Row], extents: Sequence[int]) -> list[Any]:
    if len(extents) == 1:
        return list(itertools.islice(items, extents[0]))
    return [_nested(items, extents[1:]) for _ in range(extents[0])]


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """What one feed of a cell read of tensors that require gradients.

    Attributes:
        cell: the cell's number.
        feed: the feed's.
        values: ``[m, *shape]``: what was read.
        places: ``[m] int64``: where, among all data of the feed from the examples that were looked at.
    """

    cell: int
    feed: int
    values: torch.Tensor
    places: NDArray[np.int64]


class Reads:
    """Notes what is read; `look` is given to `Tracer.trace_all`.

    Args:
        feeds: per cell, the data that it reads.

    Attributes:
        found: what was read of tensors that require gradients.
        refused: why a tensor that was read cannot be: then what was traced is not to be used.
    """

    def __init__(self, feeds: Sequence[Sequence[Feed]]) -> None:
        self._feeds = feeds
        self._counts = [0] * len(feeds)
        self.found: list[Read] = []
        self.refused: BackendError | None = None

    def look(self, data: Sequence[Sequence[list[Any]]]) -> None:
        """Note tensors among data, per cell and feed, and put their numbers in their places."""
        for k, columns in enumerate(data):
            for i, items in enumerate(columns):
                if self._feeds[k][i].type.is_float:
                    self._look_at(k, i, items)
            self._counts[k] += len(columns[0]) if columns else 0

    def _look_at(self, k: int, i: int, items: list[Any]) -> None:
        places = [n for n, item in enumerate(items) if isinstance(item, Row | torch.Tensor)]
        tensors = [items[n] for n in places]
        type_ = self._feeds[k][i].type
        if not places or any(_shape(tensor) != type_.shape for tensor in tensors):
            return  # the tracer tells of the first one that does not fit
        values = joined(tensors)
        if not values.is_floating_point():
            return
        values = values.to(getattr(torch, type_.dtype))
        try:
            numbers = numbers_of(values)
        except BackendError as error:  # the tracer would blame the example
            self.refused = error
            return
        for n, row in zip(places, numbers, strict=True):
            items[n] = row
        if values.requires_grad:
            self.found.append(Read(k, i, values, self._counts[k] + np.array(places, np.int64)))


def numbers_of(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a tensor's numbers as an array over its memory.

    Raises:
        BackendError: when it holds none, as inside `torch.func` or an export, or has a tangent.

    >>> numbers_of(torch.ones(2, requires_grad=True))
    array([1., 1.], dtype=float32)
    """
    expected = "tensors that hold numbers alone"
    try:
        tangent = forward_ad.unpack_dual(tensor).tangent
        numbers: NDArray[Any] = tensor.detach().numpy()
    except (RuntimeError, TypeError) as error:
        fix = "call the module outside of torch.func, vmap and torch.export, one gradient at a time"
        raise BackendError("fb.torch.Module", expected, str(error).split("\n", 1)[0], fix) from None
    if tangent is not None:
        fix = "Program.jvp has derivatives in forward mode"
        raise BackendError("fb.torch.Module", expected, "a dual tensor of torch.autograd.forward_ad", fix)
    return numbers


def _shape(tensor: Row | torch.Tensor) -> tuple[int, ...]:
    return tuple(tensor.source.flat.shape[1:] if isinstance(tensor, Row) else tensor.shape)


def joined(tensors: Sequence[Row | torch.Tensor]) -> torch.Tensor:
    """Return rows and tensors of one shape as one tensor ``[m, *shape]`` on the CPU, differentiably.

    >>> joined([torch.ones(2), rows(torch.zeros(1, 2))[0]]).tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    indices: dict[Source, list[int]] = {}
    places: list[int] = []
    loose, loose_places = [], []
    for n, tensor in enumerate(tensors):
        if isinstance(tensor, Row):
            indices.setdefault(tensor.source, []).append(n)
        else:
            loose.append(tensor)
            loose_places.append(n)
    parts = []
    for source, own in indices.items():
        index = torch.tensor([tensors[n].index for n in own])
        parts.append(source.flat.index_select(0, index.to(source.flat.device)).cpu())
        places += own
    if loose:
        parts.append(torch.stack(loose).cpu())
        places += loose_places
    if len(parts) == 1:
        return parts[0]
    order = torch.empty(len(places), dtype=torch.int64)
    order[torch.tensor(places)] = torch.arange(len(places))
    return torch.cat(parts).index_select(0, order)
