"""Gradients on their way to an optimizer: whether they fit their parameters, and clipping."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import ParameterError, TrainingError
from foldbatch.params.parameters import Parameter, Remote, SparseRows
from foldbatch.types import describe_value

Array = NDArray[Any]
Gradients = Mapping[str, Any]  # each an array or SparseRows


def scale(grads: Gradients, factor: float) -> dict[str, Any]:
    """Return copies of all gradients times a factor, for example 1 / batch size for a mean loss.

    >>> scale({"a": np.array([3.0])}, 0.5)
    {'a': array([1.5])}
    """
    return {name: _scaled(gradient, factor) for name, gradient in grads.items()}


def clip_by_global_norm(grads: Gradients, max_norm: float) -> tuple[dict[str, Any], float]:
    """Scale all gradients by one factor so that their joint Euclidean norm is at most `max_norm`.

    Returns the gradients and the norm they had. Those within the limit are returned as they
    are, and so are those with a NaN or an infinity, for the optimizer to name; scaled ones are copies.
    Gradients on a device are clipped there, into copies in any case; only who looks at the norm waits.

    Raises:
        TrainingError: when `max_norm` is not above 0; infinity only measures.

    >>> clipped, norm = clip_by_global_norm({"a": np.array([3.0]), "b": np.array([4.0])}, 1.0)
    >>> norm, clipped["a"]
    (5.0, array([0.6]))

    Source: Pascanu, Mikolov and Bengio 2013, algorithm 1.
    """
    if not max_norm > 0:
        raise TrainingError("clip_by_global_norm", "max_norm above 0", repr(max_norm), "try 5.0")
    arrays = (g.values if isinstance(g, SparseRows) else g for g in grads.values())
    remote = next((array for array in arrays if isinstance(array, Remote)), None)
    if remote is not None:
        return remote.clipped(grads, max_norm)
    norm = math.sqrt(sum(_square_sum(_numbers(gradient)) for gradient in grads.values()))
    if norm <= max_norm or not math.isfinite(norm):
        return dict(grads), norm
    return {name: _scaled(gradient, max_norm / norm) for name, gradient in grads.items()}, norm


def _numbers(gradient: Any) -> Array:
    return np.asarray(gradient.values if isinstance(gradient, SparseRows) else gradient)


def _square_sum(array: Array) -> float:
    flat = array.reshape(-1)
    with np.errstate(all="ignore"):
        total = float(np.dot(flat, flat))
        if not math.isfinite(total):  # large numbers overflow float32 when squared
            flat = flat.astype(np.float64)
            total = float(np.dot(flat, flat))
    return total


def _scaled(gradient: Any, factor: float) -> Any:
    if isinstance(gradient, SparseRows):
        return replace(gradient, values=gradient.values * factor)
    return gradient * factor


def fitting_gradient(name: str, parameter: object, gradient: Any, factor: float = 1.0) -> tuple[Any, float]:
    """Check that a gradient, times a factor, fits its parameter; return it in the parameter's dtype.

    The result is an array of one axis or more, or `SparseRows`, and the factor still to be applied, which is
    1 where it had to be applied first. Its numbers are not looked at; see `check_numbers`.

    >>> fitting_gradient("w", np.zeros(2, "float32"), np.array([1, 2]))
    (array([1., 2.], dtype=float32), 1.0)
    """
    if not isinstance(parameter, np.ndarray) or parameter.dtype.kind != "f" or not parameter.flags.writeable:
        found = "a read-only array" if isinstance(parameter, np.ndarray) else describe_value(parameter)
        raise ParameterError(name, "a float array that can be updated in place", found, "give a copy")
    shape, dtype = parameter.shape, parameter.dtype
    plain = type(gradient) is np.ndarray and gradient.shape == shape != () and gradient.dtype == dtype
    if plain and abs(factor) <= 1:  # as it comes in most steps
        return gradient, factor
    return _fitting(name, shape, dtype, gradient, factor)


def _fitting(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], gradient: Any, factor: float
) -> tuple[Any, float]:
    values = _numbers(gradient)
    _check_shape(f"{name} gradient", shape, dtype, gradient, values)
    if values.dtype != dtype or abs(factor) > 1:  # digits or finite numbers may be lost
        with np.errstate(all="ignore"):
            values, factor = np.asarray(values * factor, dtype), 1.0
    if isinstance(gradient, SparseRows):
        return SparseRows(gradient.rows, values, shape), factor
    return values if values.ndim else values.reshape(1), factor


def check_numbers(gradients: Sequence[tuple[str, Any]]) -> None:
    """Look for what is not finite in gradients, each with the name of its parameter.

    >>> check_numbers([("w", np.array([1.0, np.inf]))])
    Traceback (most recent call last):
    ...
    foldbatch.errors.ParameterError: w gradient: expected finite numbers, found inf at (1,); nothing was...
    """
    for name, gradient in gradients:
        where = f"{name} gradient"
        if isinstance(gradient, SparseRows):
            _check_rows(where, gradient)
        _check_numbers(where, gradient, _numbers(gradient))


def fitting_there(name: str, parameter: Parameter, gradient: Any, factor: float) -> tuple[Any, float]:
    """Do what `fitting_gradient` does, for a parameter on a device."""
    shape, dtype = parameter.type.shape, np.dtype(parameter.type.dtype)
    values = gradient.values if isinstance(gradient, SparseRows) else gradient
    if isinstance(values, Remote):
        where = f"{name} gradient"
        _check_shape(where, shape, dtype, gradient, values)
        if isinstance(gradient, SparseRows):
            _check_rows(where, gradient)
        if cast("Any", values).dtype == dtype:
            return gradient, factor
    fit = _fitting(name, shape, dtype, gradient, factor)
    check_numbers([(name, fit[0])])
    return fit


def _check_shape(
    where: str, shape: tuple[int, ...], dtype: np.dtype[Any], gradient: Any, values: Any
) -> None:
    found = gradient.shape if isinstance(gradient, SparseRows) else values.shape
    if found != shape or values.dtype.kind not in "fiub":
        fix = "check the name"
        raise ParameterError(where, f"{dtype} of shape {shape}", f"{values.dtype} of shape {found}", fix)


def _check_numbers(where: str, gradient: Any, values: Array) -> None:
    if math.isfinite(_square_sum(values)) or np.isfinite(values).all():  # squares may overflow
        return
    first = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
    place = (int(gradient.rows[first[0]]), *first[1:]) if isinstance(gradient, SparseRows) else first
    fix = "nothing was changed; call program.find_nan(examples), or lower the learning rate"
    raise ParameterError(where, "finite numbers", f"{values[first]} at {place}", fix)


def _check_rows(where: str, gradient: SparseRows) -> None:
    rows, values, shape = gradient.rows, gradient.values, gradient.shape
    fits = rows.dtype.kind in "iu" and rows.ndim == 1 and values.shape == (len(rows), *shape[1:])
    fits = fits and bool((rows[1:] > rows[:-1]).all())
    if not fits or (len(rows) and not 0 <= rows[0] <= rows[-1] < shape[0]):
        expected = f"ascending, distinct rows of the {shape[0]}, with one value each"
        found = f"rows {describe_value(rows.tolist())} and values of shape {values.shape}"
        raise ParameterError(where, expected, found, "sort the rows and sum the values of equal ones")
