"""What is asked of a card is counted; of a graph, that it runs, and not what it holds."""

from __future__ import annotations

from benchmarks.gpu.cost import Cost, Counted
from tests.engines.cuda import replayed
from tests.engines.cuda.emulated import needs_compiler
from tests.engines.cuda.emulator import Emulator


@needs_compiler
def test_a_graph_is_one_launch_each_time_that_it_runs():
    cost = Cost()
    assert replayed.run(Counted(Emulator(), cost)) == replayed.EXPECTED
    assert (cost.launches, cost.products, cost.copies_in) == (replayed.ROUNDS, 0, 2 + replayed.ROUNDS)


def test_products_of_addresses_and_launches_of_blocks_side_by_side_are_counted():
    cost = Cost()
    driver = Counted(Emulator(), cost, dry=True)
    driver.launch_together(None, 1, (1, 1), (), 0)
    driver.multiply_at(replayed.PRODUCT, 0, 0)
    assert (cost.launches, cost.products, cost.operations) == (1, 1, 2 * 2 * 2 * 3)
