"""An update of parameters as records of a control table: two to four launches, however many parameters.

The first looks at the flags of gradients and sets the device's word of faults; the second changes all
parameters. Their arguments stand in the table behind the records.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from foldbatch.engines.cuda.arrays import DeviceArray
from foldbatch.engines.cuda.common import COMMON, KINDS
from foldbatch.engines.cuda.drivers.driver import Function
from foldbatch.engines.cuda.gradients import BLOCKS, THREADS
from foldbatch.engines.cuda.texts.functions import LANES, THREAD, as_functions
from foldbatch.engines.cuda.texts.kernel_text import CONTROL_AT
from foldbatch.engines.cuda.texts.records import RECORD
from foldbatch.engines.launch import Ints

# The arguments: the word; what it becomes if the batch is bad; how many flags; the batch's word; where flags
# stand.
_FAULT = f"""\
KERNEL fault_at(i8 table, i8 call) {{
  const i8* t = (const i8*)table;
  const i8* a = t + t[t[{CONTROL_AT}] + {RECORD} * call + 1];
  if (BLOCK || THREAD || *(i8*)a[0]) return;
  i8 found = 0;
  for (i8 k = a[2]; k > 0; k--)
    if (*(const i8*)a[3 + k]) found = a[1] + k;
  if (*(const i8*)a[3]) found = a[1];
  *(i8*)a[0] = found;
}}
"""
# Zeros, and then the rows of sparse gradients, for rules that change all rows: these are two launches more.
_SPREAD = f"""\
KERNEL clear_all(i8 table, i8 first, i8 last) {{
  const i8* t = (const i8*)table;
  for (i8 call = first; call < last; call++) {{
    const i8* a = t + t[t[{CONTROL_AT}] + {RECORD} * call + 1];
    for (i8 e = BLOCK * THREADS + THREAD; e < a[1]; e += BLOCKS * THREADS) ((i4*)a[0])[e] = 0;
  }}
}}
"""
_WALK = """\
KERNEL {name}(i8 table, i8 first, i8 last) {{
  const i8* t = (const i8*)table;
  for (i8 call = first; call < last; call++) {{
    const i8* o = t + t[{control}] + {record} * call;
    const i8* a = t + o[1];
    switch ((i4)o[0]) {{
{cases}
    }}
  }}
}}
"""
FAULT, CLEAR, SPREAD, CHANGE = "fault_at", "clear_all", "spread_all", "update_all"


class Update(NamedTuple):
    """An update whose arguments go into a table.

    Attributes:
        groups: the kernels, each with its records: their ops, and their arguments. The first one's is one.
        blocks: of all but the first kernel.
        arrays: all that is read or changed.
        key: equal where kernels, blocks and numbers of records are.
    """

    groups: Sequence[tuple[Function, Sequence[tuple[int, Sequence[int]]]]]
    blocks: int
    arrays: Sequence[DeviceArray]
    key: Hashable

    def numbers(self, start: int) -> Ints:
        """Return records and then arguments, for a place in the table: ``[*] int64``."""
        records = [record for _, group in self.groups for record in group]
        end = start + RECORD * len(records)
        heads: list[int] = []
        lists: list[int] = []
        for op, arguments in records:
            heads += [op, end, *(0,) * (RECORD - 2)]
            lists += arguments
            end += len(arguments)
        return np.array(heads + lists, np.int64)

    def launches(self, first: int) -> list[tuple[Function, int, tuple[int, int], tuple[int, ...]]]:
        """Return kernels, blocks, threads, and arguments after the table; `first` is the first record."""
        (fault, _), *others = self.groups
        made: list[tuple[Function, int, tuple[int, int], tuple[int, ...]]] = []
        made.append((fault, 1, (THREADS, 1), (first,)))
        first += 1
        for kernel, group in others:
            made.append((kernel, self.blocks, (THREADS, 1), (first, first + len(group))))
            first += len(group)
        return made


@cache
def update_text(steps: tuple[tuple[str, int], ...], prelude: str = "") -> str:
    """Return the text of an update by several kernels, each given with how many arguments it has.

    The prelude is what they need before them.

    The kernels are named ``step``; here they become functions ``step_0``, ``step_1`` and so on.
    """
    functions, cases = [as_functions(COMMON[f"spread_{kind}"]) for kind in KINDS.values()], []
    for op, (text, count) in enumerate(steps):
        functions.append(as_functions(text.replace("KERNEL step(", f"KERNEL step_{op}(")))
        cases.append(_case(op, f"step_{op}", count))
    spreads = [_case(op, f"spread_{kind}", 5) for op, kind in enumerate(KINDS.values())]
    walks = [
        _WALK.format(name=name, control=CONTROL_AT, record=RECORD, cases="\n".join(chosen))
        for name, chosen in ((SPREAD, spreads), (CHANGE, cases))
    ]
    return "\n".join([prelude, THREAD, _FAULT, _SPREAD, LANES, *functions, *walks])


def _case(op: int, name: str, count: int) -> str:
    arguments = "".join(f", a[{k}]" for k in range(count))
    return f"      case {op}: {name}({THREADS}, (f8*)0{arguments}); break;"


def blocks_for(sizes: Sequence[int]) -> int:
    """Return how many blocks change arrays of these sizes."""
    return max(1, min(BLOCKS, -(-max(sizes, default=1) // THREADS)))


def owned(due: Any, arrays: Sequence[DeviceArray]) -> bool:
    """Whether arrays are gradients of the step that is due, each once."""
    return due is not None and len(arrays) > 0 and all(id(array) in due.flags for array in arrays)
