"""Work that is done as late, or in an order as odd, as allowed: whatever is not waited for goes wrong."""

import pytest

from tests.engines.cuda import pipeline
from tests.engines.cuda.checked import ORDERS
from tests.engines.cuda.emulator import Emulator
from tests.engines.cuda.late import Late


@pytest.mark.parametrize("order", ORDERS)
def test_a_program_that_waits_is_right_in_every_order(order):
    assert pipeline.run(Late(Emulator(), ORDERS[order])) == pipeline.SUMS


@pytest.mark.parametrize(
    ("forgotten", "order"),
    [
        ("computing waits", "late"),
        ("computing waits", "computing first"),
        ("copying waits", "copies first"),
        ("packing waits", "computing first"),
        ("reading waits", "late"),
        ("reading waits", "copies first"),
    ],
)
def test_a_program_that_forgets_to_wait_is_wrong(forgotten, order):
    assert pipeline.run(Emulator(), [forgotten]) == pipeline.SUMS
    assert pipeline.run(Late(Emulator(), ORDERS[order]), [forgotten]) != pipeline.SUMS


@pytest.mark.parametrize("forgotten", pipeline.PRECAUTIONS)
def test_a_program_that_forgets_to_wait_is_wrong_sooner_or_later(forgotten):
    sums = [pipeline.run(Late(Emulator(), (0.2, 0.2), seed), [forgotten]) for seed in range(20)]
    assert any(each != pipeline.SUMS for each in sums)


def test_nothing_is_done_before_the_host_waits_and_then_no_more_than_needed():
    driver = Late(Emulator())
    one, two = driver.stream(), driver.stream()
    buffer, seen = driver.allocate(8), driver.pinned(8)
    driver.fill(buffer.pointer, 1, 8, one)
    first = driver.event()
    driver.record(first, one)
    driver.fill(buffer.pointer, 2, 8, one)
    driver.wait(two, first)
    driver.copy_out(seen, buffer.pointer, two)
    assert seen.tolist() == [255] * 8
    read = driver.event()
    driver.record(read, two)
    driver.synchronize(read)
    assert seen.tolist() == [1] * 8
    assert (driver.array(buffer, (8,), "uint8") == 2).all()  # for which all is done
