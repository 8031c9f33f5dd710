"""What is asked of a card is counted; of a graph, that it runs, and not what it holds."""

from __future__ import annotations

from types import SimpleNamespace

from benchmarks.gpu.cost import Cost, Counted
from tests.engines.cuda import replayed
from tests.engines.cuda.emulated import needs_compiler
from tests.engines.cuda.emulator import Emulator


@needs_compiler
def test_a_graph_is_one_launch_each_time_that_it_runs():
    cost = Cost()
    assert replayed.run(Counted(Emulator(), cost)) == replayed.EXPECTED
    assert (cost.launches, cost.products, cost.copies_in) == (replayed.ROUNDS, 1, 3 + replayed.ROUNDS)


def test_launches_and_products_are_counted_that_are_not_done():
    cost = Cost()
    driver = Counted(Emulator(), cost, dry=True)
    driver.launch(None, 1, (1, 1), (), 0)
    nowhere = SimpleNamespace(pointer=0)
    driver.multiply(replayed.product(nowhere, nowhere, nowhere), 0)
    assert (cost.launches, cost.products, cost.operations) == (1, 1, 2 * 2 * 2 * 3)
