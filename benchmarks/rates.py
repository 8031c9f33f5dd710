"""Rates of matrix products alone, beside NumPy's BLAS on one thread: ``python -m benchmarks.rates``.

Products of float32 as kernels of the backend `llvm` call them, by turns with NumPy's, the best of all; a
few microseconds of a call from Python are in each.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from functools import partial

import numpy as np

from benchmarks.inside import compiled_product
from benchmarks.options import add_repeats
from foldbatch.engines.threads import single_threaded_blas

SIZES = (300, 750), (600, 1500)
ROWS = (8, 24, 64, 256, 1000)


def rates(rows: int, inner: int, columns: int, repeats: int) -> list[float]:
    """Return GFLOP/s of ``a @ b``, ``a @ b.T`` and ``a.T @ b``, ours and NumPy's of each."""
    product, rng = compiled_product("float32"), np.random.default_rng(0)
    if product is None:
        sys.exit("expected the backend llvm on a processor with AVX2, found another one; install llvmlite")
    a, b = (rng.standard_normal(shape).astype("f4") for shape in ((rows, inner), (inner, columns)))
    pairs = (a, b), (a, np.asfortranarray(b)), (np.asfortranarray(a), b)
    out = np.empty((rows, columns), "f4")
    calls = [partial(f, x, y, out) for x, y in pairs for f in (product, np.matmul)]
    best = [np.inf] * len(calls)
    for _ in range(repeats):
        for place, call in enumerate(calls):
            call()  # so that its factors are in the cache
            start = time.perf_counter()
            call()
            best[place] = min(best[place], time.perf_counter() - start)
    return [2e-9 * rows * inner * columns / seconds for seconds in best]


def main() -> None:
    """Print the rates."""
    parser = ArgumentParser(description=__doc__, prog="python -m benchmarks.rates")
    add_repeats(parser, 100)
    repeats = parser.parse_args().repeats
    print("GFLOP/s, ours and NumPy's: a @ b, a @ b.T, a.T @ b")
    with single_threaded_blas():
        for inner, columns in SIZES:
            for rows in ROWS:
                found = " ".join(f"{rate:4.0f}" for rate in rates(rows, inner, columns, repeats))
                print(f"{rows:5} by {inner} by {columns}: {found}")


if __name__ == "__main__":
    main()
