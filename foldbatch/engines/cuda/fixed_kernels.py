"""Kernels that every program needs, by name; each is a text in the language of ``device.h``.

Names end in the type of their numbers, ``f4`` or ``f8``. A number that is no address travels as the bits of a
double, see `bits`.

Those with a parameter ``table`` find all they need in a batch's packed table, by numbers of buffers and
places in the table: so their arguments are the same for all batches of a class. The others are given
addresses.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.cuda import few_rows
from foldbatch.engines.cuda.kernel_text import ADDRESSES_AT, CALLS, INDEX_AT, LIVE, STATUS_AT
from foldbatch.planning.integers import group

KINDS = {"float32": "f4", "float64": "f8"}
FLAG_SIZE = 5  # numbers by which `flagged` is told of an array
FAULTS = 2  # the place in a batch's status of the word of the device's faults

# What the lanes of a block add up, in an order that depends on their number alone.
BLOCK_SUM = """\
DEVICE f8 block_sum(f8* lanes, f8 x) {
  lanes[LANE_X] = x;
  for (i8 step = 1; step < LANES_X; step *= 2) {
    BARRIER();
    if (LANE_X % (2 * step) == 0 && LANE_X + step < LANES_X) lanes[LANE_X] += lanes[LANE_X + step];
  }
  BARRIER();
  return lanes[0];
}
"""

_ELEMENT_LOOP = "for (i8 e = BLOCK * LANES_X + LANE_X; e < {n}; e += BLOCKS * LANES_X)"
_HEAD = f"const i8* t = (const i8*)table;\n  const i4* ints = (const i4*)t + t[{INDEX_AT}];"

_ARITHMETIC = """\
KERNEL fill_{k}(i8 out, i8 n, i8 value) {{
  {each} (({k}*)out)[e] = ({k})as_f8(value);
}}
KERNEL scale_{k}(i8 out, i8 a, i8 n, i8 factor) {{
  {k} t = ({k})as_f8(factor);
  {each} (({k}*)out)[e] = ((const {k}*)a)[e] * t;
}}
// the factor is computed on the device
KERNEL scale_by_{k}(i8 out, i8 a, i8 n, i8 factor) {{
  {k} t = ({k}) * (const f8*)factor;
  {each} (({k}*)out)[e] = ((const {k}*)a)[e] * t;
}}
KERNEL divide_{k}(i8 out, i8 a, i8 n, i8 divisor) {{
  {k} t = ({k})as_f8(divisor);
  {each} (({k}*)out)[e] = ((const {k}*)a)[e] / t;
}}
KERNEL add_{k}(i8 out, i8 a, i8 b, i8 n) {{
  {each} (({k}*)out)[e] = ((const {k}*)a)[e] + ((const {k}*)b)[e];
}}
// at: out, values [count, width], rows [count] int64, distinct; count * width, and width
KERNEL spread_{k}(i8 at) {{
  const i8 *a = (const i8*)at, *rows = (const i8*)a[2], n = a[3], width = a[4];
  {each} (({k}*)a[0])[rows[e / width] * width + e % width] = ((const {k}*)a[1])[e];
}}
// one sum a block, for clip_factor to add
KERNEL squares_{k}(i8 sums, i8 a, i8 n) {{
  SHARED f8 lanes[1024];
  f8 sum = 0;
  {each} {{
    f8 x = ((const {k}*)a)[e];
    sum += x * x;
  }}
  sum = block_sum(lanes, sum);
  if (LANE_X == 0) ((f8*)sums)[BLOCK] = sum;
}}
// becomes 1 where an array, times the factor, has a NaN or an infinity
KERNEL flag_{k}(i8 flag, i8 a, i8 n, i8 factor) {{
  {k} t = ({k})as_f8(factor);
  b1 bad = 0;
  {each} {{
    {k} x = ((const {k}*)a)[e] * t;
    bad |= !(x - x == 0);
  }}
  if (bad) (void)CLAIMED(flag, 1);
}}
"""
# out[0] is the root of the sum, out[1] what brings it down to `limit`, or 1
_CLIP_FACTOR = """\
KERNEL clip_factor(i8 out, i8 sums, i8 n, i8 limit) {
  SHARED f8 lanes[1024];
  f8 sum = 0;
  for (i8 i = LANE_X; i < n; i += LANES_X) sum += ((const f8*)sums)[i];
  sum = block_sum(lanes, sum);
  if (BLOCK == 0 && LANE_X == 0) {
    f8 norm = sqrt(sum), most = as_f8(limit);
    ((f8*)out)[0] = norm;
    ((f8*)out)[1] = norm > most && norm - norm == 0 ? most / norm : 1.0;
  }
}
"""

# The first fault stays. At: the word, the code, how many flags, how many words of batches, and the addresses
# of both. The word becomes the code if a batch's word is set, code + 1 + k if flag k is the first.
_FAULT = """\
KERNEL fault(i8 at) {
  const i8 *a = (const i8*)at, *flags = a + 4, *words = flags + a[2];
  if (BLOCK || LANE_X || LANE_Y || *(i8*)a[0]) return;
  i8 found = 0;
  for (i8 k = a[2]; k > 0; k--)
    if (*(const i8*)flags[k - 1]) found = a[1] + k;
  for (i8 k = 0; k < a[3]; k++)
    if (*(const i8*)words[k]) found = a[1];
  *(i8*)a[0] = found;
}
"""


def bits(number: float) -> int:
    """Return the bits of a double as a whole number, which ``as_f8`` turns back."""
    (word,) = struct.unpack("<q", struct.pack("<d", number))
    return int(word)


# Bytes move in words: ``words`` of 4 bytes a row, or of 1 byte where rows are no multiple of that.
_TAKE = """\
KERNEL take_{k}(i8 source, i8 rows, i8 count, i8 words, i8 target) {{
  {each} (({k}*)target)[e] = ((const {k}*)source)[((const i8*)rows)[e / words] * words + e % words];
}}
"""
# The same, for who does not wait to hear that the batch is bad: then, by its word, all bits are set, NaN.
_GATHERED = """\
KERNEL gathered(i8 source, i8 rows, i8 count, i8 words, i8 target, i8 word) {
  const b1 bad = *(const i8*)word != 0;
  for (i8 e = BLOCK * LANES_X + LANE_X; e < count * words; e += BLOCKS * LANES_X)
    ((i4*)target)[e] = bad ? -1 : ((const i4*)source)[((const i8*)rows)[e / words] * words + e % words];
}
"""
# The same of values that an arena holds as bfloat16: they become float32 again.
_GATHERED_B2 = """\
KERNEL gathered_b2(i8 source, i8 rows, i8 count, i8 words, i8 target, i8 word) {
  const b1 bad = *(const i8*)word != 0;
  for (i8 e = BLOCK * LANES_X + LANE_X; e < count * words; e += BLOCKS * LANES_X) {
    const b2 x = ((const b2*)source)[((const i8*)rows)[e / words] * words + e % words];
    ((i4*)target)[e] = bad ? -1 : (i4)((u4)x << 16);
  }
}
"""
# Rows of a buffer go into the status from a place on; in the table, from ``list`` on, lie their count and
# their numbers.
_RESULTS = """\
KERNEL results_{k}(i8 table, i8 buffer, i8 list, i8 words, i8 place) {{
  {head}
  const i8 n = t[list] * words, *rows = t + list + 1;
  {k}* to = ({k}*)((i8*)t[{status}] + place);
  {each} to[e] = ((const {k}*)BUFFER(buffer))[rows[e / words] * words + e % words];
}}
"""
_RESULTS_B2 = """\
KERNEL results_b2(i8 table, i8 buffer, i8 list, i8 words, i8 place) {{
  {head}
  const i8 n = t[list] * words, *rows = t + list + 1;
  f4* to = (f4*)((i8*)t[{status}] + place);
  {each} to[e] = f4_of_b2(((const b2*)BUFFER(buffer))[rows[e / words] * words + e % words]);
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
    UNROLL
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
# Whether an array has a NaN or an infinity, as far as a thread looks.
_BAD = """\
DEVICE b1 bad_{k}(const {k}* a, i8 n) {{
  b1 bad = 0;
  {each} bad |= !(a[e] - a[e] == 0);
  return bad;
}}
"""
# A flag of the status becomes 1 where an array has a NaN or an infinity. In the table, from ``list`` on, lie
# how many arrays there are, and of each its buffer; how many numbers it has, or with a plan so many for each
# target; the plan, or 0; the place of its flag; and the bytes of a number.
_FLAGGED = """\
KERNEL flagged(i8 table, i8 list) {{
  {head}
  const i8* a = t + list + 1;
  for (i8 k = t[list]; k > 0; k--, a += FLAG_SIZE) {{
    const i8 n = a[2] ? ints[a[2]] * a[1] : a[1], at = BUFFER(a[0]);
    if (a[4] == 4 ? bad_f4((const f4*)at, n) : bad_f8((const f8*)at, n))
      (void)CLAIMED((i8*)t[{status}] + a[3], 1);
  }}
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
# One block: each thread every so many calls of a level, then their sums in pairs.
_TOTAL = """\
KERNEL_WIDE total_{k}(i8 table, i8 buffer, i8 level, i8 place) {{
  {head}
  SHARED f8 part[1024];
  const {k}* values = (const {k}*)BUFFER(buffer);
  const i8 count = t[level + {calls}];
  const i4* live = t[level + {live}] ? ints + t[level + {live}] : 0;
  f8 total = 0;
  UNROLL
  for (i8 e = LANE_X; e < count; e += LANES_X) total += (f8)values[live ? live[e] : e];
  total = block_sum(part, total);
  if (LANE_X == 0) ((f8*)t[{status}])[place] = total;
}}
"""
_PLAIN_KERNELS = """\
// at: an array of so many words of 4 bytes
KERNEL zeros(i8 at) {{
  const i8 *a = (const i8*)at, n = a[1];
  {each} ((i4*)a[0])[e] = 0;
}}
KERNEL begin(i8 table, i8 n) {{
  {head}
  {each} ((i8*)t[{status}])[e] = 0;
}}
// the last one: the word of faults, and of so many losses the sum, NaN of a bad batch
KERNEL end(i8 table, i8 word, i8 first, i8 count, i8 place) {{
  {head}
  if (BLOCK || LANE_X) return;
  i8* status = (i8*)t[{status}];
  f8 total = *status ? as_f8(-1) : 0;
  for (i8 e = 0; e < count; e++) total += ((const f8*)status)[first + e];
  status[{faults}] = *(const i8*)word;
  ((f8*)status)[place] = total;
  *(f4*)(status + place + 1) = (f4)total;
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
    return text.format(k=k, head=_HEAD, each=_ELEMENT_LOOP.format(n=n), **numbers)


TEXT = "\n".join(
    [
        BLOCK_SUM,
        f"#define BUFFER(number) t[t[{ADDRESSES_AT}] + (number)]",
        *(_text(_ARITHMETIC, k) for k in KINDS.values()),
        _CLIP_FACTOR,
        _FAULT,
        *(_text(_TAKE, k, "count * words") for k in ("i4", "b1")),
        _GATHERED,
        _GATHERED_B2,
        *(_text(_RESULTS, k) for k in ("i4", "b1")),
        _text(_RESULTS_B2),
        *(_text(_PLANNED, k, "count * width") for k in KINDS.values()),
        *(_text(_BAD, k) for k in KINDS.values()),
        f"#define FLAG_SIZE {FLAG_SIZE}",
        _text(_FLAGGED),
        *(_text(_ZERO, k) for k in ("i4", "b1")),
        *(_text(_TOTAL, k) for k in ("f4", "f8", "i4", "i8")),
        _text(_PLAIN_KERNELS),
        few_rows.TEXT,
    ]
)


def plan_of(targets: NDArray[Any], terms: NDArray[np.int64] | None = None) -> NDArray[np.int32]:
    """Return the plan that adds term i to row ``targets[i]``, terms of one row in their order: ``[n] int32``.

    A plan is one run of whole numbers: how many *targets* there are, the targets, where the terms of each
    begin in what follows and where the last ones end, and the terms in order. Terms may have other numbers.

    >>> plan_of(np.array([7, 2, 7])).tolist()
    [2, 2, 7, 0, 1, 3, 1, 0, 2]
    """
    rising, count = (targets[1:] > targets[:-1]).all(), len(targets)  # as rows mostly are
    order, bounds = (np.arange(count), np.arange(count + 1)) if rising else group(targets)
    distinct = targets if rising else targets[order[bounds[:-1]]]
    plan = np.empty(1 + len(distinct) + len(bounds) + len(order), np.int32)
    plan[0], first, then = len(distinct), 1 + len(distinct), 1 + len(distinct) + len(bounds)
    plan[1:first], plan[first:then] = distinct, bounds
    plan[then:] = order if terms is None else terms[order]
    return plan
