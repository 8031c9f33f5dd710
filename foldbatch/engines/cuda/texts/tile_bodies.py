"""The text of products by tiles: a block computes a square of the result, its threads little squares of that.

What is summed over comes in chunks of `CHUNK`, one after the other. While the threads multiply one chunk, the
next one is copied to shared memory. The order of a sum depends on nothing but its length, so bits repeat.
Where a block has fewer threads than little squares, these come in turns.
"""

from __future__ import annotations

CHUNK = 16  # of what is summed over
SIDE = 16  # little squares along each side of a tile
SIZES = (2, 4)  # numbers along each side of a little square

# a, b and c point to the first elements. Of a, row i and column k lie at ``i * a_row + k * a_column``; of b,
# row k and column j at ``k * b_row + j * b_column``. ``t`` is the number of the tile.
_TILE = """\
DEVICE void tile_{k}_{size}({k}* shared, const {k}* a, i8 a_row, i8 a_column, const {k}* b, i8 b_row,
                            i8 b_column, {k}* c, i8 c_lead, i4 adds, i8 m, i8 n, i8 length, i8 t) {{
  const i8 across = (n + {tile} - 1) / {tile}, top = t / across * {tile}, left = t % across * {tile};
  // All threads take as many turns, or some would miss barriers; those beyond the last square write nothing.
  for (i8 turn = 0; turn < {side} * {side}; turn += THREADS) {{
    const i8 own = turn + THREAD;
    const i4 y = (i4)(own / {side} % {side}), x = (i4)(own % {side});
    {k} sums[{size}][{size}];
    for (i4 i = 0; i < {size}; i++)
      for (i4 j = 0; j < {size}; j++) sums[i][j] = 0;
    for (i8 k0 = -{chunk}; k0 < length; k0 += {chunk}) {{
      const i8 next = k0 + {chunk};
      {k}* to = shared + (next / {chunk} & 1) * (2 * {chunk} * {tile});
      if (next < length) {{
        for (i4 e = (i4)THREAD; e < {chunk} * {tile}; e += (i4)THREADS) {{
          // neighbours copy what lies side by side
          const i4 i = a_column == 1 ? e / {chunk} : e % {tile}, k = a_column == 1 ? e % {chunk} : e / {tile};
          const b1 there = top + i < m && next + k < length;
          COPY_LATER(to + k * {tile} + i, a + (there ? (top + i) * a_row + (next + k) * a_column : 0), there);
        }}
        for (i4 e = (i4)THREAD; e < {chunk} * {tile}; e += (i4)THREADS) {{
          const i4 j = b_column == 1 ? e % {tile} : e / {chunk}, k = b_column == 1 ? e / {tile} : e % {chunk};
          const b1 there = left + j < n && next + k < length;
          const {k}* from = b + (there ? (next + k) * b_row + (left + j) * b_column : 0);
          COPY_LATER(to + ({chunk} + k) * {tile} + j, from, there);
        }}
      }}
      GROUP_COPIES();
      if (k0 >= 0) {{
        const {k}* from = shared + (k0 / {chunk} & 1) * (2 * {chunk} * {tile});
        COPIED(1);
        BARRIER();
        for (i4 k = 0; k < {chunk}; k++) {{
          {k} ours[{size}], theirs[{size}];
          for (i4 i = 0; i < {size}; i++) ours[i] = from[k * {tile} + y + i * {side}];
          for (i4 j = 0; j < {size}; j++) theirs[j] = from[({chunk} + k) * {tile} + x + j * {side}];
          for (i4 i = 0; i < {size}; i++)
            for (i4 j = 0; j < {size}; j++) sums[i][j] += ours[i] * theirs[j];
        }}
        BARRIER();
      }}
    }}
    COPIED(0);
    for (i4 i = 0; i < {size}; i++)
      for (i4 j = 0; j < {size}; j++) {{
        const i8 row = top + y + i * {side}, column = left + x + j * {side};
        if (own < {side} * {side} && row < m && column < n) {{
          {k}* to = c + row * c_lead + column;
          *to = adds ? *to + sums[i][j] : sums[i][j];
        }}
      }}
    BARRIER();
  }}
}}
"""
BODIES = {
    (kind, size): _TILE.format(k=kind, size=size, tile=SIDE * size, side=SIDE, chunk=CHUNK)
    for kind in ("f4", "f8")
    for size in SIZES
}
SHARED = 2 * 2 * CHUNK * SIDE * max(SIZES)  # numbers: two chunks of both operands
