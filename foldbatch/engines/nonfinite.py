"""Values that are NaN or infinite: whether a gradient is, and the record of the place where it began."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from foldbatch.engines.threads import single_threaded_blas
from foldbatch.params.parameters import Gradient, Remote, Updates, numbers_of
from foldbatch.static.evaluate import Value

PRINTED_NUMBERS = 8  # numbers of an array that are printed; of a larger one, its range


def first_not_finite(gradients: Mapping[str, Gradient]) -> str | None:
    """Return the name of the first gradient that holds a NaN or an infinity, or None.

    >>> first_not_finite({"a": np.ones(2), "b": np.array([1.0, np.inf])})
    'b'
    """
    return look_for_not_finite(gradients)()


def look_for_not_finite(
    gradients: Mapping[str, Gradient], updates: object = None
) -> Callable[[], str | None]:
    """Look for a NaN or an infinity now; return what tells the first gradient that has one, see above.

    Where an engine has compiled `updates`, these look first.

    Gradients on a device are looked at there, and only the one who asks for the name waits.
    """
    arrays = {name: numbers_of(gradient) for name, gradient in gradients.items()}
    remote = {name: array for name, array in arrays.items() if isinstance(array, Remote)}
    if remote:
        first = next(iter(remote.values())).first_not_finite(list(remote.values()))
        names = list(remote)
        return lambda: None if (number := first()) is None else names[number]
    if isinstance(updates, Updates) and updates.good(gradients.values()):
        return lambda: None
    # BLAS would wake its other threads, which then wait for more work and take the time of a core
    with single_threaded_blas(), np.errstate(all="ignore"):
        for name, values in arrays.items():
            # A sum of squares takes one quick pass. It may be infinite for large finite numbers, too.
            if not math.isfinite(np.vdot(values, values)) and not np.isfinite(values).all():
                return lambda: name
    return lambda: None


@dataclass(frozen=True, slots=True, repr=False)
class NotFinite:
    """The op whose result is NaN or infinite while its operands are finite; `repr` prints all of it."""

    example: int  # the number of the example in its batch
    where: str  # the path of the block, or of the first of several blocks that run as one call
    op: str  # the name of the op; ``data`` where the example holds the number; ``parameter`` with its name
    direction: str  # ``forward``, or ``backward`` where the op computes gradients
    value: str  # the result of the op, in short
    operands: tuple[str, ...]  # its operands, in short
    cell: int  # the number of the cell, among those of ``Program.describe``
    call: int  # which of the cell's calls for this example it is, counted from 0
    reached: str = ""  # what is not finite in consequence, for example ``the loss``
    # the part of the example, as Python would index it; empty where it is the whole example, or not known, as
    # of examples that were traced before
    place: str = ""

    def __repr__(self) -> str:
        where = f"{self.where} at example {self.example}" + (f" {self.place}" if self.place else "")
        lines = [f"{where}: {self.op} ({self.direction}) yields {self.value}"]
        lines += [f"  of {operand}" for operand in self.operands]
        return "\n".join([*lines, f"  so that {self.reached} is not finite"])


def is_finite(value: Value) -> bool:
    if isinstance(value, list):
        return all(map(is_finite, value))
    return value.dtype.kind != "f" or bool(np.isfinite(value).all())


def has_nan(value: Value) -> bool:
    return any(map(has_nan, value)) if isinstance(value, list) else bool(np.isnan(value).any())


def shown(value: Value) -> str:
    """Return a value in short: a few numbers, or the range of many.

    >>> shown(np.array([0.5, np.nan], "float32")), shown(np.array([np.inf, *range(9)]))
    ('float32[2] [0.5, nan]', 'float64[10], 1 inf, 9 from 0 to 8')
    """
    if isinstance(value, list):
        return f"a sequence of {len(value)}" + (f": {shown(np.stack(value))}" if value else "")
    array = np.asarray(value)
    shape = f"[{','.join(map(str, array.shape))}]" if array.shape else ""
    kind = f"{array.dtype}{shape}"
    if array.size <= PRINTED_NUMBERS:
        return f"{kind} {np.array2string(array, precision=4, separator=', ').replace(chr(10), '')}"
    finite = array[np.isfinite(array)]
    parts = [
        f"{count} {name}"
        for name, count in (
            ("nan", int(np.isnan(array).sum())),
            ("inf", int(np.isposinf(array).sum())),
            ("-inf", int(np.isneginf(array).sum())),
        )
        if count
    ]
    parts += [f"{finite.size} from {finite.min():.4g} to {finite.max():.4g}"] if finite.size else []
    return f"{kind}, {', '.join(parts)}"
