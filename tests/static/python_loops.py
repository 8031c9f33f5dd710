"""A backend whose loops Python itself runs: what fusion decides can be tested without a compiler.

The text of the loops is the numba backend's. Two NumPy warnings are silenced that compiled code never gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from foldbatch.params import Array
from foldbatch.static.backends import Backend, Loops
from foldbatch.static.backends import numba as spelling
from foldbatch.static.backends.numpy import GLOBALS, OVERWRITES, SPELLINGS


def _flat(array: Array) -> Array:
    assert array.flags.c_contiguous, "a loop is given whole buffers only"
    return array.reshape(-1)


def _sigmoid(dtype: Any) -> Callable[[Any], Any]:
    half = dtype(0.5)
    return lambda x: half + half * np.tanh(half * x)


def no_levels(text: str, loops: tuple[str, ...]) -> Callable[..., None]:
    raise AssertionError("no kernel has a body to stand in a loop over levels")


def run_in_python(text: str) -> Callable[..., None]:
    """Return a loop's function as it stands."""
    scope: dict[str, Any] = {
        "flat": _flat,
        "sqrt": np.sqrt,
        "inf": math.inf,
        "nan": math.nan,
        "u1": int,
        "u8": int,
        "i4": np.int32,
        "i8": np.int64,
    }
    for name, dtype in (("f4", np.float32), ("f8", np.float64)):
        scope |= {
            name: dtype,
            f"tanh_{name}": np.tanh,
            f"exp_{name}": np.exp,
            f"sigmoid_{name}": _sigmoid(dtype),
        }
    exec(text, scope)
    loop = scope["loop"]

    def run(*arguments: Any) -> None:
        with np.errstate(all="ignore"):
            loop(*arguments)

    return run


PYTHON_LOOPS = Backend(
    "python loops",
    SPELLINGS,
    OVERWRITES,
    GLOBALS,
    Loops(
        spelling.takes,
        spelling.alone,
        spelling.spell,
        run_in_python,
        {},
        lambda node, lines: False,
        no_levels,
    ),
)
