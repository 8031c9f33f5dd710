"""The text of products by tiles: a block computes a square of the result, its threads little squares of that.

What is summed over comes in chunks of `CHUNK`, one after the other. While the threads multiply one chunk, the
next one is copied to shared memory. The order of a sum depends on nothing but its length, so bits repeat.
Where a block has fewer threads than little squares, these come in turns.

A chunk lies in shared memory as its matrix lies: so numbers side by side are copied at once. There is a gap
between its rows. Else threads that read a column would wait for the same bank.
"""

from __future__ import annotations

from foldbatch.engines.cuda.texts.units import ROUNDED, units_step

CHUNK = 16  # of what is summed over
SIDE = 16  # little squares along each side of a tile
SIZES = (2, 4)  # numbers along each side of a little square
TYPES = {"f4": "f4", "f8": "f8", "tf32": "f4", "bf16": "f4"}  # of the numbers of each kind of body
WIDTHS = {"f4": (1, 2, 4), "f8": (1, 2)}  # numbers that are copied at once, at most 16 bytes

# Copies `CHUNK` numbers of each row of an operand from row `first` on. Rows of b are its columns. Number k of
# row i lies at ``i * lead + k``; or, where `along`, at ``k * lead + i``.
_COPY = """\
DEVICE void copy_{k}_{size}_{width}({k}* to, const {k}* from, i8 lead, b1 along, i8 first, i8 rows, i8 next,
                                    i8 length) {{
  const i4 each = along ? {tile} / {width} : {chunk} / {width}, gap = along ? {tile} + 8 : {chunk} + 4;
  const i8 outer = along ? next : first, inner = along ? first : next;
  for (i4 e = (i4)THREAD; e < {chunk} * {tile} / {width}; e += (i4)THREADS) {{
    const i4 o = e / each, q = e % each * {width};
    const i8 outer_end = along ? length : rows, inner_end = along ? rows : length;
    const i8 left = outer + o < outer_end ? inner_end - inner - q : 0;
    const {k}* here = from + (left > 0 ? (outer + o) * lead + inner + q : 0);
    COPY_LATER_{width}(to + o * gap + q, here, left);
  }}
}}
"""

# a, b and c point to the first elements. Of a, row i and column k lie at ``i * a_row + k * a_column``; of b,
# row k and column j at ``k * b_row + j * b_column``; one of both strides is 1. ``t`` numbers the tiles.
# Where a begins at a multiple of the size of `a_wide` numbers, so do all its rows; the same of b.
_TILE = """\
DEVICE void tile_{name}_{size}({k}* shared, const {k}* a, i8 a_row, i8 a_column, const {k}* b, i8 b_row,
                               i8 b_column, {k}* c, i8 c_lead, i4 adds, i8 m, i8 n, i8 length, i8 t,
                               i4 a_wide, i4 b_wide) {{
  const i8 across = (n + {tile} - 1) / {tile}, top = t / across * {tile}, left = t % across * {tile};
  const b1 a_along = a_column != 1, b_along = b_column == 1;
  const i8 a_lead = a_along ? a_column : a_row, b_lead = b_along ? b_row : b_column;
  const i4 a_i = a_along ? 1 : {chunk} + 4, a_k = a_along ? {tile} + 8 : 1;
  const i4 b_j = b_along ? 1 : {chunk} + 4, b_k = b_along ? {tile} + 8 : 1;
  const i4 a_copied = (u8)a % (sizeof({k}) * a_wide) ? 1 : a_wide;
  const i4 b_copied = (u8)b % (sizeof({k}) * b_wide) ? 1 : b_wide;
  for (i8 own = THREAD; own < {side} * {side}; own += THREADS) {{
{where}
    {k} sums[{size}][{size}];
    for (i4 i = 0; i < {size}; i++)
      for (i4 j = 0; j < {size}; j++) sums[i][j] = 0;
    for (i8 k0 = -{chunk}; k0 < length; k0 += {chunk}) {{
      const i8 next = k0 + {chunk};
      {k}* to = shared + (next / {chunk} & 1) * {room};
      if (next < length) {{
{copies}
      }}
      GROUP_COPIES();
      if (k0 >= 0) {{
        const {k} *ours = shared + (k0 / {chunk} & 1) * {room}, *theirs = ours + {room} / 2;
        COPIED(1);
        BARRIER();
{multiply}
        BARRIER();
      }}
    }}
    COPIED(0);
    for (i4 i = 0; i < {size}; i++)
      for (i4 j = 0; j < {size}; j++) {{
        const i8 down = top + {down}, right = left + {right};
        if (down < m && right < n) {{
          {k}* to = c + down * c_lead + right;
          *to = adds ? *to + sums[i][j] : sums[i][j];
        }}
      }}
    BARRIER();
  }}
}}
"""
_MULTIPLY = """\
for (i4 k = 0; k < {chunk}; k++) {{
  {k} some[{size}], others[{size}];
  for (i4 i = 0; i < {size}; i++) some[i] = {rounded}(ours[(row + i * {side}) * a_i + k * a_k]);
  for (i4 j = 0; j < {size}; j++) others[j] = {rounded}(theirs[(column + j * {side}) * b_j + k * b_k]);
  for (i4 i = 0; i < {size}; i++)
    for (i4 j = 0; j < {size}; j++) sums[i][j] += some[i] * others[j];
}}
"""
_UNITS = "#if defined(FB_CUDA) && __CUDA_ARCH__ >= 800\n{units}\n#else\n{plain}\n#endif"


def _room(size: int) -> int:
    """Return how many numbers a chunk of both operands takes."""
    tile = SIDE * size
    return 2 * max(tile * (CHUNK + 4), CHUNK * (tile + 8))


def _body(name: str, size: int) -> str:
    k, rounds = TYPES[name], name in ROUNDED
    numbers = {"k": k, "size": size, "tile": SIDE * size, "side": SIDE, "chunk": CHUNK, "room": _room(size)}
    copies = "\n".join(_copies(k, size, operand) for operand in "ab")
    rounded = f"rounded_{name}" if rounds else ""
    multiply = _MULTIPLY.format(rounded=rounded, **numbers)
    where = f"const i4 row = (i4)(own / {SIDE}), column = (i4)(own % {SIDE});"
    down, right = f"row + i * {SIDE}", f"column + j * {SIDE}"
    if rounds:
        # warps stand side by side: `size` of them share the columns, 8 / `size` the rows
        turn = f"(i * {size} + j)"
        units = [
            "const i4 lane = (i4)(own % 32), warp = (i4)(own / 32);",
            f"const i4 row = warp % {size} * 16 + lane / 4;",
            f"const i4 column = warp / {size} * {2 * size * size} + lane / 4;",
            f"#define DOWN (row + {turn} / 2 % 2 * 8)",
            f"#define RIGHT (column - lane / 4 + {turn} / 4 * 8 + lane % 4 * 2 + j % 2)",
        ]
        plain = [where, f"#define DOWN ({down})", f"#define RIGHT ({right})"]
        where = _UNITS.format(units="\n".join(units), plain="\n".join(plain))
        multiply = _UNITS.format(units=units_step(name, size, CHUNK), plain=multiply)
        down, right = "DOWN", "RIGHT"
    text = _TILE.format(
        name=name, where=where, copies=copies, multiply=multiply, down=down, right=right, **numbers
    )
    return text + ("#undef DOWN\n#undef RIGHT\n" if rounds else "")


def _copies(k: str, size: int, operand: str) -> str:
    """Return statements that begin to copy an operand's chunk, by the widest copies that it is ready for."""
    first, rows = {"a": ("top", "m"), "b": ("left", "n")}[operand]
    to = "to" if operand == "a" else f"to + {_room(size) // 2}"
    arguments = f"{to}, {operand}, {operand}_lead, {operand}_along, {first}, {rows}, next, length"
    ways = [
        f"if ({operand}_copied == {width}) copy_{k}_{size}_{width}({arguments});"
        for width in reversed(WIDTHS[k])
    ]
    return "\nelse ".join(ways)


BODIES = {(name, size): _body(name, size) for name in TYPES for size in SIZES}
COPIES = {
    (k, size): "\n".join(
        _COPY.format(k=k, size=size, width=width, tile=SIDE * size, chunk=CHUNK) for width in WIDTHS[k]
    )
    for k in WIDTHS
    for size in SIZES
}
SHARED = 2 * _room(max(SIZES))  # numbers: two chunks of both operands


def bodies(names: set[str]) -> str:
    """Return all that products of some kinds call, of both sizes.

    Args:
        names: of `TYPES`.

    >>> "copy_f4_2_1" in bodies({"tf32"}), bodies(set())
    (True, '')
    """
    own = [name for name in TYPES if name in names]
    copies = [text for (k, _), text in COPIES.items() if k in {TYPES[name] for name in own}]
    rounded = [ROUNDED[name] for name in own if name in ROUNDED]
    return "\n".join([*copies, *rounded, *(BODIES[name, size] for name in own for size in SIZES)])
