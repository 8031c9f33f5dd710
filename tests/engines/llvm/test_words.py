"""Words that threads share, in compiled code: none of several threads' counts and swaps is lost."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytestmark = pytest.mark.llvm
pytest.importorskip("llvmlite", reason="llvmlite is not installed")

from foldbatch.engines.llvm.compiling import compiled_function  # noqa: E402 - it needs llvmlite
from foldbatch.engines.llvm.words import count, load, pause, store, swap  # noqa: E402 - they need it, too

TURNS = 20_000


def work(words: int) -> None:
    for _ in range(TURNS):
        count(words)
        while True:
            old = load(words + 8)
            if swap(words + 8, old, old + 2):
                break
            pause()
    store(words + 16, load(words))


def test_threads_lose_no_count_and_no_swap() -> None:
    run = compiled_function(work, "i8", sys.modules[__name__])
    words = np.zeros(3, np.int64)
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(run, words.ctypes.data) for _ in range(2)]:
            done.result()
    assert words.tolist() == [2 * TURNS, 4 * TURNS, 2 * TURNS]
