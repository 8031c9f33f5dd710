"""Kernels that move rows of a batch's buffers, by name: taken, zeroed, added up; and the sums of losses."""

from __future__ import annotations

# Bytes move in words: ``words`` of 4 bytes a row, or of 1 byte where rows are no multiple of that.
_ROWS = """\
KERNEL take_{k}(i8 source, i8 rows, i8 count, i8 words, i8 target) {{
  for (i8 e = BLOCK * LANES_X + LANE_X; e < count * words; e += BLOCKS * LANES_X)
    (({k}*)target)[e] = ((const {k}*)source)[((const i8*)rows)[e / words] * words + e % words];
}}
"""
_ZERO = """\
KERNEL zero_{k}(i8 array, i8 rows, i8 count, i8 words) {{
  for (i8 e = BLOCK * LANES_X + LANE_X; e < count * words; e += BLOCKS * LANES_X)
    (({k}*)array)[((const i8*)rows)[e / words] * words + e % words] = 0;
}}
"""
# Adds terms to rows, as a plan tells (see `plans`); `width` numbers a row. ``add`` keeps what is there.
_PLANNED = """\
KERNEL add_rows_{k}(i8 terms, i8 plan, i8 width, i8 target, i8 add) {{
  const i8* p = (const i8*)plan;
  const i8 count = p[0];
  const i8 *rows = p + 1, *starts = rows + count, *order = starts + count + 1;
  for (i8 e = BLOCK * LANES_X + LANE_X; e < count * width; e += BLOCKS * LANES_X) {{
    const i8 q = e / width, column = e % width;
    f8 total = 0;
    for (i8 j = starts[q]; j < starts[q + 1]; j++)
      total += (f8)((const {k}*)terms)[order[j] * width + column];
    {k}* to = ({k}*)target + (add ? rows[q] : q) * width + column;
    *to = add ? *to + ({k})total : ({k})total;
  }}
}}
"""
# One block: each thread every so many numbers, then one thread their sums, in order.
_TOTAL = """\
KERNEL total_{k}(i8 values, i8 count, i8 target) {{
  SHARED f8 part[1024];
  f8 total = 0;
  for (i8 e = LANE_X; e < count; e += LANES_X) total += (f8)((const {k}*)values)[e];
  part[LANE_X] = total;
  BARRIER();
  if (LANE_X == 0) {{
    for (i8 i = 1; i < LANES_X; i++) total += part[i];
    *(f8*)target = total;
  }}
}}
"""
MOVES: dict[str, str] = {
    **{f"take_{k}": _ROWS.format(k=k) for k in ("i4", "b1")},
    **{f"zero_{k}": _ZERO.format(k=k) for k in ("i4", "b1")},
    **{f"add_rows_{k}": _PLANNED.format(k=k) for k in ("f4", "f8")},
    **{f"total_{k}": _TOTAL.format(k=k) for k in ("f4", "f8", "i4", "i8")},
}
