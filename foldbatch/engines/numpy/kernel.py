"""A kernel: the compiled text of a routine. Tracebacks show the text, as `linecache` knows it."""

from __future__ import annotations

import linecache
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foldbatch.engines import sums
from foldbatch.engines.launch import Ints
from foldbatch.engines.numpy import grouped, moves, segments
from foldbatch.engines.numpy.places import view
from foldbatch.engines.numpy.spelling import NUMBERS, rounded
from foldbatch.engines.numpy.text import text_of
from foldbatch.params.parameters import Array
from foldbatch.static.ops.elementwise import cast_into
from foldbatch.static.ops.random import random_bits
from foldbatch.static.ops.reduce import top_and_rest
from foldbatch.static.statements import Routine
from foldbatch.system.remembering import remembered

Function = Callable[[Ints, Sequence[int], Ints, Sequence[Array]], None]

GLOBALS: dict[str, Any] = {
    **NUMBERS,
    "inf": np.inf,
    "nan": np.nan,
    "np": np,
    "add_rows": moves.add_rows,
    "cast_into": cast_into,
    "check_range": moves.check_range,
    "linear_by": grouped.linear_by,
    "located": moves.located,
    "put_rows": moves.put_rows,
    "random_bits": random_bits,
    "rounded": rounded,
    "segment_is_max": segments.segment_is_max,
    "segment_max": segments.segment_max,
    "segment_position": segments.segment_position,
    "segment_softmax": segments.segment_softmax,
    "segment_sum": sums.segment_sum,
    "spread": moves.spread,
    "sum_axes": sums.sum_axes,
    "sum_copies": moves.sum_copies,
    "sum_first": sums.sum_first,
    "sum_outer": sums.sum_outer,
    "sum_outer_by": grouped.sum_outer_by,
    "sum_rows": sums.sum_rows,
    "top_and_rest": top_and_rest,
    "view": view,
}


@dataclass(frozen=True, slots=True)
class NumPyKernel:
    """A routine that runs.

    ``function(bounds, row, index, buffers)`` runs the levels ``bounds: [levels, 2] int64`` of a launch. `row`
    is its row of the launch table, ``index: [*] int64`` are all index arrays of the table, and `buffers` are
    those of the batch, ``[height, *shape]`` each. It raises OutOfRangeError where an id is out of range.
    """

    name: str
    source: str
    function: Function


@remembered
def load(routine: Routine, name: str) -> NumPyKernel:
    """Make the kernel of a routine; `name` tells it from those of the same routine of other cells."""
    source = text_of(routine)
    # two programs may have cells of one name, so the text itself tells the registered texts apart
    printed = name if name.isprintable() else ascii(name)  # a name of a file's choosing may hold anything
    filename = f"<foldbatch numpy kernel {printed} {zlib.crc32(source.encode()):08x}>"
    scope = dict(GLOBALS)
    exec(compile(source, filename, "exec"), scope)  # noqa: S102 - the text is our own
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return NumPyKernel(name, source, scope[routine.name])
