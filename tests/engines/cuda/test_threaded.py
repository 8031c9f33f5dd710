"""Real threads find what one thread cannot: races, barriers that not all pass, memory out of bounds."""

import shutil

import numpy as np
import pytest

from foldbatch.engines.cuda.driver import Span, Touched
from foldbatch.engines.cuda.emulator import Emulator
from tests.engines.cuda.threaded import Threaded, address_of, run_threaded

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is not installed")

SUMS = """
KERNEL sums(i8 x_, i8 y_, i8 rows, i8 width) {
  SHARED f4 parts[64], total;
  const f4* x = (const f4*)x_;
  f4* y = (f4*)y_;
  i8 lane = LANE_Y * LANES_X + LANE_X, lanes = LANES_X * LANES_Y;
  for (i8 row = BLOCK; row < rows; row += BLOCKS) {
    f4 part = 0;
    for (i8 at = lane; at < width; at += lanes) part += x[row * width + at];
    parts[lane] = part;
    BARRIER();  // 0
    if (lane == 0) {
      total = 0;
      for (i8 at = 0; at < lanes; at++) total += parts[at];
    }
    BARRIER();  // 1
    for (i8 at = lane; at < width; at += lanes) y[row * width + at] = x[row * width + at] / total;
  }
}
"""


def without(barrier):
    """Return the text under another name, without one of its barriers."""
    return SUMS.replace("sums", f"sums_{barrier}").replace(f"BARRIER();  // {barrier}", "")


# One text, because a text takes a third of a second to compile for each way of looking at it.
TEXT = (
    f"{SUMS}{without(0)}{without(1)}"
    """
KERNEL first_wins(i8 seen, i8 word) { if (FIRST_OF(word)) *(i8*)seen = 1; }
KERNEL careless(i8 seen, i8 word) { if (*(i8*)word == 0) { *(i8*)word = 1; *(i8*)seen = BLOCK; } }
KERNEL uneven(i8 x) { if (LANE_X > 0) BARRIER(); }
KERNEL stray(i8 x, i8 at) { ((f4*)x)[at] = 1; }
KERNEL overflowing(i8 x) { *(i4*)x = 2147483647 + *(i4*)x; }
KERNEL unset(i8 x) { SHARED f4 rest; *(f4*)x = rest; }
KERNEL chased(i8 table) { f8* x = ((f8**)table)[0]; x[1] += x[0]; ((f8**)table)[1] = x + 1; }
"""
)


def normalised(kernel, sanitize, blocks=2, threads=(4, 2)):
    x = np.arange(1, 22, dtype=np.float32).reshape(3, 7)
    y = np.zeros_like(x)
    run_threaded(TEXT, kernel, blocks, threads, (address_of(x), address_of(y), 3, 7), [x, y], sanitize)
    np.testing.assert_allclose(y, x / x.sum(1, keepdims=True), rtol=1e-6)


def test_threads_compute_what_one_thread_computes():
    x = np.arange(1, 22, dtype=np.float32).reshape(3, 7)
    y = np.zeros_like(x)
    emulator = Emulator()
    emulator.launch(emulator.load(TEXT).function("sums"), 2, (4, 2), (address_of(x), address_of(y), 3, 7), 0)
    np.testing.assert_allclose(y, x / x.sum(1, keepdims=True), rtol=1e-6)
    for blocks, threads in [(1, (1, 1)), (2, (4, 2)), (20, (32, 2))]:
        normalised("sums", None, blocks, threads)


def test_a_text_with_its_barriers_has_no_race():
    normalised("sums", "thread")


def test_a_text_with_its_barriers_stays_in_bounds():
    normalised("sums", "address")


@pytest.mark.parametrize("barrier", range(2))
def test_without_one_of_its_barriers_there_is_a_race(barrier):
    with pytest.raises(AssertionError, match="data race"):
        normalised(f"sums_{barrier}", "thread")


def one(kernel, count, arguments=(), sanitize="address", blocks=1, threads=(2, 1)):
    """Run a kernel on one array of zeros, ``[count] int64``, and return the array."""
    x = np.zeros(count, np.int64)
    run_threaded(TEXT, kernel, blocks, threads, (address_of(x), *arguments), [x], sanitize)
    return x


def test_several_blocks_run_at_once_so_what_they_share_is_a_race():
    for kernel, sanitize in [("first_wins", "thread"), ("careless", None)]:
        seen, word = np.zeros(1, np.int64), np.zeros(1, np.int64)
        run_threaded(TEXT, kernel, 2, (1, 1), (address_of(seen), address_of(word)), [seen, word], sanitize)
        assert word == 1
    word[0] = 0
    with pytest.raises(AssertionError, match="data race"):
        run_threaded(
            TEXT, "careless", 2, (1, 1), (address_of(seen), address_of(word)), [seen, word], "thread"
        )


def test_threads_that_pass_different_numbers_of_barriers_are_reported():
    with pytest.raises(AssertionError, match="different numbers of barriers"):
        one("uneven", 1, threads=(3, 1))


@pytest.mark.parametrize("at", [-1, 8])
def test_a_stray_access_is_reported(at):
    assert one("stray", 4, (7,)).view(np.float32).tolist() == [0] * 7 + [1]
    with pytest.raises(AssertionError, match="heap-buffer-overflow"):
        one("stray", 4, (at,))


def test_undefined_behaviour_is_reported():
    x = np.ones(1, np.int64)
    with pytest.raises(AssertionError, match="signed integer overflow"):
        run_threaded(TEXT, "overflowing", 1, (1, 1), (address_of(x),), [x], "address")


def test_shared_memory_begins_as_no_number():
    assert np.isnan(one("unset", 1, threads=(1, 1)).view(np.float32)[0])


def test_addresses_in_memory_stay_addresses():
    x = np.array([2.0, 3.0])
    table = np.array([address_of(x), 0])
    run_threaded(TEXT, "chased", 1, (1, 1), (address_of(table),), [table, x], "address")
    assert x.tolist() == [2, 5]
    assert table.tolist() == [address_of(x), address_of(x) + 8]


def test_a_driver_of_threads_gives_a_launch_only_what_it_touches():
    driver = Threaded("address", named=True)
    x = np.zeros(8, np.float32)
    stray = driver.load(TEXT).function("stray")

    def launched(at, reads, writes):
        touched = Touched(
            *([Span(address_of(x) + 4 * a, 4 * n) for a, n in spans] for spans in (reads, writes))
        )
        driver.launch(stray, 1, (1, 1), (address_of(x), at), 0, lambda: touched)

    launched(3, [(0, 2)], [(2, 2)])
    assert x.tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    with pytest.raises(AssertionError, match="heap-buffer-overflow"):
        launched(4, [(0, 2)], [(2, 2)])
    with pytest.raises(AssertionError, match="stray writes"):
        launched(5, [(0, 8)], [(0, 4)])
    with pytest.raises(AssertionError, match="does not say"):
        driver.launch(stray, 1, (1, 1), (address_of(x), 0), 0)
