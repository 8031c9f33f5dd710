"""Whatever stands for a GPU has what the engine asks of one, by the same names."""

import inspect

import pytest

from foldbatch.engines.cuda.drivers.cupy_driver import CupyDriver
from foldbatch.engines.cuda.drivers.driver import Driver, Product
from foldbatch.engines.cuda.drivers.emulator import Emulator
from foldbatch.engines.cuda.recording.guarded import Guarded
from foldbatch.engines.cuda.recording.late import Late
from foldbatch.engines.cuda.recording.nothing import Nothing
from foldbatch.engines.cuda.recording.recorder import Recorder

ASKED = [
    name for name, value in vars(Driver).items() if inspect.isfunction(value) and not name.startswith("_")
]


@pytest.mark.parametrize("kind", [CupyDriver, Emulator, Guarded, Late, Nothing, Recorder])
def test_every_driver_answers_what_the_engine_asks(kind):
    assert len(ASKED) > 10
    for name in ASKED:
        wanted, found = (inspect.signature(getattr(one, name)).parameters for one in (Driver, kind))
        assert list(found) == list(wanted), name


@pytest.mark.parametrize("within", [Emulator, Nothing])
def test_every_driver_says_how_many_blocks_run_side_by_side(within):
    for driver in (within(), Late(within()), Guarded(within()), Recorder(Late(Guarded(within())))):
        stream = driver.stream()
        kernel = driver.load("KERNEL kernel() {}").function("kernel")
        blocks = driver.blocks_together(kernel, (32, 1))
        assert blocks == driver.multiprocessors == within().multiprocessors
        driver.launch_together(kernel, blocks, (32, 1), (), stream)


def test_a_product_is_plain_data():
    product = Product("float32", 2, 3, 4, 256, 512, 768, 4, 3, 3)
    assert (product.a_across, product.b_across, product.adds, product.count) == (False, False, False, 1)
    assert product == Product("float32", 2, 3, 4, 256, 512, 768, 4, 3, 3)
