"""Parameters: named arrays that layers own, their initialisers, and sparse row gradients."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldbatch.errors import BlockTypeError, GraphError, ParameterError, UnknownNameError
from foldbatch.operators import Operators, is_symbolic
from foldbatch.types import TensorType, as_type, describe_value

Array = NDArray[Any]
Initializer = str | float | ArrayLike | Callable[[np.random.Generator, tuple[int, ...]], ArrayLike]


def _fans(shape: tuple[int, ...]) -> tuple[float, float]:
    if len(shape) < 2:
        return (float(shape[0]) if shape else 1.0,) * 2
    return float(np.prod(shape[:-1])), float(shape[-1])


def _within(rng: np.random.Generator, limit: float, shape: tuple[int, ...]) -> ArrayLike:
    return rng.uniform(-limit, limit, shape)


def _orthogonal(rng: np.random.Generator, shape: tuple[int, ...]) -> ArrayLike:
    rows, columns = int(np.prod(shape[:-1])), shape[-1]
    square = rng.normal(size=(max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(square)
    q = q * np.sign(np.diag(r))
    return (q if rows >= columns else q.T).reshape(shape)


INITIALIZERS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], ArrayLike]] = {
    "zeros": lambda _, shape: np.zeros(shape),
    "ones": lambda _, shape: np.ones(shape),
    "uniform": lambda rng, shape: rng.uniform(-0.05, 0.05, shape),
    "normal": lambda rng, shape: rng.normal(0.0, 0.05, shape),
    # Glorot and Bengio 2010, equation 16; He et al. 2015, equation 10
    "glorot_uniform": lambda rng, shape: _within(rng, np.sqrt(6.0 / sum(_fans(shape))), shape),
    "glorot_normal": lambda rng, shape: rng.normal(0.0, np.sqrt(2.0 / sum(_fans(shape))), shape),
    "he_uniform": lambda rng, shape: _within(rng, np.sqrt(6.0 / _fans(shape)[0]), shape),
    "he_normal": lambda rng, shape: rng.normal(0.0, np.sqrt(2.0 / _fans(shape)[0]), shape),
    "orthogonal": _orthogonal,  # Saxe et al. 2014, section 3
}


_numbers = itertools.count()


class Owner:
    """The layer that a parameter belongs to, as far as names go; compared by identity.

    Args:
        name: of the layer.
        given: whether the user gave the name; else it may be changed to make it unique.
    """

    __slots__ = ("given", "name", "number")

    def __init__(self, name: str, *, given: bool = False) -> None:
        self.name = name
        self.given = given
        self.number = next(_numbers)


class Away(Protocol):
    """Where a parameter's numbers are, while its own array holds older ones: the memory of a device."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """What is held while numbers are read, so that they come home once."""
        ...

    def read_into(self, array: Array) -> None:
        """Copy the numbers into an array of the parameter's shape and dtype."""
        ...


class Parameter(Operators[Any]):
    """A named array that training changes (or not, when frozen).

    In the function of a block or of a cell it is a tensor: it is indexed, and takes operators, methods and
    functions of NumPy.

    Args:
        type: its shape and dtype, without a batch axis; a short-hand as in `foldbatch.types.as_type`
            (``[3, 4]`` for a float32 matrix) will do.
        init: the name of an initialiser (a key of `INITIALIZERS`), a number, an array, or a
            function of a generator and a shape.
        name: what it is called inside its layer, e.g. ``weight``; by default ``parameter``.
        trainable: False means that no gradient is ever computed for it.
        owner: the layer it belongs to; None for a parameter that stands alone.

    Attributes:
        away: where its numbers are, while a device has newer ones than `value`; else None.

    Raises:
        UnknownNameError: when `init` names no initialiser.
        BlockTypeError: when `type` is not that of a tensor.
        ParameterError: when an array given as `init`, or assigned later, has another shape, or holds a
            number that is not finite, or that the dtype cannot hold.

    >>> Parameter([2], init=0.5, name="bias").value
    array([0.5, 0.5], dtype=float32)
    """

    __slots__ = (
        "__weakref__",
        "_value",
        "away",
        "given",
        "init",
        "name",
        "number",
        "owner",
        "trainable",
        "type",
    )

    def __init__(
        self,
        type: TensorType | int | str | list[int | str],
        init: Initializer = "glorot_uniform",
        name: str | None = None,
        *,
        trainable: bool = True,
        owner: Owner | None = None,
    ) -> None:
        self.name = "parameter" if name is None else name
        self.given = name is not None
        self.number = next(_numbers)
        if isinstance(init, str) and init not in INITIALIZERS:
            expected = f"an initialiser of {', '.join(INITIALIZERS)}"
            raise UnknownNameError(
                self.name, expected, repr(init), "or give a number, an array or a function"
            )
        spec = as_type(type, f"Parameter {self.name}")
        if not isinstance(spec, TensorType):
            raise BlockTypeError(
                f"Parameter {self.name}", "the type of a tensor", str(spec), "for example [3, 4]"
            )
        self.type = spec
        self.init = init
        self.owner = owner
        self.trainable = trainable
        self._value: Array | None = None
        self.away: Away | None = None
        if not isinstance(init, str) and not callable(init) and np.ndim(init) > 0:
            self.assign(init)

    @property
    def order(self) -> tuple[int, int]:
        """A key that sorts parameters as they, or the layers that own them, were made in this process."""
        return (self.number if self.owner is None else self.owner.number), self.number

    @property
    def is_initialized(self) -> bool:
        """Whether the array exists yet."""
        return self._value is not None

    @property
    def path(self) -> str:
        """Its name with that of its layer, as far as it is known outside a program: ``words.weight``."""
        return f"{self.owner.name}.{self.name}" if self.owner else self.name

    def initialize(self, seed: int, name: str) -> None:
        """Draw the array if there is none yet, from `seed` and the full `name` alone."""
        if self._value is None:
            rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
            if isinstance(self.init, str):
                drawn = INITIALIZERS[self.init](rng, self.type.shape)
            elif callable(self.init):
                drawn = self.init(rng, self.type.shape)
            else:
                drawn = np.full(self.type.shape, self.init)
            self.assign(drawn, name)

    def __bool__(self) -> bool:
        return super().__bool__() if is_symbolic() else True

    @property
    def value(self) -> Array:
        """The array itself, of the parameter's shape and dtype; update it in place.

        In the function of a block it would be a constant that never learns, and is refused there.

        It is the same array each time. While a device computes with the parameter the array is read-only and
        holds older numbers; whoever asks for it here gets the device's numbers in it, and may write to it.
        """
        if is_symbolic():
            expected, found = "the parameter itself", "its present numbers, which would never learn"
            raise GraphError(f"{self.path}.value", expected, found, f"write {self.name} without .value")
        if self._value is None:
            self.initialize(0, self.name)
        assert self._value is not None
        while (away := self.away) is not None:
            self._come_home(away)
        return self._value

    def take_away(self, away: Away) -> None:
        """Let the numbers be elsewhere from now on, which has copies of those in `value`.

        The array becomes read-only until somebody asks for `value`.
        """
        self.value.flags.writeable = False
        self.away = away

    def _come_home(self, away: Away) -> None:
        assert self._value is not None
        with away.lock:
            if self.away is away:  # no other thread was quicker
                numbers = np.empty_like(self._value)
                away.read_into(numbers)
                self._stay(numbers)

    def _stay(self, numbers: Array) -> None:
        """Let the array hold the newest numbers."""
        assert self._value is not None
        self._value.flags.writeable = True
        self._value[...] = numbers
        self.away = None

    def assign(self, value: ArrayLike, where: str | None = None) -> None:
        """Copy `value` into the parameter, keeping the array that programs already hold.

        Errors are those of `fitting`.
        """
        array = self.fitting(value, where)
        away = self.away
        if self._value is None:
            self._value = array
        elif away is None:
            self._value[...] = array
        else:
            with away.lock:
                self._stay(array)  # all numbers are replaced, so none need come home

    def fitting(self, value: ArrayLike, where: str | None = None) -> Array:
        """Return a copy of `value` in the parameter's dtype; errors name the parameter `where`.

        Raises:
            ParameterError: when it has another shape, holds no numbers or none that are finite, or numbers
                that the dtype cannot hold.
        """
        where = self.path if where is None else where
        fix = "give an array of the parameter's shape"
        try:
            array = np.asarray(value)
        except (TypeError, ValueError):
            raise ParameterError(where, str(self.type), describe_value(value), fix) from None
        if array.shape != self.type.shape or array.dtype.kind not in "fiub":
            found = f"{array.dtype}[{','.join(map(str, array.shape))}]"
            raise ParameterError(where, str(self.type), found, fix)
        with np.errstate(all="ignore"):
            converted = np.array(array, dtype=self.type.dtype, order="C")
            bad = ~np.isfinite(converted) if self.type.is_float else converted != array
        if bad.any():
            place = tuple(int(i) for i in np.argwhere(bad)[0])
            number = array[place]
            expected = "finite numbers"
            if np.isfinite(number):
                expected = f"numbers that {self.type.dtype} can hold"
            raise ParameterError(where, expected, f"{number} at {place}", "clean the array first")
        return converted

    def __getstate__(self) -> object:
        if self.away is not None:
            _ = self.value  # a copy, or a file, holds the numbers themselves
        return object.__getstate__(self)

    def __repr__(self) -> str:
        return f"Parameter({str(self.type)!r}, name={self.name!r})"


class Remote:
    """An array in the memory of a device, and what is done there with gradients."""

    __slots__ = ()

    def spread(self, gradient: SparseRows) -> Any:
        """Return a sparse gradient, whose values this array is, as an array of its table's shape."""
        raise NotImplementedError

    def total(self, parts: Sequence[Any]) -> Any:
        """Return the sum of a parameter's gradients, of which some may be NumPy's arrays."""
        raise NotImplementedError

    def first_not_finite(self, arrays: Sequence[Any]) -> Callable[[], int | None]:
        """Look now for the first array that holds a NaN or an infinity; return what waits for its number."""
        raise NotImplementedError

    def clipped(self, gradients: Mapping[str, Any], max_norm: float) -> tuple[dict[str, Any], float]:
        """Do what `foldbatch.train.clip_by_global_norm` does; the norm is pending."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class SparseRows:
    """The gradient of a table of which a batch touched few rows.

    Shapes: ``rows: [r] int64``, ascending and distinct; ``values: [r, ...]``; ``shape`` is the
    table's.

    >>> SparseRows(np.array([1]), np.ones((1, 2), "float32"), (3, 2)).dense().tolist()
    [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
    """

    rows: NDArray[np.int64]
    values: Array
    shape: tuple[int, ...]

    def dense(self) -> Array:
        """Return the gradient as an array of the table's shape."""
        if isinstance(self.values, Remote):
            return cast("Array", self.values.spread(self))
        table = np.zeros(self.shape, self.values.dtype)
        table[self.rows] = self.values
        return table


Gradient = Array | SparseRows
