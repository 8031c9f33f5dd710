"""Kernels that every program needs, by name; each is a text in the language of ``device.h``.

Names end in the type of their numbers, ``f4`` or ``f8``. A number that is no address travels as the bits of a
double, see `bits`.
"""

from __future__ import annotations

import struct

KINDS = {"float32": "f4", "float64": "f8"}
FAULTS = 5  # the place in a batch's status of the word of the device's faults

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

EACH = "for (i8 i = BLOCK * LANES_X + LANE_X; i < n; i += BLOCKS * LANES_X)"

TEXTS = {
    "fill": """\
KERNEL fill_{f}(i8 out, i8 n, i8 value) {{
  {each} (({f}*)out)[i] = ({f})as_f8(value);
}}
""",
    "scale": """\
KERNEL scale_{f}(i8 out, i8 a, i8 n, i8 factor) {{
  {f} t = ({f})as_f8(factor);
  {each} (({f}*)out)[i] = ((const {f}*)a)[i] * t;
}}
""",
    # the factor is computed on the device
    "scale_by": """\
KERNEL scale_by_{f}(i8 out, i8 a, i8 n, i8 factor) {{
  {f} t = ({f}) * (const f8*)factor;
  {each} (({f}*)out)[i] = ((const {f}*)a)[i] * t;
}}
""",
    "divide": """\
KERNEL divide_{f}(i8 out, i8 a, i8 n, i8 divisor) {{
  {f} t = ({f})as_f8(divisor);
  {each} (({f}*)out)[i] = ((const {f}*)a)[i] / t;
}}
""",
    "add": """\
KERNEL add_{f}(i8 out, i8 a, i8 b, i8 n) {{
  {each} (({f}*)out)[i] = ((const {f}*)a)[i] + ((const {f}*)b)[i];
}}
""",
    # at: out, values [count, width], rows [count] int64, distinct; count * width, and width
    "spread": """\
KERNEL spread_{f}(i8 at) {{
  const i8 *a = (const i8*)at, *rows = (const i8*)a[2], n = a[3], width = a[4];
  {each} (({f}*)a[0])[rows[i / width] * width + i % width] = ((const {f}*)a[1])[i];
}}
""",
    # one sum a block, for clip_factor to add
    "squares": """\
KERNEL squares_{f}(i8 sums, i8 a, i8 n) {{
  SHARED f8 lanes[1024];
  f8 sum = 0;
  {each} {{
    f8 x = ((const {f}*)a)[i];
    sum += x * x;
  }}
  sum = block_sum(lanes, sum);
  if (LANE_X == 0) ((f8*)sums)[BLOCK] = sum;
}}
""",
    # becomes 1 where an array, times the factor, has a NaN or an infinity
    "flag": """\
KERNEL flag_{f}(i8 flag, i8 a, i8 n, i8 factor) {{
  {f} t = ({f})as_f8(factor);
  b1 bad = 0;
  {each} {{
    {f} x = ((const {f}*)a)[i] * t;
    bad |= !(x - x == 0);
  }}
  if (bad) (void)FIRST_OF((i8*)flag);
}}
""",
}

# out[0] is the root of the sum, out[1] what brings it down to `limit`, or 1
CLIP_FACTOR = """\
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
FAULT = """\
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
# At: an array of so many words of 4 bytes
ZEROS = """\
KERNEL zeros(i8 at) {
  const i8 *a = (const i8*)at, n = a[1];
  for (i8 i = BLOCK * LANES_X + LANE_X; i < n; i += BLOCKS * LANES_X) ((i4*)a[0])[i] = 0;
}
"""

COMMON: dict[str, str] = {
    f"{name}_{kind}": text.format(f=kind, each=EACH)
    for name, text in TEXTS.items()
    for kind in KINDS.values()
} | {"clip_factor": CLIP_FACTOR, "fault": FAULT, "zeros": ZEROS}
TEXT = "\n".join([BLOCK_SUM, *COMMON.values()])


def bits(number: float) -> int:
    """Return the bits of a double as a whole number, which ``as_f8`` turns back.

    >>> hex(bits(1.0))
    '0x3ff0000000000000'
    """
    (whole,) = struct.unpack("<q", struct.pack("<d", number))
    return int(whole)
