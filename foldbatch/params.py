"""Parameters: named arrays that layers own, their initialisers, and sparse row gradients.

A `Parameter` belongs to the layer that made it and is shared by sharing the layer. Its array
is drawn when a program that reaches it is compiled, from the program's seed and the
parameter's name, so the values do not depend on the order of construction. `ParameterStore`
is what a program shows as ``program.params``.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldbatch.errors import BlockTypeError, ParameterError, UnknownNameError
from foldbatch.types import TensorType, as_type

Array = NDArray[Any]
Initializer = str | float | ArrayLike | Callable[[np.random.Generator, tuple[int, ...]], ArrayLike]


def _fans(shape: tuple[int, ...]) -> tuple[float, float]:
    if len(shape) < 2:
        return (float(shape[0]) if shape else 1.0,) * 2
    return float(np.prod(shape[:-1])), float(shape[-1])


def _glorot_uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> ArrayLike:
    limit = np.sqrt(6.0 / sum(_fans(shape)))
    return rng.uniform(-limit, limit, shape)


def _glorot_normal(rng: np.random.Generator, shape: tuple[int, ...]) -> ArrayLike:
    return rng.normal(0.0, np.sqrt(2.0 / sum(_fans(shape))), shape)


def _he_uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> ArrayLike:
    limit = np.sqrt(6.0 / _fans(shape)[0])
    return rng.uniform(-limit, limit, shape)


def _he_normal(rng: np.random.Generator, shape: tuple[int, ...]) -> ArrayLike:
    return rng.normal(0.0, np.sqrt(2.0 / _fans(shape)[0]), shape)


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
    "glorot_uniform": _glorot_uniform,  # Glorot and Bengio 2010, equation 16
    "glorot_normal": _glorot_normal,
    "he_uniform": _he_uniform,  # He et al. 2015, equation 10
    "he_normal": _he_normal,
    "orthogonal": _orthogonal,  # Saxe et al. 2014, section 3
}


class Owner:
    """The layer that a parameter belongs to, as far as names go; compared by identity."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Parameter:
    """A named array that training changes (or not, when frozen).

    Args:
        type: its shape and dtype, without a batch axis; a short-hand as in `foldbatch.types.as_type`
            (``[3, 4]`` for a float32 matrix) will do.
        init: the name of an initialiser (a key of `INITIALIZERS`), a number, an array, or a
            function of a generator and a shape.
        name: what it is called inside its layer, e.g. ``weight``.
        trainable: False means that no gradient is ever computed for it.
        owner: the layer it belongs to; None for a parameter that stands alone.

    Raises:
        UnknownNameError: when `init` names no initialiser.
        BlockTypeError: when `type` is not that of a tensor.
        ParameterError: when a value of another shape is assigned, or a NaN, or a number that is out of the
            dtype's range.

    >>> Parameter([2], init=0.5, name="bias").value
    array([0.5, 0.5], dtype=float32)
    """

    __slots__ = ("_value", "init", "name", "owner", "trainable", "type")

    def __init__(
        self,
        type: TensorType | int | str | list[int | str],
        init: Initializer = "glorot_uniform",
        name: str = "parameter",
        *,
        trainable: bool = True,
        owner: Owner | None = None,
    ) -> None:
        if isinstance(init, str) and init not in INITIALIZERS:
            expected = f"an initialiser of {', '.join(INITIALIZERS)}"
            raise UnknownNameError(name, expected, repr(init), "or give a number, an array or a function")
        spec = as_type(type, f"Parameter {name}")
        if not isinstance(spec, TensorType):
            raise BlockTypeError(f"Parameter {name}", "the type of a tensor", str(spec), "for example [3, 4]")
        self.type = spec
        self.init = init
        self.name = name
        self.owner = owner
        self.trainable = trainable
        self._value: Array | None = None
        if not isinstance(init, str) and not callable(init):
            if np.ndim(init) > 0:
                self.assign(init)
            else:
                self._check_range(np.asarray(init))

    @property
    def is_initialized(self) -> bool:
        """Whether the array exists yet."""
        return self._value is not None

    def initialize(self, seed: int, name: str) -> None:
        """Draw the array if there is none yet, from `seed` and the full `name` alone."""
        if self._value is None:
            rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
            if isinstance(self.init, str):
                self.assign(INITIALIZERS[self.init](rng, self.type.shape))
            elif callable(self.init):
                self.assign(self.init(rng, self.type.shape))
            else:
                self.assign(np.full(self.type.shape, self.init))

    @property
    def value(self) -> Array:
        """The array itself, of the parameter's shape and dtype; update it in place."""
        if self._value is None:
            self.initialize(0, self.name)
        assert self._value is not None
        return self._value

    def assign(self, value: ArrayLike) -> None:
        """Copy `value` into the parameter, keeping the array that programs already hold."""
        array = np.asarray(value)
        if array.shape != self.type.shape or array.dtype.kind not in "fiub":
            found = f"{array.dtype}[{','.join(map(str, array.shape))}]"
            raise ParameterError(self.name, str(self.type), found, "give an array of the parameter's shape")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            raise ParameterError(
                self.name, "finite numbers", f"{array[where]} at {where}", "clean the array first"
            )
        self._check_range(array)
        if self._value is None:
            self._value = np.array(array, dtype=self.type.dtype, order="C")
        else:
            self._value[...] = array

    def _check_range(self, array: Array) -> None:
        """Refuse finite numbers that the parameter's dtype can only hold as infinities."""
        if array.dtype.kind != "f" or not self.type.is_float:
            return
        with np.errstate(over="ignore"):
            lost = np.isfinite(array) & ~np.isfinite(array.astype(self.type.dtype))
        if lost.any():
            where = tuple(int(i) for i in np.argwhere(lost)[0])
            found = f"{array[where]} at {where}" if where else str(array)
            fix = "declare float64, or scale the numbers"
            raise ParameterError(self.name, f"numbers within the range of {self.type.dtype}", found, fix)

    def __repr__(self) -> str:
        return f"Parameter({str(self.type)!r}, name={self.name!r})"


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
        table = np.zeros(self.shape, self.values.dtype)
        table[self.rows] = self.values
        return table


Gradient = Array | SparseRows


Compiled = Callable[[np.dtype[Any]], "Callable[..., None] | None"]


@dataclass(frozen=True, slots=True)
class Updates:
    """Compiled loops that an engine hands to optimizers: each by dtype, None where it has none for that.

    Attributes:
        adam: Adam's step on rows of flat tables: ``(p [n], g [r * width], mean [n], square [n], rows [r]
            int64, width, factor, beta1, 1 - beta1, beta2, 1 - beta2, eps, rate)``; `rows` are distinct,
            within the table.
        faults: finds whether a gradient has a NaN, an infinity, or rows not ascending or not in the table:
            ``(values [n], rows [r] int64, height, answer [1] int64)``; the answer is 0 or 1.
    """

    adam: Compiled
    faults: Compiled


class ParameterStore(MutableMapping[str, Array]):
    """A program's parameters by name; assigning checks the shape and copies.

    Attributes:
        parameters: themselves, by name.
        updates: compiled loops for optimizers, if the program's engine has any.

    >>> store = ParameterStore({"bias": Parameter(TensorType((2,)), 0.0)})
    >>> store["bias"] = [1, 2]
    >>> store["bias"]
    array([1., 2.], dtype=float32)
    """

    def __init__(self, parameters: Mapping[str, Parameter], updates: Updates | None = None) -> None:
        self.parameters = dict(parameters)
        self.updates = updates

    def _find(self, name: str) -> Parameter:
        try:
            return self.parameters[name]
        except KeyError:
            expected = f"a parameter of {', '.join(self.parameters) or 'none'}"
            raise UnknownNameError("params", expected, repr(name), "print(program.params)") from None

    def __getitem__(self, name: str) -> Array:
        return self._find(name).value

    def __setitem__(self, name: str, value: ArrayLike) -> None:
        self._find(name).assign(value)

    def __delitem__(self, name: str) -> None:
        raise ParameterError(name, "a parameter to stay", "del", "parameters belong to their layers")

    def __iter__(self) -> Iterator[str]:
        return iter(self.parameters)

    def __len__(self) -> int:
        return len(self.parameters)

    def __repr__(self) -> str:
        lines = (
            f"  {name}: {p.type}{'' if p.trainable else ' frozen'}" for name, p in self.parameters.items()
        )
        return "params\n" + "\n".join(lines) if self.parameters else "params (none)"


def name_parameters(parameters: Iterable[Parameter]) -> dict[str, Parameter]:
    """Return the parameters by full name: ``owner.name``, or ``name`` where there is no owner.

    An owner whose name is taken becomes ``owner_1``, ``owner_2``, in order of appearance.
    """
    names: dict[Owner | Parameter, str] = {}
    taken: set[str] = set()
    named: dict[str, Parameter] = {}
    for parameter in parameters:
        key = parameter.owner or parameter
        if key not in names:
            stem, count = key.name, 0
            while (name := f"{stem}_{count}" if count else stem) in taken:
                count += 1
            taken.add(name)
            names[key] = name
        full = f"{names[key]}.{parameter.name}" if parameter.owner else names[key]
        named[full] = parameter
    return named
