"""What a call takes by the model: which of its parts limits it, and that more of a part never takes less."""

import pytest

from foldbatch.engines.cuda.cost import OWN, Tile, kernel_seconds, library_seconds, own_seconds, tile_seconds
from foldbatch.engines.cuda.rates import CARDS
from foldbatch.engines.cuda.work import Work

H200 = CARDS["H200"]
TILE = Tile(64, 64, 16, 0.5, 0.25)


def product(m, k, n, count=1, dtype="float32"):
    nbytes = 4 * count * (m * k + k * n + m * n)
    return Work("p", product=(m, k, n, count), nbytes=nbytes, dtype=dtype)


def test_a_round_of_tiles_takes_what_one_takes():
    one = tile_seconds(product(64, 300, 64), H200, TILE)
    full = tile_seconds(product(64 * H200.multiprocessors, 300, 64), H200, TILE)
    more = tile_seconds(product(64 * H200.multiprocessors + 1, 300, 64), H200, TILE)
    assert one.limit == "operations"
    assert one == full
    assert 1.8 * full.seconds < more.seconds < 2 * full.seconds


def test_large_products_come_near_the_share_of_the_card_that_tiles_reach():
    m, k, n = 8192, 8192, 8192
    seconds = tile_seconds(product(m, k, n), H200, TILE).seconds
    rate = 2 * m * k * n / seconds
    assert 0.45 < rate / H200.products["fp32"] < 0.5


def test_matrix_units_are_limited_by_what_feeds_them():
    tile = Tile(64, 64, 64, 0.5, 0.5)
    work = product(8192, 4096, 8192)
    exact, rounded = (tile_seconds(work, H200, tile, 1, precision) for precision in ("fp32", "tf32"))
    assert exact.limit == "operations"
    assert rounded.limit == "bytes"
    assert rounded < exact


def test_shallow_panels_wait_for_the_cache():
    shallow, deep = (tile_seconds(product(1, 512, 16), H200, Tile(16, 16, depth, 0.5)) for depth in (8, 64))
    assert shallow.limit == "latency"
    assert deep < shallow


def test_a_long_sum_is_cut_where_a_tile_can():
    whole, cut = (tile_seconds(product(300, 4573, 750), H200, TILE, parts) for parts in (1, 4))
    assert cut.seconds < 0.7 * whole.seconds


def test_our_own_tiles_are_large_where_these_keep_all_multiprocessors_busy():
    small, large = OWN
    assert small.rows < large.rows
    few, many = product(64, 300, 64), product(4096, 300, 4096)
    assert own_seconds(few, H200) == tile_seconds(few, H200, small)
    assert own_seconds(many, H200) == tile_seconds(many, H200, large)


def test_our_own_tiles_compute_in_fp32_or_fp64():
    work = product(4096, 512, 4096)
    assert tile_seconds(work, H200, OWN[1], 1, "tf32") == tile_seconds(work, H200, OWN[1], 1, "fp32")
    assert own_seconds(product(4096, 512, 4096, dtype="float64"), H200) > own_seconds(work, H200)


def test_precision_is_of_float32_alone():
    double = product(4096, 512, 4096, dtype="float64")
    assert library_seconds(double, H200, "tf32") == library_seconds(double, H200, "fp32")
    assert library_seconds(double, H200) > library_seconds(product(4096, 512, 4096), H200)


def test_nothing_to_add_up_takes_nothing():
    assert own_seconds(product(0, 10, 10), H200).seconds == 0
    assert library_seconds(product(10, 0, 10), H200).seconds == 0


def test_a_kernel_of_few_blocks_has_a_part_of_the_card():
    few, many = (kernel_seconds(Work("k", blocks=blocks, nbytes=10**8), H200) for blocks in (1, 1000))
    assert few.limit == many.limit == "bytes"
    assert few.seconds > 20 * many.seconds
    assert many.seconds == pytest.approx(1e8 / H200.memory, rel=0.05)


def test_a_batch_that_the_cache_holds_moves_sooner():
    work = Work("k", blocks=1000, nbytes=10**7)
    assert kernel_seconds(work, H200, held=True) < kernel_seconds(work, H200)
