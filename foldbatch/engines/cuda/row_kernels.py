"""Kernels around a model's own, by name: they begin and end a batch, and move, zero, sum and look at rows.

Those with a parameter ``table`` find all they need in a batch's packed table, by numbers of buffers and
places in the table: so their arguments are the same for all batches of a class. The others are given
addresses.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.cuda.common import FAULTS
from foldbatch.engines.cuda.texts.kernel_text import ADDRESSES_AT, CALLS, INDEX_AT, LIVE, STATUS_AT

EACH = "for (i8 e = BLOCK * LANES_X + LANE_X; e < {n}; e += BLOCKS * LANES_X)"
_HEAD = f"const i8* t = (const i8*)table;\n  const i4* ints = (const i4*)t + t[{INDEX_AT}];"

# Bytes move in words: ``words`` of 4 bytes a row, or of 1 byte where rows are no multiple of that.
_TAKE = """\
KERNEL take_{k}(i8 source, i8 rows, i8 count, i8 words, i8 target) {{
  {each} (({k}*)target)[e] = ((const {k}*)source)[((const i8*)rows)[e / words] * words + e % words];
}}
"""
# Adds terms to rows, as a plan tells (see `plan_of`); `width` numbers a row. ``add`` keeps what is
# there.
_PLANNED = """\
DEVICE void planned_{k}(const {k}* terms, const i4* p, i8 width, {k}* target, i8 add) {{
  const i8 count = p[0];
  const i4 *rows = p + 1, *starts = rows + count, *order = starts + count + 1;
  {each} {{
    const i8 q = e / width, column = e % width;
    f8 total = 0;
    for (i8 j = starts[q]; j < starts[q + 1]; j++) total += (f8)terms[order[j] * width + column];
    {k}* to = target + (add ? rows[q] : q) * width + column;
    *to = add ? *to + ({k})total : ({k})total;
  }}
}}
KERNEL add_rows_{k}(i8 terms, i8 plan, i8 width, i8 target, i8 add) {{
  planned_{k}((const {k}*)terms, (const i4*)plan, width, ({k}*)target, add);
}}
KERNEL summed_{k}(i8 table, i8 terms, i8 plan, i8 width, i8 target) {{
  {head}
  planned_{k}((const {k}*)BUFFER(terms), ints + plan, width, ({k}*)BUFFER(target), 0);
}}
"""
# A flag of the status becomes 1 where an array has a NaN or an infinity; with a plan, ``count`` is of each
# target.
_FLAGGED = """\
KERNEL flagged_{k}(i8 table, i8 buffer, i8 count, i8 plan, i8 place) {{
  {head}
  const {k}* a = (const {k}*)BUFFER(buffer);
  const i8 n = plan ? ints[plan] * count : count;
  b1 bad = 0;
  {each} bad |= !(a[e] - a[e] == 0);
  if (bad) (void)FIRST_OF((i8*)t[{status}] + place);
}}
"""
_ZERO = """\
KERNEL zero_{k}(i8 table, i8 buffer, i8 list, i8 words) {{
  {head}
  const i4* rows = ints + list + 1;
  const i8 n = ints[list] * words;
  {each} (({k}*)BUFFER(buffer))[rows[e / words] * words + e % words] = 0;
}}
"""
# One block: each thread every so many calls of a level, then one thread their sums, in order.
_TOTAL = """\
KERNEL total_{k}(i8 table, i8 buffer, i8 level, i8 place) {{
  {head}
  SHARED f8 part[1024];
  const {k}* values = (const {k}*)BUFFER(buffer);
  const i8 count = t[level + {calls}];
  const i4* live = t[level + {live}] ? ints + t[level + {live}] : 0;
  f8 total = 0;
  for (i8 e = LANE_X; e < count; e += LANES_X) total += (f8)values[live ? live[e] : e];
  part[LANE_X] = total;
  BARRIER();
  if (LANE_X == 0) {{
    for (i8 i = 1; i < LANES_X; i++) total += part[i];
    ((f8*)t[{status}])[place] = total;
  }}
}}
"""
_OTHERS = """\
KERNEL begin(i8 table, i8 n) {{
  {head}
  {each} ((i8*)t[{status}])[e] = 0;
}}
KERNEL end(i8 table, i8 word) {{
  {head}
  if (BLOCK == 0 && LANE_X == 0) ((i8*)t[{status}])[{faults}] = *(const i8*)word;
}}
KERNEL clear(i8 table, i8 buffer, i8 bytes) {{
  {head}
  const i8 n = bytes / 4;
  {each} ((i4*)BUFFER(buffer))[e] = 0;
  for (i8 e = 4 * n + BLOCK * LANES_X + LANE_X; e < bytes; e += BLOCKS * LANES_X)
    ((b1*)BUFFER(buffer))[e] = 0;
}}
KERNEL targets(i8 table, i8 plan, i8 target) {{
  {head}
  const i8 n = ints[plan];
  {each} ((i8*)BUFFER(target))[e] = ints[plan + 1 + e];
}}
"""


def _text(text: str, k: str = "", n: str = "n") -> str:
    numbers = {"status": STATUS_AT, "faults": FAULTS, "calls": CALLS, "live": LIVE}
    return text.format(k=k, head=_HEAD, each=EACH.format(n=n), **numbers)


FLOATS = ("f4", "f8")
TEXT = "\n".join(
    [
        f"#define BUFFER(number) t[t[{ADDRESSES_AT}] + (number)]",
        *(_text(_TAKE, k, "count * words") for k in ("i4", "b1")),
        *(_text(_PLANNED, k, "count * width") for k in FLOATS),
        *(_text(_FLAGGED, k) for k in FLOATS),
        *(_text(_ZERO, k) for k in ("i4", "b1")),
        *(_text(_TOTAL, k) for k in ("f4", "f8", "i4", "i8")),
        _text(_OTHERS),
    ]
)


def plan_of(targets: NDArray[np.int64], terms: NDArray[np.int64] | None = None) -> NDArray[np.int32]:
    """Return the plan that adds term i to row ``targets[i]``, terms of one row in their order: ``[n] int32``.

    A plan is one run of whole numbers: how many *targets* there are, the targets, where the terms of each
    begin in what follows and where the last ones end, and the terms in order. Terms may have other numbers.

    >>> plan_of(np.array([7, 2, 7])).tolist()
    [2, 2, 7, 0, 1, 3, 1, 0, 2]
    """
    order = np.argsort(targets, kind="stable")
    ranked = targets[order]
    starts = np.flatnonzero(np.diff(ranked, prepend=-1))
    parts = [[len(starts)], ranked[starts], starts, [len(order)], order if terms is None else terms[order]]
    return np.concatenate([np.asarray(part, np.int32) for part in parts])
