"""Kernels that make a batch's index arrays, plans and data from examples that a device holds.

Every example's calls are numbered within *slots*: the calls of one cell on one level. Where an example's
calls of a slot begin in the batch is the sum of those of the examples before it: a table is made by adding.

The descriptor lies in the batch's table, see `held_tables`; ``d`` is where it begins: how many examples and
slots there are, outputs a cell at most; then addresses: counts of the examples held, offsets, and what else
is made; then where in the table the numbers of the examples stand, and the first rank of each slot.
"""

from __future__ import annotations

EXAMPLES, SLOTS, OUTPUTS, COUNTS, OFFSETS, MADE, NUMBERS, FIRSTS = range(8)
FIELDS = 8

_HEAD = """\
  const i8 *t = (const i8*)table, *d = t + at;
  const i8 examples = d[0], slots = d[1];
  const i8 *numbers = t + d[6], *firsts = t + d[7];
  i8 *offsets = (i8*)d[4], *made = (i8*)d[5];
  (void)examples, (void)slots, (void)numbers, (void)firsts, (void)offsets, (void)made;
"""
TEXT = f"""\
KERNEL held_offsets(i8 table, i8 at) {{
{_HEAD}
  for (i8 s = BLOCK * LANES_X + LANE_X; s < slots; s += BLOCKS * LANES_X) {{
    i8 total = 0;
    for (i8 b = 0; b < examples; b++) {{
      offsets[b * slots + s] = total;
      total += ((const i4*)d[3])[numbers[b] * slots + s];
    }}
  }}
}}

// c: where each example's calls of the cell begin; of each call its slot and its number there; for each row
// that it reads the output that this is (slot * outputs + output) and the number of the call; how many such
// rows; how many arrays of data. Then of each row its place and its step from call to call; of each array of
// data where it lies, where it goes, and the words of 4 bytes, or bytes if negative, of a call.
KERNEL held_rows(i8 table, i8 at, i8 cell, i8 bases) {{
{_HEAD}
  const i8 *c = t + cell, *base = t + bases, outputs = d[2];
  const i8 rows = c[4], arrays = c[5];
  const i8 *places = c + 6, *data = places + 2 * rows;
  for (i8 b = BLOCK; b < examples; b += BLOCKS) {{
    const i8 *starts = (const i8*)c[0], e = numbers[b];
    for (i8 i = starts[e] + LANE_X; i < starts[e + 1]; i += LANES_X) {{
      const i8 s = ((const i4*)c[1])[i], r = firsts[s] + offsets[b * slots + s] + ((const i4*)c[2])[i];
      for (i8 k = 0; k < rows; k++) {{
        const i4* from = (const i4*)c[3] + 2 * (i * rows + k);
        const i8 row = base[from[0]] + offsets[b * slots + from[0] / outputs] + from[1];
        made[places[2 * k] + r * places[2 * k + 1]] = row;
      }}
      for (i8 k = 0; k < arrays; k++) {{
        const i8 source = data[3 * k], target = data[3 * k + 1], words = data[3 * k + 2];
        for (i8 w = 0; w < words; w++) ((i4*)target)[r * words + w] = ((const i4*)source)[i * words + w];
        for (i8 w = 0; w < -words; w++) ((b1*)target)[r * -words + w] = ((const b1*)source)[i * -words + w];
      }}
    }}
  }}
}}

// A range: its place, how many numbers, and the first.
KERNEL held_ranges(i8 table, i8 at, i8 ranges, i8 count) {{
{_HEAD}
  for (i8 q = BLOCK; q < count; q += BLOCKS) {{
    const i8* range = t + ranges + 3 * q;
    for (i8 i = LANE_X; i < range[1]; i += LANES_X) made[range[0] + i] = range[2] + i;
  }}
}}

// A plan: its place, where its targets stand, and how many, each with one term.
KERNEL held_plans(i8 table, i8 at, i8 plans, i8 count) {{
{_HEAD}
  for (i8 q = BLOCK; q < count; q += BLOCKS) {{
    const i8 *plan = t + plans + 3 * q, n = plan[2];
    i8* to = made + plan[0];
    if (LANE_X == 0) to[0] = n;
    for (i8 i = LANE_X; i <= n; i += LANES_X) {{
      if (i < n) to[1 + i] = made[plan[1] + i];
      to[1 + n + i] = i;
      if (i < n) to[2 + 2 * n + i] = i;
    }}
  }}
}}
"""
