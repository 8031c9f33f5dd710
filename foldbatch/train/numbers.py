"""Settings of samplers, schedules, optimizers and callbacks, within their ranges whenever assigned."""

import math
from collections.abc import Callable
from dataclasses import MISSING, field
from typing import Any

import numpy as np

from foldbatch import types
from foldbatch.blocks.drafts import is_int
from foldbatch.errors import TrainingError
from foldbatch.types import describe_value

SEE = "its docstring says what it does"


def number(
    where: str, value: Any, low: float, below: float = math.inf, fix: str = SEE, *, above: bool = False
) -> float:
    """Return a setting of `low` or more, or only `above` it, and `below` another number."""
    fits = isinstance(value, int | float | np.floating | np.integer) and not isinstance(value, bool)
    if fits and low <= value < below and not (above and value == low):
        return float(value)
    expected = f"a number above {low:g}" if above else f"a number of {low:g} or more"
    expected += "" if below == math.inf else f" and below {below:g}"
    raise TrainingError(where, expected, describe_value(value), fix)


def whole_number(where: str, value: Any, least: int | None = None, fix: str = SEE) -> int:
    """Return a setting that is a whole number, of `least` or more."""
    if not is_int(value) or (least is not None and value < least):
        expected = "a whole number" if least is None else f"a whole number of {least} or more"
        raise TrainingError(where, expected, describe_value(value), fix)
    return int(value)


def truth(where: str, value: object) -> bool:
    """Return a setting that is True or False."""
    return types.truth(where, value, TrainingError, SEE)


def checked(
    check: Callable[..., object],
    *bounds: object,
    default: object = MISSING,
    optional: bool = False,
    **options: object,
) -> Any:
    """Return a field that `check`, given a place, a value and the rest, refuses or returns when assigned.

    >>> from dataclasses import dataclass
    >>> from foldbatch.system.showing import Described
    >>> @dataclass(repr=False)
    ... class Drop(Described):
    ...     share: float = checked(number, 0, 1, default=0.5)
    >>> Drop(), Drop(0.25)
    (Drop(), Drop(share=0.25))
    """

    def checked_value(where: str, value: object) -> object:
        return None if optional and value is None else check(where, value, *bounds, **options)

    return field(default=default, metadata={"check": checked_value})
