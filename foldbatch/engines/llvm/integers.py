"""Index arithmetic compiled: the functions of `integer_loops`, in the form of those of `arithmetic`.

Results are the same to the last bit. Keys of another type than those that traces are packed in are sorted by
NumPy here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.llvm import integer_loops, table_loops, tables
from foldbatch.loops.compiling import compiled_late
from foldbatch.scheduler import arithmetic, noting, turns
from foldbatch.scheduler.arithmetic import Arithmetic, Costs
from foldbatch.scheduler.trace import Form, Index, Ints

SIGNATURES = {
    "join": "i4[] i8[] i8[] i8[] i8[] i4[] i4[,]",
    "weigh": "i8[] i8[] i8[] f8[]",
    "drain": "i8[] i8[] i8[] f8[] f8[] i8[] f8[] f8[] f8[] i8[] i8[] i4[] i4[] i8[]",
    "noted": "i8[] i8[] i4[] i4[] i8[]",
}
COSTS = Costs(step=2.8, weight=0.001, plan=60.0, number=0.06)


@cache
def compiled() -> Arithmetic:
    """Return the scheduler's arithmetic, compiled; each function is compiled or loaded at its first call."""
    loops = {**vars(turns), **vars(integer_loops)}
    modules = turns, noting, integer_loops
    functions = {name: compiled_late(loops[name], kinds, *modules) for name, kinds in SIGNATURES.items()}
    return arithmetic_of({**functions, **tables.compiled()})


def arithmetic_of(functions: dict[str, Callable[..., Any]]) -> Arithmetic:
    """Return the scheduler's arithmetic by functions of loops, given by name: compiled, or plain Python."""

    def join(traces: Sequence[Ints], form: Form) -> tuple[Ints, Ints]:
        """Join packed traces, as `arithmetic.join` does."""
        blocks = np.concatenate(traces) if traces else np.zeros(0, np.int32)
        heads, cursors = np.empty((len(traces), form.head), np.int32), np.empty(len(traces), np.int64)
        packed = np.empty(max(form.head, len(blocks) - (len(traces) - 1) * form.head), np.int32)
        packed[: form.head] = 0
        fits = functions["join"](blocks, form.counters, form.widths, form.numbers, cursors, packed, heads)
        assert fits, "the traces differ in form"
        return packed, heads

    def group(keys: NDArray[Any]) -> tuple[Index, Index]:
        """Sort keys, as `arithmetic.group` does."""
        if keys.dtype != np.int32:
            return arithmetic.group(keys)
        count = len(keys)
        order, bounds, work = (np.empty(count + extra, np.int64) for extra in (0, 1, table_loops.DIGITS))
        groups = functions["group"](keys, count, order, bounds, work)
        return order, bounds[: groups + 1]

    drain = partial(arithmetic.drain, weigh=functions["weigh"], run=functions["drain"], form=np.ndarray.copy)
    built, leveled = partial(tables.build_schedule, functions), partial(tables.levels, functions)
    return Arithmetic(join, group, drain, leveled, COSTS, built, functions["noted"])
