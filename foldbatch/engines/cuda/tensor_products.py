"""Products of float32 on tensor cores with an error as of float32: the precision ``3xtf32``.

A tensor core multiplies numbers of 10 bits behind the point, TF32. So a factor x is the sum of two such
numbers, ``high = rounded(x)`` and ``low = rounded(x - high)``, and a product is ``low high + high low +
high high``: what is left out is about 2**-22 of it. Tensor cores round their sums towards zero, which would
pull a long sum down. So they add up eight terms, and these sums are added by plain arithmetic. The order
depends on the number of terms alone: a row has the same bits whatever rows are beside it, and in each run.

A block computes ``TILE`` rows by ``TILE`` columns of C, each of its eight warps 64 by 32 of them. It reads
16 terms into registers while it multiplies the ones before, which lie in shared memory: two of each, in
turns. Where there are no tensor cores for TF32 (before ``sm_80``, and on the CPU), plain arithmetic computes
the same of the same numbers. A factor that is infinite, or above 3.4e38, makes a result that is no number.
"""

from __future__ import annotations

from foldbatch.engines.cuda.driver import MatrixProduct

PRECISION = "3xtf32"
TILE, THREADS = 128, 256
# Products of fewer columns, terms or results are left to a library: less than half of a GPU had work
LEAST_COLUMNS, LEAST_TERMS, LEAST_RESULTS = 128, 256, 1 << 20

_NUMBERS = f"#define TILE {TILE}\n#define THREADS {THREADS}\n"
_HEAD = """\
#ifdef FB_CUDA
#undef KERNEL  // one block on a multiprocessor: with two, a thread has too few registers and spills them
#define KERNEL extern "C" __global__ void __launch_bounds__(256, 1)
#else
#undef THREADS
#define THREADS 1
#endif
#define DEEP 16
#define PITCH (TILE + 8)  // from term to term in shared memory: the lanes of a warp read from different banks
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define TENSOR 1
DEVICE u4 short_f4(f4 x) {
  u4 bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}
DEVICE void parted(f4 x, u4* high, u4* low) {
  *high = short_f4(x);
  *low = short_f4(x - __uint_as_float(*high));
}
DEVICE void tensor(f4* d, const u4* a, const u4* b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#else
DEVICE f4 short_f4(f4 x) {
  union { f4 number; u4 bits; } word;
  word.number = x;
  if (x == x) word.bits = (word.bits + 0x1000u) & 0xffffe000u;
  return word.number;
}
#endif
// The line and the term of a number that a thread moves, of a matrix that lies along terms or along lines:
// stores go to different banks of shared memory.
#ifdef FB_CUDA
#define LINE_OF_TERMS(j) (lane / 4 + (j) / (DEEP / 4) * 64)
#define TERM_OF_TERMS(j) (lane % 4 + (j) % (DEEP / 4) * 4)
#define LINE_OF_LINES(j) (lane % TILE)
#define TERM_OF_LINES(j) (lane / TILE + (j) * 2)
#else
#define LINE_OF_TERMS(j) ((j) / DEEP)
#define TERM_OF_TERMS(j) ((j) % DEEP)
#define LINE_OF_LINES(j) ((j) % TILE)
#define TERM_OF_LINES(j) ((j) / TILE)
#endif
"""
# A lies as [m, k], or across as [k, m]; B as [k, n], or across as [n, k]. `calls` as in `few_rows`.
_KERNEL = """\
KERNEL NAME(i8 a_, i8 b_, i8 c_, i8 m_, i8 n_, i8 k_,
            i8 a_lead, i8 b_lead, i8 c_lead, i8 adds, i8 calls, i8 each) {
  OVERLAP();
  SHARED ALIGNED(16) f4 left[2 * DEEP * PITCH];
  SHARED ALIGNED(16) f4 right[2 * DEEP * PITCH];
  const f4 *a = (const f4*)a_, *b = (const f4*)b_;
  f4* c = (f4*)c_;
  const i4 m = calls ? (i4)(*(const i8*)calls * each) : (i4)m_, n = (i4)n_, k = (i4)k_;
  const i4 lane = (i4)LANE_X, tiles = (n + TILE - 1) / TILE, count = tiles * ((m + TILE - 1) / TILE);
#ifdef TENSOR
  const i4 warp = lane / 32, g = lane % 32 / 4, t = lane % 4, line = warp % 2 * 64, wide = warp / 2 * 32;
#endif
  AFTER_LAST();
  for (i4 tile = (i4)BLOCK; tile < count; tile += (i4)BLOCKS) {
    const i4 column = tile % tiles * TILE, row = tile / tiles * TILE, rows = m - row, columns = n - column;
    const f4 *at_a = a + A_FIRST, *at_b = b + B_FIRST;
    f4 sum[TILE * TILE / THREADS] = {0}, of_a[TILE * DEEP / THREADS], of_b[TILE * DEEP / THREADS];
    for (i4 first = -DEEP, turn = 1; first < k; first += DEEP, turn = 1 - turn) {
      UNROLLED
      for (i4 j = 0; j < TILE * DEEP / THREADS; j++) {
        of_a[j] = LINE_OF_A(j) < rows && first + DEEP + TERM_OF_A(j) < k ? at_a[A_PLACE] : 0;
        of_b[j] = LINE_OF_B(j) < columns && first + DEEP + TERM_OF_B(j) < k ? at_b[B_PLACE] : 0;
      }
      at_a += DEEP * A_STEP;
      at_b += DEEP * B_STEP;
      if (first >= 0) {
        const f4 *x = left + turn * DEEP * PITCH, *y = right + turn * DEEP * PITCH;
#ifdef TENSOR
        UNROLLED
        for (i4 p = t; p < DEEP; p += 8) {
          u4 b_high[4][2], b_low[4][2];
          UNROLLED
          for (i4 q = 0; q < 8; q++) {
            const f4 v = y[(p + q % 2 * 4) * PITCH + wide + q / 2 * 8 + g];
            parted(v, &b_high[q / 2][q % 2], &b_low[q / 2][q % 2]);
          }
          UNROLLED
          for (i4 r = 0; r < 4; r++) {
            u4 high[4], low[4];
            UNROLLED
            for (i4 i = 0; i < 4; i++)
              parted(x[(p + i / 2 * 4) * PITCH + line + r * 16 + i % 2 * 8 + g], &high[i], &low[i]);
            UNROLLED
            for (i4 q = 0; q < 4; q++) {
              f4 d[4] = {0, 0, 0, 0};
              tensor(d, low, b_high[q]);
              tensor(d, high, b_low[q]);
              tensor(d, high, b_high[q]);
              UNROLLED
              for (i4 i = 0; i < 4; i++) sum[r * 16 + q * 4 + i] += d[i];
            }
          }
        }
#else
        for (i4 j = 0; j < TILE * TILE / THREADS; j++) {
          const i4 e = lane + j * THREADS, r = e / TILE, q = e % TILE;
          if (row + r >= m || column + q >= n) continue;
          for (i4 p = 0; p < DEEP; p += 8) {
            f4 d = 0;
            for (i4 i = p; i < p + 8; i++) {
              const f4 u = x[i * PITCH + r], v = y[i * PITCH + q], high = short_f4(u), b_high = short_f4(v);
              d += short_f4(u - high) * b_high + high * short_f4(v - b_high) + high * b_high;
            }
            sum[j] += d;
          }
        }
#endif
      }
      UNROLLED
      for (i4 j = 0; j < TILE * DEEP / THREADS; j++) {
        left[((1 - turn) * DEEP + TERM_OF_A(j)) * PITCH + LINE_OF_A(j)] = of_a[j];
        right[((1 - turn) * DEEP + TERM_OF_B(j)) * PITCH + LINE_OF_B(j)] = of_b[j];
      }
      BARRIER();
    }
    UNROLLED
    for (i4 j = 0; j < TILE * TILE / THREADS; j++) {
#ifdef TENSOR
      const i4 r = row + line + j / 16 * 16 + j / 2 % 2 * 8 + g;
      const i4 q = column + wide + j / 4 % 4 * 8 + 2 * t + j % 2;
#else
      const i4 e = lane + j * THREADS, r = row + e / TILE, q = column + e % TILE;
#endif
      f4* to = c + r * c_lead + q;
      if (r < m && q < n) *to = adds ? *to + sum[j] : sum[j];
    }
  }
}
"""


def _text(name: str, *, a_across: bool, b_across: bool) -> str:
    """Return the text of a layout's kernel."""
    words = {
        "NAME": name,
        "A_PLACE": "TERM_OF_A(j) * a_lead + LINE_OF_A(j)"
        if a_across
        else "LINE_OF_A(j) * a_lead + TERM_OF_A(j)",
        "B_PLACE": "LINE_OF_B(j) * b_lead + TERM_OF_B(j)"
        if b_across
        else "TERM_OF_B(j) * b_lead + LINE_OF_B(j)",
        "A_STEP": "a_lead" if a_across else "1",
        "B_STEP": "1" if b_across else "b_lead",
        "A_FIRST": "row" if a_across else "row * a_lead",
        "B_FIRST": "column * b_lead" if b_across else "column",
        "OF_A": "OF_LINES" if a_across else "OF_TERMS",
        "OF_B": "OF_TERMS" if b_across else "OF_LINES",
    }
    kernel = _KERNEL
    for word, text in words.items():
        kernel = kernel.replace(word, text)
    return _NUMBERS + _HEAD + kernel


NAMES = {
    (a_across, b_across): f"tensor_{'across' if a_across else 'along'}_{'across' if b_across else 'along'}"
    for a_across in (False, True)
    for b_across in (False, True)
}
# By name of the kernel of each layout: they take long to compile, so each has a text of its own
TEXTS = {name: _text(name, a_across=a, b_across=b) for (a, b), name in NAMES.items()}


def is_tensor_product(p: MatrixProduct) -> bool:
    """Return whether a kernel of `TEXTS` does a product; a library is as fast at others."""
    single = p.count == 1 and p.dtype == "float32" and max(p.m, p.n, p.k) < 1 << 30
    return single and p.n >= LEAST_COLUMNS and p.k >= LEAST_TERMS and p.m * p.n >= LEAST_RESULTS


def launch_of(
    p: MatrixProduct, calls: int, rows_a_call: int
) -> tuple[str, int, tuple[int, int], tuple[int, ...]]:
    """Return the name of a product's kernel, blocks, threads of each, and arguments, as `few_rows` does."""
    blocks = -(-p.n // TILE) * -(-p.m // TILE)
    extents = p.m, p.n, p.k, p.a_lead, p.b_lead, p.c_lead, int(p.adds), calls, rows_a_call
    return NAMES[p.a_across, p.b_across], blocks, (THREADS, 1), (p.a, p.b, p.c, *extents)
