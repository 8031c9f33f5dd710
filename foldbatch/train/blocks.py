"""Changes of parameters on the host: in one call where an engine compiles steps, else block by block.

Blocks stay in a core's cache, so that the only temporary arrays are a few blocks kept between steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from foldbatch.params import Array, SparseRows
from foldbatch.train.formulas import formula
from foldbatch.train.gradients import check_numbers
from foldbatch.updates import Change, Updates

BLOCK = 32_768  # elements; five float32 blocks (parameter, gradient, two moments, work) fit in 1 MiB of cache


def cuts(table: Array) -> Iterator[tuple[int, int]]:
    """Yield first and last (excluded) rows of the blocks of a table ``[n, *]``, of about `BLOCK` elements."""
    rows = len(table)
    step = max(1, BLOCK * rows // max(1, table.size))
    return ((start, min(start + step, rows)) for start in range(0, rows, step))


class Blocks:
    """Changes parameters, and keeps the temporary arrays for the next step."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[int, np.dtype[Any]], Array] = {}

    def apply(self, changes: Sequence[Change], updates: Updates | None) -> None:
        """Change parameters' arrays and their moments in place, with compiled code where there is any.

        Raises:
            ParameterError: when a gradient is not good, see `check_numbers`; nothing has changed then.
        """
        if updates is None:
            _look(changes)
        for change in changes if updates is None else updates.apply(changes, _look):
            tables: list[Array] = [change.parameter, *change.moments]
            if not tables[0].ndim:
                tables = [table.reshape(1) for table in tables]
            if isinstance(change.gradient, SparseRows) and change.by_rows:
                self._rows(change, tables)
            else:
                self._all(change, updates, tables)

    def _all(self, change: Change, updates: Updates | None, tables: Sequence[Array]) -> None:
        for start, stop in cuts(tables[0]):
            p, *moments = block = [table[start:stop] for table in tables]
            g = self._gradient(change, p, start, stop)
            part = change._replace(parameter=p, moments=moments, gradient=g, factor=1.0)
            if updates is None or updates.apply([part], None):
                self._apply(change, block, g)

    def _gradient(self, change: Change, p: Array, start: int, stop: int) -> Array:
        """Return rows `start` to `stop` of the gradient, times the factor; ``[stop - start, *]``."""
        gradient, factor = change.gradient, change.factor
        if isinstance(gradient, SparseRows):
            g = self._scratch(0, p)
            first, last = np.searchsorted(gradient.rows, (start, stop))
            g.fill(0)
            g[gradient.rows[first:last] - start] = gradient.values[first:last] * factor
            return g
        block: Array = gradient[start:stop]
        return block if factor == 1 else np.multiply(block, factor, out=self._scratch(0, p))

    def _rows(self, change: Change, tables: Sequence[Array]) -> None:
        gradient = change.gradient
        for start, stop in cuts(gradient.values):
            rows = gradient.rows[start:stop]
            block = [table[rows] for table in tables]
            self._apply(change, block, gradient.values[start:stop] * change.factor)
            for table, changed in zip(tables, block, strict=True):
                table[rows] = changed

    def _apply(self, change: Change, block: Sequence[Array], g: Array) -> None:
        """Change a block of a parameter and its moments in place. Shapes: all ``[rows, *]``, alike."""
        made = formula(change.rule)
        scratch = (self._scratch(1 + slot, g) for slot in range(made.scratch))
        made.apply(block[0], g, *block[1:], *change.numbers, *scratch)

    def _scratch(self, slot: int, like: Array) -> Array:
        """Return an array of the shape and dtype of `like`, with any content; one per slot."""
        buffer = self._buffers.get((slot, like.dtype))
        if buffer is None or buffer.size < like.size:
            buffer = self._buffers[slot, like.dtype] = np.empty(max(BLOCK, like.size), like.dtype)
        return buffer[: like.size].reshape(like.shape)


def _look(changes: Sequence[Change]) -> None:
    check_numbers([(change.name, change.gradient) for change in changes])
