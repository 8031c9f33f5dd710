"""Products of few rows with a weight, by kernels of our own: most levels of a batch have few calls.

A library's kernels are made for many rows. With few, most of a GPU has nothing to do, and one that shares the
sum among blocks needs another kernel to add it up. Here the threads of a block share the sum, and a block
that has no rows ends at once, as the table tells how many there are and not how many there is room for. A
number is added up in an order that depends on the extents of the weight alone, so a row has the same bits
whatever rows are beside it. Products are exact here in every precision. Rows with gaps between are left to a
library.

A block multiplies four rows of A. On trial (`trials`) are blocks of 8 and 16, which read a weight half and a
quarter as often; a row has the same bits in each.
"""

from __future__ import annotations

from typing import NamedTuple

from foldbatch.engines.cuda.driver import MatrixProduct

WIDE, SUM_THREADS = 32, 16  # threads of a block where B lies along: of columns, and of numbers of a sum
TURN = 4  # rows of a block whose parts are added up at a time
SUMS, PARTS = 4 * TURN, 8  # where B lies across: numbers of C of a group of threads then, and parts of each
# By whether B lies across: threads of a block, and the columns of C that it computes
SHAPES = {False: ((WIDE, SUM_THREADS), WIDE), True: ((32, 8), 8)}


class Reach(NamedTuple):
    """The products that kernels of this module do, and the rows that a block has."""

    rows: int  # products of more rows are left to a library
    work: int  # and of more multiplications
    # from how many rows on a block multiplies how many: of float32 numbers where B lies along, and of others
    blocks: tuple[tuple[int, int, int], ...]


DEFAULT = Reach(128, 1 << 26, ((0, 4, 4),))
TRIAL = Reach(384, 1 << 27, ((128, 16, 8), (64, 8, 8), (0, 4, 4)))  # see `trials.TRIALS`, rows

# Shared by both: A is [m, k], C [m, n]; `calls` is the address of the number of calls, each of `each` rows;
# 0 where there are m rows.
_HEAD = """\
(i8 a_, i8 b_, i8 c_, i8 m_, i8 n_, i8 k_, i8 a_lead, i8 b_lead, i8 c_lead, i8 adds, i8 calls, i8 each) {
  OVERLAP();
  const KIND *a = (const KIND*)a_, *b = (const KIND*)b_;
  KIND* c = (KIND*)c_;
  const i4 m = calls ? (i4)(*(const i8*)calls * each) : (i4)m_, n = (i4)n_, k = (i4)k_;
  const i4 x = (i4)LANE_X, y = (i4)LANE_Y, xs = (i4)LANES_X, ys = (i4)LANES_Y;
  const i4 lane = y * xs + x, lanes = xs * ys;
"""
# B is [k, n]: a thread has a column, and every ys-th number of the sum. It loads its numbers of B before A is
# there, so that they are under way together.
_ALONG = """\
KERNEL_WIDE NAME_HEAD  SHARED ALIGNED(16) KIND rows[ROWS * DEEP * AHEAD];
  SHARED KIND part[TURN * WIDE * DEEP];
  const i4 tiles = (n + xs - 1) / xs, count = tiles * ((m + ROWS - 1) / ROWS), wide = ys * AHEAD;
  AFTER_LAST();
  for (i4 tile = (i4)BLOCK; tile < count; tile += (i4)BLOCKS) {
    const i4 column = tile % tiles * xs + x, row = tile / tiles * ROWS;
    KIND sum[ROWS] = {0}, ahead[AHEAD];
    for (i4 first = 0; first < k; first += wide) {
      UNROLLED
      for (i4 j = 0; j < AHEAD; j++) {
        const i4 i = first + j * ys + y;
        ahead[j] = i < k && column < n ? b[i * b_lead + column] : 0;
      }
      for (i4 e = lane; e < ROWS * wide; e += lanes) {
        const i4 r = e / wide, i = e % wide;
        rows[i * ROWS + r] = first + i < k && row + r < m ? a[(row + r) * a_lead + first + i] : 0;
      }
      BARRIER();
      UNROLLED
      for (i4 j = 0; j < AHEAD; j++) {
        UNROLLED
        for (i4 r = 0; r < ROWS; r++) sum[r] += ahead[j] * rows[(j * ys + y) * ROWS + r];
      }
      BARRIER();
    }
    UNROLLED
    for (i4 turn = 0; turn < ROWS; turn += TURN) {
      UNROLLED
      for (i4 r = 0; r < TURN; r++) part[r * lanes + lane] = sum[turn + r];
      BARRIER();
      for (i4 r = y; r < TURN; r += ys) {
        KIND total = 0;
        for (i4 j = 0; j < ys; j++) total += part[r * lanes + j * xs + x];
        KIND* to = c + (row + turn + r) * c_lead + column;
        if (column < n && row + turn + r < m) *to = adds ? *to + total : total;
      }
      BARRIER();
    }
  }
}
"""
# B lies as [n, k]: a group of threads has four columns, so SUMS numbers of C, and its threads lie along k. Of
# each sum PARTS parts are added up first, then these.
_ACROSS = """\
KERNEL NAME_HEAD  SHARED KIND part[2 * SUMS * (128 + PARTS)];
  const i4 groups = ys > 1 ? 2 : 1, group = y % groups, own = y / groups * xs + x, many = lanes / groups;
  const i4 tiles = (n + 4 * groups - 1) / (4 * groups), count = tiles * ((m + ROWS - 1) / ROWS);
  AFTER_LAST();
  for (i4 tile = (i4)BLOCK; tile < count; tile += (i4)BLOCKS) {
    const i4 first = tile % tiles * 4 * groups, row = tile / tiles * ROWS;
    const KIND *left[ROWS], *right[4];
    KIND sum[ROWS][4] = {{0}};
    UNROLLED
    for (i4 r = 0; r < ROWS; r++) left[r] = a + min_i8(row + r, m - 1) * a_lead;
    UNROLLED
    for (i4 q = 0; q < 4; q++) right[q] = b + min_i8(first + 4 * group + q, n - 1) * b_lead;
    UNROLL
    for (i4 i = own; i < k; i += many) {
      UNROLLED
      for (i4 r = 0; r < ROWS; r++) {
        UNROLLED
        for (i4 q = 0; q < 4; q++) sum[r][q] += left[r][i] * right[q][i];
      }
    }
    UNROLLED
    for (i4 turn = 0; turn < ROWS; turn += TURN) {
      UNROLLED
      for (i4 e = 0; e < SUMS; e++)
        part[(group * SUMS + e) * (many + PARTS) + own] = sum[turn + e / 4][e % 4];
      BARRIER();
      for (i4 e = lane; e < groups * SUMS * PARTS; e += lanes) {
        KIND total = 0;
        for (i4 j = e % PARTS; j < many; j += PARTS) total += part[e / PARTS * (many + PARTS) + j];
        part[e / PARTS * (many + PARTS) + e % PARTS] = total;
      }
      BARRIER();
      for (i4 e = lane; e < groups * SUMS; e += lanes) {
        const i4 r = row + turn + e % SUMS / 4, column = first + e / SUMS * 4 + e % 4;
        KIND total = 0;
        for (i4 j = 0; j < PARTS && j < many; j++) total += part[e * (many + PARTS) + j];
        KIND* to = c + r * c_lead + column;
        if (column < n && r < m) *to = adds ? *to + total : total;
      }
      BARRIER();
    }
  }
}
"""
AHEAD = {"f4": 20, "f8": 8}  # numbers of B that a thread loads at once: more do not fit into registers


def name_of(kind: str, rows: int, *, across: bool) -> str:
    """Return the name of the kernel of a kind of numbers whose blocks have so many rows of A."""
    return f"few_rows_{rows}_{'across_' if across else ''}{kind}"


def text_of(kind: str, rows: int, *, across: bool) -> str:
    """Return the text of that kernel."""
    text = (_ACROSS if across else _ALONG).replace("_HEAD", _HEAD)
    for word, number in (("AHEAD", AHEAD[kind]), ("ROWS", rows)):
        text = text.replace(word, str(number))
    return text.replace("KIND", kind).replace("NAME", name_of(kind, rows, across=across))


_NAMED = {"TURN": TURN, "WIDE": WIDE, "DEEP": SUM_THREADS, "SUMS": SUMS, "PARTS": PARTS}
NUMBERS = "".join(f"#define {name} {number}\n" for name, number in _NAMED.items())
TEXT = NUMBERS + "\n".join(text_of(kind, TURN, across=across) for across in (False, True) for kind in AHEAD)
_LARGER = [("f4", 8, False), ("f4", 16, False), ("f8", 8, False), ("f4", 8, True), ("f8", 8, True)]
TRIAL_TEXT = NUMBERS + "\n".join(text_of(kind, rows, across=across) for kind, rows, across in _LARGER)
TRIAL_NAMES = [name_of(kind, rows, across=across) for kind, rows, across in _LARGER]


def is_small_product(p: MatrixProduct, reach: Reach = DEFAULT) -> bool:
    """Return whether a kernel of this module does a product; a library is slower at it."""
    single = p.count == 1 and not p.a_across and 0 < p.k < 1 << 31 and p.n < 1 << 31
    return single and 0 < p.m <= reach.rows and 0 < p.m * p.n * p.k <= reach.work


def launch_of(
    p: MatrixProduct, calls: int, rows_a_call: int, reach: Reach = DEFAULT
) -> tuple[str, int, tuple[int, int], tuple[int, ...]]:
    """Return the name of a product's kernel, blocks, threads of each, and arguments.

    Where `calls` is an address, there are so many calls of `each` rows; else all rows are there.
    """
    threads, columns = SHAPES[p.b_across]
    kind = "f4" if p.dtype == "float32" else "f8"
    large, small = next(rows for least, *rows in reach.blocks if p.m >= least)
    rows = small if p.b_across or kind == "f8" else large
    name = name_of(kind, rows, across=p.b_across)
    blocks = -(-p.n // columns) * -(-p.m // rows)
    extents = p.m, p.n, p.k, p.a_lead, p.b_lead, p.c_lead, int(p.adds), calls, rows_a_call
    return name, blocks, threads, (p.a, p.b, p.c, *extents)
