"""The language of loops: what Python says, computed by compiled code; what it does not say is refused."""

from textwrap import indent
from typing import Any

import numpy as np
import pytest

from tests.backends import needs_llvm
from tests.engines.llvm.walking import run_native

pytestmark = needs_llvm


def run(lines: str, x: Any, kinds: str = "i8 i8", out: int = 1) -> list[Any]:
    """Return `y` after the lines have run, once, given `x`."""
    kind = kinds.split()[1]
    y = np.zeros(out, kind)
    run_native(f"# {kinds}\ndef loop(n, x, y, s):\n{indent(lines, '    ')}\n", 1, [np.array(x), y], [])
    values: list[Any] = y.tolist()
    return values


def test_loops_and_choices_are_those_of_python() -> None:
    lines = """\
k = u8(0)
while k < u8(5) and x[k] >= 0:
    for i in range(k, u8(3)):
        y[u8(0)] += x[i] if i != k else -x[i]
    k += u8(1)
if x[k] == -7 or k == u8(9):
    y[u8(1)] = 5
elif not (k == u8(1)):
    y[u8(1)] = 6
else:
    y[u8(1)] = 7
"""

    def python(x: list[int]) -> list[int]:
        k = total = 0
        while k < 5 and x[k] >= 0:
            for i in range(k, 3):
                total += x[i] if i != k else -x[i]
            k += 1
        return [total, 5 if x[k] == -7 or k == 9 else 6 if k != 1 else 7]

    for x in ([1, 2, 4, -7, 0, 0], [3, -1, 5, 0, 0, 0], [2, 9, -2, 0, 0, 0]):
        assert run(lines, np.array(x), out=2) == python(x)


def test_values_are_exchanged_at_once() -> None:
    assert run("a, b = x[0], x[1]\na, b = b, a\ny[0], y[1] = a, b", np.array([1, 2]), out=2) == [2, 1]


def test_what_would_be_read_in_vain_is_not_read() -> None:
    """Here, far beyond memory."""
    assert run("y[0] = x[u8(1) << u8(45)] if n == u8(2) else 3", np.array([1])) == [3]
    assert run("if n == u8(2) and x[u8(1) << u8(45)] == 1:\n    y[0] = 1", np.array([1])) == [0]


def test_numbers_are_signed_or_not() -> None:
    assert run("y[0] = i8(u8(x[0]) >> u8(63))", np.array([-1])) == [1]
    assert run("y[0] = i8(1) if u8(x[0]) > u8(5) else 2", np.array([-1])) == [1]
    assert run("y[0] = i8(1) if x[0] > 5 else 2", np.array([-1])) == [2]
    assert run("y[0] = i8(f8(x[0]))", np.array([-3])) == [-3]
    assert run("y[0] = i8(x[0])", np.array([200], "u1"), "u1 i8") == [200]


def test_nothing_is_left_of_a_division_by_zero() -> None:
    assert run("d = u8(x[0])\ny[0] = i8(u8(7) // d + u8(7) % d)", np.array([0])) == [0]
    assert run("d = u8(x[0])\ny[0] = i8(u8(7) // d + u8(7) % d)", np.array([4])) == [4]


def test_comparisons_with_nan_are_false_but_one() -> None:
    lines = "t = x[0]\ny[0] = i8((t == t) | (t < t) | (t >= t)) + 2 * i8(t != t)"
    assert run(lines, np.array([np.nan]), "f8 i8") == [2]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("y[0] = u8(1)", "expected i8 to store, found u8"),
        ("a = u8(1) + x[0]", "expected operands of one kind"),
        ("a = 1\na = u8(1)", "expected i8 for a, found u8"),
        ("a = x[0] // x[0]", "expected an operator for i8, found FloorDiv"),
        ("a = n[0]", "expected a pointer, found n"),
        ("a = [1]", "expected an expression of loops"),
        ("del x", "expected a statement of loops"),
        ("a = min(f8(x[0]), 1.0)", "floats: say what to do with NaN"),
    ],
)
def test_what_is_not_of_the_language_is_refused(lines: str, said: str) -> None:
    with pytest.raises(TypeError, match=said.replace("[", r"\[")):
        run(lines, np.array([1]))
