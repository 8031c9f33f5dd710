"""Pending: a number that a device computes, and that is read when somebody looks.

Training goes on while a device still computes the loss of a batch. Whoever prints it waits.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

PENDING_STEPS = 256  # steps of arithmetic on numbers that nobody reads, after which one is read


class Pending:
    """A float that is read when somebody looks: prints it, compares it, converts it.

    Sums, differences, products and quotients of pending numbers are pending, too. A copy, also a pickled one,
    is a plain float.

    Args:
        read: waits for the number and returns it. It is called once, unless it raises.
        length: how many steps of arithmetic lead to it.

    >>> loss = Pending(lambda: 1.5) + 1
    >>> float(loss), f"{loss:.2f}", loss < 3
    (2.5, '2.50', True)
    """

    __slots__ = ("_hooks", "_length", "_read", "_value")
    __array_priority__ = 1.0

    def __new__(cls, read: Callable[[], float] | float, length: int = 0) -> Any:  # noqa: ARG004 - what __init__ takes
        """Return a plain float of a number: `statistics.mean` makes its result of the type it is given."""
        return super().__new__(cls) if callable(read) else float(read)

    def __init__(self, read: Callable[[], float], length: int = 0) -> None:
        self._read: Callable[[], float] | None = read
        self._value = math.nan
        self._length = length
        self._hooks: list[Callable[[float], None]] = []

    def then(self, hook: Callable[[float], None]) -> None:
        """Call a function with the number once it is read; at once where that is done."""
        if self._read is None:
            hook(self._value)
        else:
            self._hooks.append(hook)

    def __float__(self) -> float:
        read = self._read
        if read is not None:
            self._value = float(read())
            self._read, self._length = None, 0
            hooks, self._hooks = self._hooks, []
            for hook in hooks:
                hook(self._value)
        return self._value

    def __eq__(self, other: object) -> bool:
        return bool(float(self) == _read(other))

    def __hash__(self) -> int:
        return hash(float(self))

    def __format__(self, spec: str) -> str:
        return format(float(self), spec)

    def __repr__(self) -> str:
        return repr(float(self))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[np.generic]:  # noqa: FBT001 - NumPy's protocol
        return np.array(float(self), dtype)

    def __reduce__(self) -> tuple[type[float], tuple[float]]:
        return float, (float(self),)

    def __getattr__(self, name: str) -> Any:
        """Return a float's attribute, as `hex` or `is_integer`."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(float(self), name)


def _read(number: object) -> Any:
    return float(number) if isinstance(number, Pending) else number


def _later(function: Callable[[Any, Any], Any], first: object, second: object) -> Any:
    """Return a function of two numbers, one of them pending, as a pending number."""
    if not all(isinstance(x, Pending | int | float | np.integer | np.floating) for x in (first, second)):
        return function(_read(first), _read(second))  # of an array, or an error
    length = 1 + max(x._length if isinstance(x, Pending) else 0 for x in (first, second))
    if length > PENDING_STEPS:  # else reading the sum of a whole epoch would recur too deeply
        first, second, length = _read(first), _read(second), 1
    return Pending(lambda: function(_read(first), _read(second)), length)


def _define(name: str) -> None:
    """Give pending numbers an operator, where it can be applied later; and its reflection."""
    function = getattr(operator, name)
    setattr(Pending, f"__{name}__", lambda self, operand: _later(function, self, operand))
    setattr(Pending, f"__r{name}__", lambda self, operand: _later(function, operand, self))


def _define_read(name: str) -> None:
    """Give pending numbers a special method of floats, which reads."""
    method = getattr(float, name)
    setattr(Pending, name, lambda self, *arguments: method(float(self), *map(_read, arguments)))


for _name in ("add", "sub", "mul", "truediv"):
    _define(_name)
_READ = "abs", "bool", "ceil", "divmod", "floor", "floordiv", "ge", "gt", "int", "le", "lt", "mod", "neg"
for _name in (*_READ, "pos", "pow", "rdivmod", "rfloordiv", "rmod", "round", "rpow", "trunc"):
    _define_read(f"__{_name}__")
numbers.Real.register(Pending)


def pending(read: Callable[[], float]) -> float:
    """Return a number that is read when somebody looks; to its users it is a float."""
    return cast("float", Pending(read))
