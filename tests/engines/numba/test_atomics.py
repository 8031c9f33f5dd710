"""Words that threads share, in compiled code: none of several threads' counts and swaps is lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytestmark = pytest.mark.numba
TURNS = 20_000


def test_threads_lose_no_count_and_no_swap() -> None:
    numba = pytest.importorskip("numba", reason="numba is not installed")
    from foldbatch.engines.numba.atomics import count, load, pause, store, swap  # noqa: PLC0415 - needs Numba

    @numba.njit("void(i8)", nogil=True)
    def work(words: int) -> None:
        for _ in range(TURNS):
            count(words)
            while True:
                old = load(words + 8)
                if swap(words + 8, old, old + 2):
                    break
                pause()
        store(words + 16, load(words))

    words = np.zeros(3, np.int64)
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(work, words.ctypes.data) for _ in range(2)]:
            done.result()
    assert words.tolist() == [2 * TURNS, 4 * TURNS, 2 * TURNS]
