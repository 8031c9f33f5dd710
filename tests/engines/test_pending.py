"""Numbers that are read when somebody looks, and then are floats."""

import copy
import json
import math
import numbers
import pickle
import statistics

import numpy as np
import pytest

from foldbatch.engines.pending import Pending, pending


class Reading:
    """Counts how often a number is read."""

    def __init__(self, number: float = 2.5) -> None:
        self.number = number
        self.count = 0

    def __call__(self) -> float:
        self.count += 1
        return self.number


LOOKS = {
    "float": (float, 2.5),
    "int": (int, 2),
    "bool": (bool, True),
    "isfinite": (math.isfinite, True),
    "isnan": (np.isnan, False),
    "floor": (math.floor, 2),
    "ceil": (math.ceil, 3),
    "round": (lambda x: round(x, 1), 2.5),
    "abs": (abs, 2.5),
    "negative": (lambda x: -x, -2.5),
    "power": (lambda x: x**2, 6.25),
    "reflected power": (lambda x: 2**x, 2**2.5),
    "remainder": (lambda x: x % 1, 0.5),
    "whole quotient": (lambda x: x // 1, 2.0),
    "divmod": (lambda x: divmod(x, 1), (2.0, 0.5)),
    "format": (lambda x: f"{x:.2f} {x!r} {x}", "2.50 2.5 2.5"),
    "hash": (hash, hash(2.5)),
    "equal": (lambda x: (x == 2.5, x != 2.5, x == "a"), (True, False, False)),
    "order": (lambda x: (x < 3, x <= 2, x > 2, x >= 3), (True, False, True, False)),
    "reflected order": (lambda x: (3 > x, 2 >= x, 2 < x, 3 <= x), (True, False, True, False)),
    "asarray": (lambda x: np.asarray(x, "float32").tolist(), 2.5),
    "array operand": (lambda x: (np.ones(2) * x).tolist(), [2.5, 2.5]),
    "array operand right": (lambda x: (x - np.ones(2)).tolist(), [1.5, 1.5]),
    "mean": (lambda x: np.mean([x, 3.5]), 3.0),
    "statistics": (lambda x: (statistics.mean([x, x]), type(statistics.mean([x, x]))), (2.5, float)),
    "pickle": (lambda x: pickle.loads(pickle.dumps(x)), 2.5),
    "copy": (lambda x: (copy.copy(x), type(copy.deepcopy(x))), (2.5, float)),
    "method of float": (lambda x: x.is_integer(), False),
}


def test_who_looks_reads_it_once():
    for look, expected in LOOKS.values():
        reading = Reading()
        number = pending(reading)
        assert isinstance(number, numbers.Real)
        assert reading.count == 0
        assert look(number) == expected
        assert look(number) == expected
        assert reading.count == 1


def test_arithmetic_reads_nothing():
    one, two = Reading(6.0), Reading(3.0)
    x, y = Pending(one), Pending(two)
    made = [x + y, x - y, x * y, x / y, 1 + x, 1 - x, 2 * x, np.float32(12) / x, sum([x, y]), x + np.int64(1)]
    assert all(isinstance(number, Pending) for number in made)
    assert one.count == two.count == 0
    assert made == [9, 3, 18, 2, 7, -5, 12, 2, 9, 7]
    assert one.count == two.count == 1


def test_what_writes_only_floats_refuses_it_until_it_is_converted():
    """A writer that asks for the type cannot be served: the number is not there yet."""
    with pytest.raises(TypeError, match="Pending is not JSON serializable"):
        json.dumps({"loss": pending(Reading())})
    assert json.dumps({"loss": float(pending(Reading()))}) == '{"loss": 2.5}'


def test_what_is_no_number_cannot_be_added():
    with pytest.raises(TypeError):
        Pending(Reading()) + "a"
    with pytest.raises(AttributeError):
        _ = Pending(Reading()).total


def test_an_error_is_raised_whenever_somebody_looks_and_a_later_look_may_succeed():
    answers = [ValueError("first"), ValueError("second")]

    def read():
        if answers:
            raise answers.pop(0)
        return 1.0

    number = Pending(read) + 1
    for message in ("first", "second"):
        with pytest.raises(ValueError, match=message):
            float(number)
    assert number == 2.0


def test_hooks_run_once_when_the_number_is_read():
    seen = []
    number = Pending(Reading())
    number.then(seen.append)
    assert seen == []
    assert [float(number), float(number)] == [2.5, 2.5]
    number.then(lambda x: seen.append(-x))
    assert seen == [2.5, -2.5]
