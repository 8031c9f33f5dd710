"""Every driver does what a driver does, with the same parameters."""

from __future__ import annotations

import inspect

import pytest

from foldbatch.engines.cuda.cupy_driver import CupyDriver
from foldbatch.engines.cuda.driver import ARGUMENTS, Driver, Product
from foldbatch.engines.cuda.emulator import Emulator
from foldbatch.engines.cuda.guarded import Guarded
from foldbatch.engines.cuda.late import Late
from foldbatch.engines.cuda.nothing import Nothing
from foldbatch.engines.cuda.recorder import Recorder

METHODS = [name for name, value in vars(Driver).items() if inspect.isfunction(value) and name[0] != "_"]


@pytest.mark.parametrize("driver", [CupyDriver, Emulator, Guarded, Late, Nothing, Recorder])
def test_a_driver_has_all_methods(driver: type) -> None:
    assert "launch" in METHODS
    for name in METHODS:
        expected = list(inspect.signature(getattr(Driver, name)).parameters)
        assert list(inspect.signature(getattr(driver, name)).parameters) == expected, name


def test_a_product_stands_alone_unless_it_says_so() -> None:
    product = Product("float32", 2, 3, 4, 100, 200, 300, 4, 3, 3)
    assert (product.count, product.adds, product.a_step) == (1, False, 0)
    assert ARGUMENTS == 16
