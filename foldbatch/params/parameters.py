"""Parameters: one tensor, the formulas of optimizers that change it, and the store of all of them by name."""

from __future__ import annotations

import itertools
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import ArrayLike, DTypeLike, NDArray

from foldbatch import errors
from foldbatch.communicators.communicator import DeviceCommunicator
from foldbatch.errors import BlockTypeError, GraphError, ParameterError, UnknownNameError
from foldbatch.operators import Stored, is_symbolic, unknown
from foldbatch.system.closed import Closed
from foldbatch.system.lines import aligned
from foldbatch.types import TensorType, as_type, describe_value, is_masked, truth

NONE_YET = "it has none; a walk has its own once it has run, or after program.warm(examples)"

Array = NDArray[Any]
Device: TypeAlias = Any  # what an engine computes on, besides the host
RemoteArray: TypeAlias = Any  # an array, or sparse rows, in its memory
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

CONSTANTS = "zeros", "ones"  # the initialisers that draw nothing


def _truth(where: str, value: object) -> bool:
    return truth(where, value, ParameterError, "False freezes a parameter")


_numbers = itertools.count()


def _restore(self: Owner | Parameter, state: tuple[None, dict[str, object]]) -> None:
    """Restore pickled attributes; number the copy so that it sorts after its original."""
    for name, value in state[1].items():
        setattr(self, name, value)
    self.copied = next(_numbers)


class Owner:
    """The layer that a parameter belongs to, as far as names go; compared by identity.

    A name that the user has not given may be changed to make it unique; one that is placed, by a module, is
    the path of attributes of modules to it.
    """

    __slots__ = ("copied", "given", "name", "number", "placed")
    __setstate__ = _restore

    def __init__(self, name: str, *, given: bool = False) -> None:
        self.name = name
        self.given = given
        self.number, self.copied = next(_numbers), 0
        self.placed: Any = None


class DeviceCopy(Protocol):
    """A device's copy of a parameter's numbers, newer than the parameter's own array."""

    # whether the numbers live there for good: others write to that memory, too, so the parameter's own array
    # is never more than a copy for reading
    stays: bool

    @property
    def device(self) -> Device:
        """The device."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """The lock under which the numbers are read, so that they are copied back once."""

    def read_into(self, array: Array) -> None:
        """Copy the numbers into an array of the parameter's shape and dtype."""

    def write(self, array: Array) -> None:
        """Copy an array of the parameter's shape and dtype over the numbers; asked only where they stay."""


class Parameter(Closed, Stored):
    """A named array that training changes (or not, when frozen).

    In the function of a block or of a cell it is a tensor: it is indexed, and takes operators, methods and
    functions of NumPy. In a walk it is given to cells and layers like a value.

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
        drawn: the seed and the name from which its first numbers were drawn; None where they were assigned.
        cells: those of ops that plain functions do with it, by what tells them apart.

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
        "cells",
        "copied",
        "drawn",
        "given",
        "init",
        "name",
        "number",
        "owner",
        "placed",
        "trainable",
        "type",
    )
    __getattr__ = unknown
    settable = {"trainable": _truth}  # noqa: RUF012

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
        self.number, self.copied = next(_numbers), 0
        self.placed: Any = None
        if isinstance(init, str) and init not in INITIALIZERS:
            expected = f"an initialiser of {', '.join(INITIALIZERS)}"
            fix = "or give a number, an array or a function"
            raise UnknownNameError(self.name, expected, repr(init), fix)
        spec = as_type(type, f"Parameter {self.name}")
        if not isinstance(spec, TensorType):
            fix = "write its shape as a list, as in [3, 4]"
            raise BlockTypeError(f"Parameter {self.name}", "the type of a tensor", str(spec), fix)
        self.type = spec
        self.init = init
        self.owner = owner
        self.trainable = trainable
        self._value: Array | None = None
        self.drawn: tuple[int, str] | None = None
        self.away: DeviceCopy | None = None
        self.cells: dict[Any, Any] = {}
        if not isinstance(init, str) and not callable(init) and np.ndim(init) > 0:
            self.assign(init)

    @property
    def order(self) -> tuple[int, int, int]:
        """A key that sorts parameters as they, or the layers that own them, were made; copies come after."""
        holder = self.owner or self
        return holder.number, holder.copied, self.number

    @property
    def path(self) -> str:
        """Its name with that of its layer, as far as it is known outside a program: ``words.weight``."""
        return f"{self.owner.name}.{self.name}" if self.owner else self.name

    def initialize(self, seed: int, name: str) -> None:
        """Draw the array if there is none yet, from `seed` and the full `name` alone."""
        if self._value is None:
            self.assign(self._initial(seed, name), name)
            self.drawn = seed, name

    def _initial(self, seed: int, name: str) -> ArrayLike:
        """Return the first numbers: of the initialiser, drawn from `seed` and the full `name`."""
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        if isinstance(self.init, str):
            return INITIALIZERS[self.init](rng, self.type.shape)
        if callable(self.init):
            try:
                return self.init(rng, self.type.shape)
            except TypeError as error:
                expected = "an init that takes a generator of NumPy and a shape"
                raise ParameterError(name, expected, str(error), "as lambda rng, shape: ...") from error
        return np.broadcast_to(np.asarray(self.init), self.type.shape)

    def follows(self, seed: int) -> bool:
        """Return whether it has no numbers yet, or still those that a seed draws, under any name.

        The numbers are drawn once more and compared, as they may have been changed in place.

        >>> bias = Parameter([2], "normal", "bias")
        >>> bias.initialize(1, "layer.bias")
        >>> bias.follows(1), bias.follows(2)
        (True, False)
        >>> bias.value[0] = 0
        >>> bias.follows(1)
        False
        """
        if self._value is None:
            return True
        at_random = callable(self.init) or (isinstance(self.init, str) and self.init not in CONSTANTS)
        if at_random and (self.drawn is None or self.drawn[0] != seed):
            return False
        name = self.path if self.drawn is None else self.drawn[1]
        return np.array_equal(self.value, self.fitting(self._initial(seed, name), name))

    def twin(self) -> Parameter:
        """Return a new parameter of the same layer, name and initialiser, without learnt numbers."""
        parameter = Parameter(self.type, self.init, self.name, trainable=self.trainable, owner=self.owner)
        parameter.given = self.given
        parameter.placed = self.placed
        parameter.number = self.number
        parameter.copied = self.copied
        return parameter

    def __bool__(self) -> bool:
        return super().__bool__() if is_symbolic() else True

    @property
    def value(self) -> Array:
        """The array itself, of the parameter's shape and dtype; update it in place.

        In the function of a block it would be a constant that never learns, and is refused there.

        It is the same array each time. While a device computes with the parameter the array is read-only and
        holds older numbers; whoever asks for it here gets the device's numbers in it, and may write to it.
        Where the numbers live on a device (`settle`), the array stays read-only, and `assign` changes them.
        """
        if is_symbolic():
            expected, actual = "the parameter itself", "its present numbers, which would never learn"
            raise GraphError(f"{self.path}.value", expected, actual, f"write {self.name} without .value")
        if self._value is None:
            self.initialize(0, self.name)
        assert self._value is not None
        while (away := self.away) is not None:
            self._sync_from_device(away)
            if away.stays:
                break
        return self._value

    def take_away(self, away: DeviceCopy) -> None:
        """Let a device hold the newest numbers from now on, as an update does that runs there.

        The array of the host becomes read-only; the next read of `value` copies the device's numbers back.

        Args:
            away: the device's copy, which is equal to `value` now.
        """
        self.value.flags.writeable = False
        self.away = away

    def settle(self, away: DeviceCopy | None) -> None:
        """Let the numbers live in a device's memory from now on; or with None at home again.

        Args:
            away: where they live, which stays; it is equal to `value` now. None takes over the numbers from
                where they lived.
        """
        if away is not None:
            self.take_away(away)
        elif self.away is not None:
            _ = self.value
            assert self._value is not None
            self._value.flags.writeable = True
            self.away = None

    def _sync_from_device(self, away: DeviceCopy) -> None:
        """Copy the device's numbers into the array, unless another thread has just done so."""
        assert self._value is not None
        with away.lock:
            if self.away is away:  # no other thread has done it
                numbers = np.empty_like(self._value)
                away.read_into(numbers)
                self._replace(numbers)
                if away.stays:
                    self.away, self._value.flags.writeable = away, False

    def _replace(self, numbers: Array) -> None:
        """Write numbers into the array, which then is the newest copy again."""
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
            self._value = aligned(array.shape, array.dtype)
            self._value[...] = array
        elif away is None:
            self._value[...] = array
        elif away.stays:
            with away.lock:
                away.write(array)
        else:
            with away.lock:
                self._replace(array)  # all numbers are replaced, so none are copied back

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
        if is_masked(value):
            raise ParameterError(where, "numbers without a mask", describe_value(value), "fill it first")
        if array.shape != self.type.shape or array.dtype.kind not in "fiub":
            actual = f"{array.dtype}[{','.join(map(str, array.shape))}]"
            raise ParameterError(where, str(self.type), actual, fix)
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

    __setstate__ = _restore

    def __getstate__(self) -> object:
        if self.away is not None:
            _ = self.value  # a copy, or a file, holds the numbers themselves
        state: Any = object.__getstate__(self)
        return state[0], state[1] | {"cells": {}, "away": None}

    def __repr__(self) -> str:
        return f"Parameter({str(self.type)!r}, name={self.name!r})"


def refuse_elsewhere(name: str, parameter: Parameter, device: object = None) -> None:
    """Refuse to change a parameter whose numbers live elsewhere than on a device, or on the host.

    Raises:
        ParameterError: when they live there for good, so that a change of a copy would be lost.
    """
    away = parameter.away
    if away is not None and away.stays and away.device is not device:
        fix = "train that module, or bring it back with module.cpu()"
        actual = f"ones on {away.device.driver.name}, where a module of PyTorch keeps them"
        raise ParameterError(name, "numbers that this program may change", actual, fix)


class Remote:
    """An array in the memory of a device, with the operations on gradients there."""

    __slots__ = ()

    def spread(self, gradient: SparseRows) -> RemoteArray:
        """Return a sparse gradient, whose values this array is, as an array of its table's shape."""
        raise NotImplementedError

    def total(self, parts: Sequence[object]) -> RemoteArray:
        """Return the sum of a parameter's gradients, of which some may be NumPy's arrays."""
        raise NotImplementedError

    def first_not_finite(self, arrays: Sequence[object]) -> Callable[[], int | None]:
        """Find the first array with a NaN or an infinity; the returned function waits for its number."""
        raise NotImplementedError

    def clipped(
        self, gradients: Mapping[str, object], max_norm: float
    ) -> tuple[dict[str, RemoteArray], float]:
        """Clip gradients as `foldbatch.train.clip_by_global_norm` does; the norm is pending."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class SparseRows(NDArrayOperatorsMixin):
    """The gradient of a table of which a batch touched few rows.

    Shapes: ``rows: [r] int64``, ascending and distinct; ``values: [r, ...]``; ``shape`` is the
    table's.

    >>> gradient = SparseRows(np.array([1]), np.ones((1, 2), "float32"), (3, 2))
    >>> gradient.dense().tolist(), np.abs(gradient).max()  # NumPy reads it as the whole table
    ([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]], np.float32(1.0))
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

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:  # noqa: FBT001 - NumPy's
        return np.array(self.dense(), dtype)

    def __array_ufunc__(
        self,
        ufunc: np.ufunc,
        method: str,
        *inputs: Gradient,
        out: tuple[object, ...] | None = None,
        **options: object,
    ) -> Any:
        """Compute with the whole table; an update in place, as by ``*=``, makes an array of it."""
        options |= {} if out is None or isinstance(out[0], SparseRows) else {"out": out}
        return getattr(ufunc, method)(*map(dense, inputs), **options)


Gradient = Array | SparseRows


def dense(gradient: Gradient) -> Array:
    """Return a gradient as an array of its parameter's shape."""
    return gradient.dense() if isinstance(gradient, SparseRows) else gradient


def numbers_of(gradient: Gradient) -> Array:
    """Return the numbers of a gradient: of a sparse one, those of its rows."""
    return gradient.values if isinstance(gradient, SparseRows) else gradient


class Rule(NamedTuple):
    """The formula of an optimizer, for one number of a parameter.

    >>> Rule(("g = g + decay * p", "p = p - rate * g"), (), ("decay", "rate")).locals
    ('g',)
    """

    # assignments to ``p`` (the parameter), to moments, or to other names. On the right stand sums,
    # differences, products, quotients and ``sqrt(x)`` of ``p``, ``g`` (the gradient), moments, numbers and
    # names that lines above assign. No name is ``i`` or ``n``, or ends in an underscore.
    lines: tuple[str, ...]
    moments: tuple[str, ...]  # names of the numbers kept for each number of a parameter from step to step
    numbers: tuple[str, ...]  # names of the numbers that are equal for all of a parameter

    @property
    def locals(self) -> tuple[str, ...]:
        """The names that lines assign besides ``p`` and moments."""
        assigned = dict.fromkeys(line.partition(" = ")[0] for line in self.lines)
        return tuple(name for name in assigned if name != "p" and name not in self.moments)


class Change(NamedTuple):
    """A parameter to be changed by a rule."""

    name: str  # of the parameter
    parameter: Any  # the parameter, or its array
    # an array for each moment, of the parameter's shape and dtype; copies in another place may take their
    # places
    moments: list[RemoteArray]
    gradient: Any  # an array or `SparseRows`, which fits
    factor: float  # multiplies the gradient first
    rule: Rule  # the formula
    numbers: tuple[float, ...]
    by_rows: bool  # whether a sparse gradient leaves the other rows as they are


class Updates:
    """Optimizers' steps on NumPy's arrays, compiled by an engine."""

    helped: bool  # whether another core may help

    def apply(
        self, changes: Sequence[Change], look: Callable[[Sequence[Change]], None] | None
    ) -> list[Change]:
        """Change parameters and moments, arrays that share no memory; return the changes that it cannot do.

        Args:
            changes: see there.
            look: raises an error if a gradient has a NaN, an infinity, or rows not ascending or not in its
                table. It is asked of what cannot be done here, and of all changes where there is a fault;
                nothing has changed then. None where the gradients are good.
        """
        raise NotImplementedError

    def good(self, gradients: Iterable[Gradient]) -> bool:
        """Return whether no gradient has a fault; also False where compiled code cannot tell."""
        raise NotImplementedError


class RemoteUpdates:
    """Optimizers' steps on parameters in the memory of a device, and sums of gradients over ranks."""

    device: Device  # the device

    def full(self, parameter: Parameter, number: float) -> RemoteArray:
        """Return an array on the device, shaped like a parameter, filled with one number."""
        raise NotImplementedError

    def apply(self, changes: Sequence[Change], undo: Callable[[], None]) -> None:
        """Change parameters and moments, all or none, and do not wait.

        None are changed if a gradient of the device, times its factor, has a NaN or an infinity, or is of a
        batch with an id out of range. Then later updates change nothing either until the error is raised,
        which is when somebody reads what the device computed; see `look`.

        Args:
            changes: their gradients are on the device, or were found good.
            undo: takes back what the caller counts for this update; called before the error is raised.
        """
        raise NotImplementedError

    def look(self) -> None:
        """Wait, and raise the error of the first bad update since the last look, if any."""
        raise NotImplementedError

    def is_reached(self, communicator: DeviceCommunicator) -> bool:
        """Return whether a communicator exchanges arrays of the device, as `summed` needs it."""
        raise NotImplementedError

    def summed(
        self, gradients: Sequence[object], communicator: DeviceCommunicator
    ) -> tuple[Sequence[RemoteArray], int]:
        """Return the sums of gradients over all ranks, and how many bytes this rank sends; do not wait.

        Args:
            gradients: arrays of one dtype, of the device or the host; on all ranks of the same shapes.
            communicator: of the ranks.
        """
        raise NotImplementedError


class ParameterStore(Closed, MutableMapping[str, Array]):
    """A program's parameters by name; assigning checks the array and copies it.

    >>> store = ParameterStore({"bias": Parameter([2], 0.0)})
    >>> store["bias"] = [1, 2]
    >>> store["bias"]
    array([1., 2.], dtype=float32)
    """

    def __init__(
        self, parameters: Mapping[str, Parameter], updates: Updates | RemoteUpdates | None = None
    ) -> None:
        self.parameters = dict(parameters)  # the parameters, by name
        # the names that depend on the order of building; see `numbered_names`
        self.numbered = numbered_names(self.parameters)
        # steps of optimizers, compiled or on a device, if the program's engine has any
        self.updates = updates

    def admit(self, parameters: Iterable[Parameter]) -> None:
        """Add parameters of a model that has grown; those in the store keep their names."""
        self.parameters |= name_parameters(parameters, self.parameters)
        self.numbered = numbered_names(self.parameters)

    def __getitem__(self, name: str) -> Array:
        return self._find(name).value

    def __setitem__(self, name: str, value: ArrayLike) -> None:
        self._find(name).assign(value, name)

    def __delitem__(self, name: str) -> None:
        raise errors.ParameterError(name, "a parameter to stay", "del", "parameters belong to their layers")

    def __iter__(self) -> Iterator[str]:
        return iter(self.parameters)

    def __len__(self) -> int:
        return len(self.parameters)

    def __repr__(self) -> str:
        lines = (
            f"  {name}: {p.type}{'' if p.trainable else ' frozen'}" for name, p in self.parameters.items()
        )
        return "params\n" + "\n".join(lines) if self.parameters else "params (none)"

    def update(  # type: ignore[override] # takes what can be made an array
        self, saved: object = (), /, *, strict: bool = False, **values: ArrayLike
    ) -> None:
        """Copy arrays into the parameters of their names: all of them, or none when one is refused.

        Args:
            saved: a mapping from names to arrays, such as a ``dict`` or what ``np.load`` returns of an
                ``npz`` file; or pairs of both.
            strict: whether every parameter must be in it.
            values: more arrays by name.

        Raises:
            UnknownNameError: when a name is unknown, or, with `strict`, one is missing.
            ParameterError: when an array has another shape than its parameter, or holds no numbers or none
                that are finite, or numbers that the parameter's dtype cannot hold.

        Warns `NumberedNamesWarning`, once a call, when layers of these names are numbered.

        >>> store = ParameterStore({name: Parameter([2], 0.0, name) for name in ("bias", "scale")})
        >>> store.update({"bias": [1, 2]})
        >>> store.update({"bias": [3, 4]}, strict=True)
        Traceback (most recent call last):
        ...
        foldbatch.errors.UnknownNameError: params: expected all names of parameters, found 1 missing...
        >>> store["bias"]
        array([1., 2.], dtype=float32)
        """
        self.load(saved, values, strict=strict)

    def load(self, saved: Any, values: Mapping[str, ArrayLike], *, strict: bool) -> None:
        """Load numbers by name; arguments and errors are those of `update`."""
        try:
            numbers_by_name = dict(saved, **values)
        except (TypeError, ValueError):
            fix = "for example dict(np.load(path))"
            raise errors.ParameterError("params", "arrays by name", describe_value(saved), fix) from None
        self._refuse_names(numbers_by_name, strict=strict)
        arrays = {name: self.parameters[name].fitting(value, name) for name, value in numbers_by_name.items()}
        for name, array in arrays.items():
            self.parameters[name].assign(array, name)
        numbered = [name for name in numbers_by_name if name in self.numbered]
        if numbered:
            fix = "an edited model may number other layers so; give names, as in Linear(2, name='out')"
            actual = f"numbered ones: {errors.shortened(numbered)}"
            warning = errors.NumberedNamesWarning("params", "a name of its own for each layer", actual, fix)
            warnings.warn(warning, stacklevel=errors.frames_inside())

    def _refuse_names(self, names: Mapping[object, object], *, strict: bool) -> None:
        """Refuse names that are no parameters' and, if `strict`, parameters whose names are missing."""
        unknown = [name for name in names if name not in self.parameters]
        missing = [name for name in self.parameters if name not in names]
        if not unknown and not (strict and missing):
            return
        faults = []
        if strict and missing:
            faults.append(f"{len(missing)} missing: {errors.shortened(missing)}")
        if unknown:
            listed = errors.shortened(errors.with_nearest(name, missing) for name in unknown)
            faults.append(f"{len(unknown)} unknown: {listed}")
        expected = f"{'all names' if strict else 'names'} of parameters"
        fix = "nothing was changed; print(program.params) lists the names" if self.parameters else NONE_YET
        raise errors.UnknownNameError("params", expected, " and ".join(faults), fix)

    def _find(self, name: str) -> Parameter:
        """Return the parameter of a name; the error of an unknown name shows the nearest ones."""
        try:
            return self.parameters[name]
        except KeyError:
            expected = f"a parameter of {errors.shortened(self.parameters)}"
            actual = errors.with_nearest(name, self.parameters)
            fix = "print(program.params)" if self.parameters else NONE_YET
            raise errors.UnknownNameError("params", expected, actual, fix) from None


Holder = Owner | Parameter  # a layer, or a stand-alone parameter


def name_parameters(
    parameters: Iterable[Parameter], named: Mapping[str, Parameter] = MappingProxyType({})
) -> dict[str, Parameter]:
    """Return the parameters by full name: ``owner.name``, or ``name`` where there is no owner.

    A name that is taken becomes ``name_1``, ``name_2``, in order of appearance; names that the user gave come
    before others.
    """
    ordered = list(parameters)
    parts = _by_holder(ordered)
    names: dict[Holder, str] = {
        part.owner or part: name.removesuffix(f".{part.name}") if part.owner else name
        for name, part in named.items()
    }
    taken = {*named, *names.values()}
    for holder in sorted(parts, key=lambda holder: not holder.given):
        if holder in names:  # a layer that has been named, and now more of it is read
            continue
        numbered = (f"{holder.name}_{i}" if i else holder.name for i in itertools.count())
        names[holder] = next(name for name in numbered if not taken & _claims(name, parts[holder]))
        taken |= _claims(names[holder], parts[holder])
    return {_full(names[part.owner or part], part): part for part in ordered}


def numbered_names(parameters: Mapping[str, Parameter]) -> frozenset[str]:
    """Return the full names of parameters that an edited model may give to others.

    They are those of layers that only a number tells apart: several of one kind without a name of their
    own, or several that were given one name.

    >>> one, two = Owner("linear"), Owner("linear")
    >>> weights = [Parameter([1], name="weight", owner=owner) for owner in (one, two, Owner("lstm"))]
    >>> sorted(numbered_names(name_parameters(weights)))
    ['linear.weight', 'linear_1.weight']
    """
    claims = {
        holder: [(holder.given, name) for name in _claims(holder.name, parts)]
        for holder, parts in _by_holder(parameters.values()).items()
    }
    counts = Counter(itertools.chain.from_iterable(claims.values()))
    unclear = {holder for holder, claimed in claims.items() if any(counts[claim] > 1 for claim in claimed)}
    return frozenset(name for name, part in parameters.items() if (part.owner or part) in unclear)


def _by_holder(parameters: Iterable[Parameter]) -> dict[Holder, list[Parameter]]:
    parts: dict[Holder, list[Parameter]] = {}
    for parameter in parameters:
        parts.setdefault(parameter.owner or parameter, []).append(parameter)
    return parts


def _claims(name: str, parts: Iterable[Parameter]) -> set[str]:
    """Return the names that a layer or parameter of a name takes: its own, and those of its parameters."""
    return {name, *(_full(name, part) for part in parts)}


def _full(name: str, part: Parameter) -> str:
    return f"{name}.{part.name}" if part.owner else name
