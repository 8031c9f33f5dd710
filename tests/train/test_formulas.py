"""A formula for NumPy computes what its lines say, in place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.train.formulas import formula
from foldbatch.updates import Rule

NAMES = st.sampled_from(["p", "g", "m", "(rate * g)", "(m / rate)"])
EXPRESSIONS = st.recursive(
    NAMES,
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*/"), inner),
        st.builds("sqrt({})".format, inner),
    ),
    max_leaves=6,
)
LINES = st.lists(st.tuples(st.sampled_from(["p", "g", "m", "work"]), EXPRESSIONS), min_size=1, max_size=4)


@settings(max_examples=60)
@given(LINES, st.sampled_from(["float32", "float64"]))
def test_lines_are_computed_as_python_would(lines, dtype):
    rule = Rule(tuple(f"{name} = {expression}" for name, expression in lines), ("m",), ("rate",))
    start = {name: np.random.default_rng(i).normal(size=(2, 3)).astype(dtype) for i, name in enumerate("pgm")}
    expected = {**{name: array.copy() for name, array in start.items()}, "rate": 0.3, "sqrt": np.sqrt}
    made = formula(rule)
    scratch = [np.full((2, 3), np.nan, dtype) for _ in range(made.scratch)]
    arrays = {name: array.copy() for name, array in start.items()}
    with np.errstate(all="ignore"):
        exec("\n".join(rule.lines), expected)
        made.apply(*arrays.values(), 0.3, *scratch)
    for name in ("p", "m"):
        np.testing.assert_array_equal(arrays[name], np.broadcast_to(expected[name], (2, 3)).astype(dtype))
    np.testing.assert_array_equal(arrays["g"], start["g"])


@pytest.mark.parametrize("line", ["p = p ** 2", "p = max(p, g)", "p = -p"])
def test_what_is_no_formula_is_refused(line):
    with pytest.raises((AssertionError, KeyError)):
        formula(Rule((line,), (), ()))
