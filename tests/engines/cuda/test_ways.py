"""Three ways to run a step: what is between calls, what is within, and which products go to cuBLAS."""

from dataclasses import replace
from math import inf

import pytest

from foldbatch.engines.cuda.rates import CARDS
from foldbatch.engines.cuda.ways import MOST, PLAN_ROW, STEP, ways_of
from foldbatch.engines.cuda.work import Work

H200 = CARDS["H200"]


def level(number, rows, k=64, n=64):
    """Return what a level of a recursion runs: a product and a kernel."""
    where = f"forward_step {number}"
    nbytes = 4 * (rows * k + k * n + rows * n)
    return [
        Work("p", where, rows, product=(rows, k, n, 1), nbytes=nbytes),
        Work("k", where, rows, blocks=max(1, rows // 2), nbytes=8 * rows * n),
    ]


DEEP = [work for number in range(24) for work in level(number, 8)]


def test_a_straight_call_waits_for_the_host_or_for_the_call_before():
    short, long = Work("k", blocks=1), Work("k", blocks=1000, nbytes=10**9)
    way = ways_of([short, long], H200)["straight"]
    assert way.between[0] + way.within[0].seconds == pytest.approx(H200.launch)
    assert way.between[1] == H200.node
    assert way.launches == 2


def test_slots_of_a_class_that_the_batch_lacks_cost_a_node_each():
    few, many = ways_of(DEEP, H200), ways_of(DEEP, H200, idle=100)
    more = many["captured"].card - few["captured"].card
    assert more == pytest.approx(100 * (H200.node + 2 * H200.near))
    assert many["persistent"] == few["persistent"]


def test_a_graph_is_cut_at_wide_products_where_it_can():
    wide = Work("p", product=(4096, 2048, 4096, 1))
    cut, whole = (ways_of([*DEEP, wide, *DEEP], H200, mixed=mixed)["captured"] for mixed in (True, False))
    assert (cut.wide_from, cut.launches) == (wide.operations, 3)
    assert (whole.wide_from, whole.launches) == (inf, 1)
    assert cut.card < whole.card


def test_barriers_that_nobody_needs_cost_nothing():
    none = ways_of(DEEP, H200, barriers=[False] * len(DEEP))["persistent"]
    assert sum(none.between) == H200.together
    assert sum(ways_of(DEEP, H200)["persistent"].between) == pytest.approx(
        H200.together + (len(DEEP) - 1) * H200.barrier
    )


def test_a_persistent_step_has_a_limited_number_of_launches():
    works = [work for number in range(40) for work in level(number, 2000 + number, 2048, 2048)]
    way = ways_of(works, H200)["persistent"]
    assert way.wide_from < inf
    assert way.launches <= MOST


def test_a_wide_product_ends_a_cooperative_kernel_and_the_next_call_begins_one():
    wide = Work("p", product=(300, 5000, 750, 1), nbytes=2 * 10**7)
    way = ways_of([*DEEP, wide, *DEEP], H200)["persistent"]
    assert way.wide_from == wide.operations
    assert way.launches == 3
    assert way.between[len(DEEP)] == H200.node
    assert way.between[len(DEEP) + 1] == H200.together


def test_what_the_host_takes_to_launch_is_a_bound():
    slow = replace(H200, launch=1.0)
    ways = ways_of(DEEP, slow)
    assert ways["straight"].seconds >= len(DEEP)
    assert ways["captured"].seconds == ways["persistent"].seconds == 1.0 + STEP


def test_a_batch_that_the_host_plans_meanwhile_takes_the_host_longer():
    held, new = ways_of(DEEP, H200), ways_of(DEEP, H200, planned=1000)
    for engine, way in new.items():
        assert way.host > held[engine].host + 1000 * PLAN_ROW
        assert way.card == held[engine].card
    assert new["straight"].seconds > new["captured"].seconds
