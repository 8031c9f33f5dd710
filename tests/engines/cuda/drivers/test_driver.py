"""Whatever stands for a GPU has what the engine asks of one, by the same names."""

import inspect

import pytest

from foldbatch.engines.cuda.cupy_driver import CupyDriver
from foldbatch.engines.cuda.driver import Driver, MatrixProduct
from tests.engines.cuda.emulator import Emulator
from tests.engines.cuda.late import Late

ASKED = [
    name for name, value in vars(Driver).items() if inspect.isfunction(value) and not name.startswith("_")
]


@pytest.mark.parametrize("kind", [CupyDriver, Emulator, Late])
def test_every_driver_answers_what_the_engine_asks(kind):
    assert len(ASKED) > 10
    for name in ASKED:
        wanted, found = (inspect.signature(getattr(one, name)).parameters for one in (Driver, kind))
        assert list(found) == list(wanted), name


def test_a_product_is_plain_data():
    product = MatrixProduct("float32", 2, 3, 4, 256, 512, 768, 4, 3, 3)
    assert (product.a_across, product.b_across, product.adds, product.count) == (False, False, False, 1)
    assert product == MatrixProduct("float32", 2, 3, 4, 256, 512, 768, 4, 3, 3)
