"""Values in short, and whether they are finite."""

from __future__ import annotations

import numpy as np

from foldbatch.engines.nonfinite import NotFinite, has_nan, is_finite, shown

VALUES_IN = [
    (np.array(3, "int32"), True, False, "int32 3"),
    (np.array(0.5), True, False, "float64 0.5"),
    (np.array([1.0, -np.inf], "float32"), False, False, "float32[2] [  1., -inf]"),
    ([np.array([1.0]), np.array([np.nan])], False, True, "a sequence of 2: float64[2,1] [[ 1.], [nan]]"),
    ([], True, False, "a sequence of 0"),
    (np.full((3, 3), np.nan), False, True, "float64[3,3], 9 nan"),
    (np.array([np.nan, -np.inf, *range(7)]), False, True, "float64[9], 1 nan, 1 -inf, 7 from 0 to 6"),
    (np.zeros((0, 2)), True, False, "float64[0,2] []"),
]


def test_values_in_short() -> None:
    for value, finite, nan, text in VALUES_IN:
        assert (is_finite(value), has_nan(value), shown(value)) == (finite, nan, text)


def test_a_place_is_printed_whole() -> None:
    found = NotFinite(
        3, "model", "log", "forward", "float32 -inf", ("float32 0.",), 0, 0, "the loss", "['x']"
    )
    assert str(found).splitlines() == [
        "model at example 3 ['x']: log (forward) yields float32 -inf",
        "  of float32 0.",
        "  so that the loss is not finite",
    ]
