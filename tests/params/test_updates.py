"""Formulas as plain lines."""

import pytest

from foldbatch.params.parameters import Parameter
from foldbatch.params.updates import RemoteUpdates, Rule


def test_names_that_lines_assign_are_told_apart():
    rule = Rule(("g = g + p", "work = g * g", "m = m + work", "work = work + m", "p = p - work"), ("m",), ())
    assert rule.locals == ("g", "work")


@pytest.mark.parametrize(
    "call", [lambda u: u.full(Parameter([2]), 0.0), lambda u: u.apply([], lambda: None), lambda u: u.look()]
)
def test_a_device_must_say_how(call):
    with pytest.raises(NotImplementedError):
        call(RemoteUpdates())
