"""What all optimizers share: checks, blocks of rows, step counts, state.

An optimizer's formula sees a block of a parameter, its gradient and its moments, as arrays of
one shape, and changes them in place. This module cuts parameters into blocks that stay in a
core's cache, so that the only temporary arrays are two blocks kept between steps. It spreads a
sparse gradient over its block, and checks all gradients before it changes anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from foldbatch.errors import ParameterError, TrainingError, UnknownNameError
from foldbatch.params import SparseRows, Updates
from foldbatch.store import ParameterStore
from foldbatch.train.gradients import Array, Gradients, fitting_gradient
from foldbatch.types import describe_value

State = dict[str, Any]

BLOCK = 32_768  # elements; five float32 blocks (parameter, gradient, two moments, work) fit in 1 MiB of cache


def within(where: str, value: object, low: float, high: float = math.inf, *, open_low: bool = False) -> float:
    """Return a setting that lies in its range, `high` excluded."""
    if (
        isinstance(value, int | float | np.floating | np.integer)
        and low <= value < high
        and not (open_low and value == low)
    ):
        return float(value)
    above = f"a number above {low:g}" if open_low else f"a number of {low:g} or more"
    below = "" if high == math.inf else f" and below {high:g}"
    raise TrainingError(where, above + below, describe_value(value), "see the optimizer's docstring")


def _finite(where: str, value: object) -> float:
    if isinstance(value, int | float | np.floating | np.integer) and math.isfinite(value):
        return float(value)
    raise TrainingError(where, "a finite number", describe_value(value), "for example 1 / len(batch)")


def _blocks(table: Array) -> Iterator[tuple[int, int]]:
    """Yield first and last (excluded) rows of the blocks of a table ``[n, *]``, of about `BLOCK` elements."""
    rows = len(table)
    step = max(1, BLOCK * rows // max(1, table.size))
    return ((start, min(start + step, rows)) for start in range(0, rows, step))


def _is_frozen(params: Mapping[str, Array], name: str) -> bool:
    parameters = params.parameters if isinstance(params, ParameterStore) else params
    if name not in parameters:
        expected = f"a parameter of {', '.join(params) or 'none'}"
        raise UnknownNameError("gradients", expected, repr(name), "take the gradients of this program")
    return isinstance(params, ParameterStore) and not params.parameters[name].trainable


class Optimizer:
    """What all optimizers share: checks, blocks of rows, step counts, state.

    Args:
        lr: the learning rate, above 0; assign ``optimizer.lr`` to change it while training.
        weight_decay: 0 or more; that times the parameter is added to its gradient.
        lr_factors: by parameter name or dotted prefix (``embedding`` or ``embedding.weight``), what
            the learning rate is multiplied by; the longest match counts.

    Raises:
        TrainingError: when a setting is out of range.
    """

    moments: tuple[str, ...] = ()  # the names of the arrays kept per parameter
    initial = 0.0  # what they start from

    def __init__(self, lr: float, *, weight_decay: float, lr_factors: Mapping[str, float] | None) -> None:
        kind = type(self).__name__
        self.lr = lr
        self.weight_decay = within(f"{kind} weight_decay", weight_decay, 0)
        factors = lr_factors or {}
        self.lr_factors = {k: within(f"{kind} lr_factors[{k!r}]", factors[k], 0) for k in factors}
        self._updates: Updates | None = None  # compiled loops of the store being updated
        self._steps: dict[str, int] = {}
        self._moments: dict[str, list[Array]] = {}
        self._buffers: dict[tuple[int, np.dtype[Any]], Array] = {}

    @property
    def lr(self) -> float:
        """The learning rate; assigning checks it as the constructor does.

        Raises:
            TrainingError: when it is not a number above 0.
        """
        return self._lr

    @lr.setter
    def lr(self, lr: float) -> None:
        self._lr = within(f"{type(self).__name__} lr", lr, 0, open_low=True)

    def update(self, params: Mapping[str, Array], grads: Gradients, *, scale: float = 1.0) -> None:
        """Take one step: change, in place, each parameter that has a gradient.

        A parameter without a gradient, or frozen, stays as it is, and its step count too.

        Args:
            params: by name.
            grads: by the same names.
            scale: what each gradient is multiplied by first, for example 1 / batch size for a mean loss. The
                step is to the last bit that of gradients from `foldbatch.train.scale`. Only gradients of
                another dtype than their parameters', or a scale above 1, cost copies.

        Raises:
            TrainingError: when `scale` is not a finite number, or `grads` is not a mapping.
            UnknownNameError: when a gradient or a learning-rate factor belongs to no parameter.
            ParameterError: when a gradient's shape or dtype does not fit, or it holds a NaN or an
                infinity; no parameter or moment has been changed then.
        """
        scale = _finite(f"{type(self).__name__}.update scale", scale)
        if not isinstance(grads, Mapping):
            fix = "take the second item of value_and_grad(examples), or step(examples).gradients"
            raise TrainingError("gradients", "arrays by parameter name", describe_value(grads), fix)
        self._check_factors(params)
        self._updates = getattr(params, "updates", None)
        ready = []
        for name, gradient in grads.items():
            if not _is_frozen(params, name):
                parameter = params[name]
                ready.append(
                    (name, parameter, *fitting_gradient(name, parameter, gradient, scale, self._updates))
                )
                self._check_moments(name, parameter)
        for name, parameter, gradient, factor in ready:
            if name not in self._moments:
                self._moments[name] = [np.full_like(parameter, self.initial) for _ in self.moments]
            self._steps[name] = step = self._steps.get(name, 0) + 1
            tables = [parameter, *self._moments[name]]
            if not parameter.ndim:
                tables = [table.reshape(1) for table in tables]
            rate = self.lr * self._factor(name) if self.lr_factors else self.lr
            sparse = isinstance(gradient, SparseRows)
            by_rows = sparse and self._touches_rows_only()
            as_it_is = sparse == by_rows and not self.weight_decay
            if not (as_it_is and self._in_one_pass(tables, gradient, factor, rate, step)):
                update = self._update_rows if by_rows else self._update_all
                update(tables, gradient, factor, rate, step)

    def state(self) -> State:
        """Return the learning rate, step counts and moments as a flat dict of numbers and new arrays.

        The keys are ``lr``, ``steps/NAME`` and ``MOMENT/NAME``.
        """
        state: State = {"lr": self.lr}
        for name, step in self._steps.items():
            state[f"steps/{name}"] = step
            for moment, array in zip(self.moments, self._moments[name], strict=True):
                state[f"{moment}/{name}"] = array.copy()
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over, as copies, what `state` returned; training goes on as if it had not stopped.

        Raises:
            TrainingError: when the state is not one of this kind of optimizer; nothing has changed then.
        """
        kind = type(self).__name__
        names = [key.partition("/")[2] for key in state if key.startswith("steps/")]
        wanted = {"lr", *(f"{part}/{name}" for name in names for part in ("steps", *self.moments))}
        if wanted != set(state):
            expected = f"the keys lr, {', '.join(f'{part}/NAME' for part in ('steps', *self.moments))}"
            odd = min(wanted ^ set(state))
            found = f"{odd!r} {'missing' if odd in wanted else 'besides'}"
            raise TrainingError(f"{kind}.load_state", expected, found, f"give what {kind}.state() returned")
        lr = within(f"{kind}.load_state lr", float(state["lr"]), 0, open_low=True)
        moments = {name: [np.array(state[f"{moment}/{name}"]) for moment in self.moments] for name in names}
        self.lr, self._moments = lr, moments
        self._steps = {name: int(state[f"steps/{name}"]) for name in names}

    def _touches_rows_only(self) -> bool:
        """Return whether rows without a gradient stay as they are."""
        raise NotImplementedError

    def _apply(self, p: Array, g: Array, moments: Sequence[Array], rate: float, step: int) -> None:
        """Update a block of a parameter and its moments in place; `g` must not be changed.

        Shapes: all arrays ``[rows, *]``, alike.
        """
        raise NotImplementedError

    def _in_one_pass(
        self, tables: Sequence[Array], gradient: Any, factor: float, rate: float, step: int
    ) -> bool:
        """Update a parameter and its moments without blocks; return whether that can be done.

        If not, nothing has changed. Of `SparseRows` only those rows are updated. Shapes: tables ``[n, *]``,
        alike.
        """
        return False

    def _update_all(
        self, tables: Sequence[Array], gradient: Any, factor: float, rate: float, step: int
    ) -> None:
        for start, stop in _blocks(tables[0]):
            p, *moments = (table[start:stop] for table in tables)
            self._apply(p, self._block_gradient(p, gradient, factor, start, stop), moments, rate, step)

    def _block_gradient(self, p: Array, gradient: Any, factor: float, start: int, stop: int) -> Array:
        """Return rows `start` to `stop` of the gradient, scaled, with weight decay; ``[stop - start, *]``."""
        g = self._scratch(0, p)
        if isinstance(gradient, SparseRows):
            first, last = np.searchsorted(gradient.rows, (start, stop))
            g.fill(0)
            g[gradient.rows[first:last] - start] = gradient.values[first:last] * factor
        elif factor == 1 and not self.weight_decay:
            block: Array = gradient[start:stop]
            return block
        else:
            np.multiply(gradient[start:stop], factor, out=g)
        if self.weight_decay:
            g += np.multiply(p, self.weight_decay, out=self._scratch(1, p))
        return g

    def _update_rows(
        self, tables: Sequence[Array], gradient: SparseRows, factor: float, rate: float, step: int
    ) -> None:
        for start, stop in _blocks(gradient.values):
            rows = gradient.rows[start:stop]
            g = gradient.values[start:stop] * factor
            p, *moments = (table[rows] for table in tables)
            if self.weight_decay:
                g += self.weight_decay * p
            self._apply(p, g, moments, rate, step)
            for table, block in zip(tables, (p, *moments), strict=True):
                table[rows] = block

    def _scratch(self, slot: int, like: Array) -> Array:
        """Return an array of the shape and dtype of `like`, with any content; one per slot."""
        buffer = self._buffers.get((slot, like.dtype))
        if buffer is None or buffer.size < like.size:
            buffer = self._buffers[slot, like.dtype] = np.empty(max(BLOCK, like.size), like.dtype)
        return buffer[: like.size].reshape(like.shape)

    def _factor(self, name: str) -> float:
        prefix = name
        while prefix:
            if prefix in self.lr_factors:
                return self.lr_factors[prefix]
            prefix = prefix.rpartition(".")[0]
        return 1.0

    def _check_factors(self, params: Mapping[str, Array]) -> None:
        for key in self.lr_factors:
            if not any(name == key or name.startswith(f"{key}.") for name in params):
                expected = f"a parameter of {', '.join(params)}, or a prefix that ends before a dot"
                where = f"{type(self).__name__} lr_factors"
                raise UnknownNameError(where, expected, repr(key), "print(program.params)")

    def _check_moments(self, name: str, parameter: Array) -> None:
        for array in self._moments.get(name, ()):
            if array.shape != parameter.shape or array.dtype != parameter.dtype:
                fix = "load a state of the same model, or make a new optimizer"
                raise ParameterError(f"{name} moment", describe_value(parameter), describe_value(array), fix)
