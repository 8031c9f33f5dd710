"""Optimizers: what one step does to the parameters, given their gradients.

In: parameters and gradients by name, a gradient being an array or `SparseRows`. Out: nothing;
the parameters are changed in place, after every gradient has been found fit, so that a bad
batch changes nothing at all.

The formulas are torch.optim's, to rounding. A sparse gradient gives what its dense form would
give: where rows without a gradient stay as they are (plain SGD, AdaGrad) only the touched rows
are visited, else (momentum, Adam, weight decay) all are; `LazyAdam` is the one exception and
bears it in its name. Tables are walked in blocks that stay in a core's cache, so the only
temporary arrays are two blocks that are kept between steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from foldbatch.errors import ParameterError, TrainingError, UnknownNameError
from foldbatch.params import ParameterStore, SparseRows
from foldbatch.train.gradients import Array, Gradients, fitting_gradient
from foldbatch.types import describe_value

State = dict[str, Any]

BLOCK = 32_768  # elements; five float32 blocks (parameter, gradient, two moments, work) fit in 1 MiB of cache


def _within(where: str, value: float, low: float, high: float = math.inf, *, open_low: bool = False) -> float:
    """Return a setting that lies in its range, `high` excluded."""
    if isinstance(value, int | float | np.number) and low <= value < high and not (open_low and value == low):
        return float(value)
    above = f"a number above {low:g}" if open_low else f"a number of {low:g} or more"
    below = "" if high == math.inf else f" and below {high:g}"
    raise TrainingError(where, above + below, describe_value(value), "see the optimizer's docstring")


def _blocks(table: Array) -> Iterator[tuple[int, int]]:
    """Yield first and last (excluded) rows of the blocks of a table, each of about `BLOCK` elements."""
    rows = len(table)
    step = max(1, BLOCK * rows // max(1, table.size))
    return ((start, min(start + step, rows)) for start in range(0, rows, step))


def _is_frozen(params: Mapping[str, Array], name: str) -> bool:
    if name not in params:
        expected = f"a parameter of {', '.join(params) or 'none'}"
        raise UnknownNameError("gradients", expected, repr(name), "give gradients of this program's parameters")
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
        self.lr = _within(f"{kind} lr", lr, 0, open_low=True)
        self.weight_decay = _within(f"{kind} weight_decay", weight_decay, 0)
        factors = lr_factors or {}
        self.lr_factors = {k: _within(f"{kind} lr_factors[{k!r}]", factors[k], 0) for k in factors}
        self._steps: dict[str, int] = {}
        self._moments: dict[str, list[Array]] = {}
        self._buffers: dict[tuple[int, np.dtype[Any]], Array] = {}

    def update(self, params: Mapping[str, Array], grads: Gradients) -> None:
        """Take one step: change, in place, each parameter that has a gradient.

        A parameter without a gradient, or frozen, stays as it is, and its step count too.

        Raises:
            UnknownNameError: when a gradient or a learning-rate factor belongs to no parameter.
            ParameterError: when a gradient's shape or dtype does not fit, or it holds a NaN or an
                infinity; no parameter or moment has been changed then.
        """
        self._check_factors(params)
        ready = [
            (name, params[name], fitting_gradient(name, params[name], gradient))
            for name, gradient in grads.items()
            if not _is_frozen(params, name)
        ]
        for name, parameter, _ in ready:
            self._check_moments(name, parameter)
        for name, parameter, gradient in ready:
            if name not in self._moments:
                self._moments[name] = [np.full_like(parameter, self.initial) for _ in self.moments]
            self._steps[name] = step = self._steps.get(name, 0) + 1
            tables = [np.atleast_1d(table) for table in (parameter, *self._moments[name])]
            rate = self.lr * self._factor(name)
            if isinstance(gradient, SparseRows) and self._touches_rows_only():
                self._update_rows(tables, gradient, rate, step)
            else:
                self._update_all(tables, gradient, rate, step)

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
            odd = sorted(wanted ^ set(state))[0]
            found = f"{odd!r} {'missing' if odd in wanted else 'besides'}"
            raise TrainingError(f"{kind}.load_state", expected, found, f"give what {kind}.state() returned")
        lr = _within(f"{kind}.load_state lr", float(state["lr"]), 0, open_low=True)
        moments = {name: [np.array(state[f"{moment}/{name}"]) for moment in self.moments] for name in names}
        self.lr, self._moments = lr, moments
        self._steps = {name: int(state[f"steps/{name}"]) for name in names}

    def _touches_rows_only(self) -> bool:
        """Return whether rows without a gradient stay as they are."""
        raise NotImplementedError

    def _apply(self, p: Array, g: Array, moments: Sequence[Array], rate: float, step: int) -> None:
        """Update a block of a parameter and its moments in place; `g` must not be changed."""
        raise NotImplementedError

    def _update_all(self, tables: list[Array], gradient: Any, rate: float, step: int) -> None:
        for start, stop in _blocks(tables[0]):
            p, *moments = (table[start:stop] for table in tables)
            self._apply(p, self._block_gradient(p, gradient, start, stop), moments, rate, step)

    def _block_gradient(self, p: Array, gradient: Any, start: int, stop: int) -> Array:
        """Return rows `start` to `stop` of the gradient with weight decay, in the scratch block if need be."""
        if not self.weight_decay and not isinstance(gradient, SparseRows):
            block: Array = gradient[start:stop]
            return block
        g = self._scratch(0, p)
        if self.weight_decay:
            np.multiply(p, self.weight_decay, out=g)
        else:
            g.fill(0)
        if isinstance(gradient, SparseRows):
            first, last = np.searchsorted(gradient.rows, (start, stop))
            g[gradient.rows[first:last] - start] += gradient.values[first:last]
        else:
            g += gradient[start:stop]
        return g

    def _update_rows(self, tables: list[Array], gradient: SparseRows, rate: float, step: int) -> None:
        for start, stop in _blocks(gradient.values):
            rows, g = gradient.rows[start:stop], gradient.values[start:stop]
            p, *moments = (table[rows] for table in tables)
            if self.weight_decay:
                g = g + self.weight_decay * p
            self._apply(p, g, moments, rate, step)
            for table, block in zip(tables, (p, *moments), strict=True):
                table[rows] = block

    def _scratch(self, slot: int, like: Array) -> Array:
        """Return an array of that shape and dtype whose content does not matter; one per slot."""
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


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum if wanted.

    ``v = momentum v + g``, then ``p -= lr v``; with `nesterov`, ``p -= lr (g + momentum v)``.

    Args:
        lr: learning rate, above 0.
        momentum: from 0 to below 1.
        nesterov: whether to look ahead; needs momentum.
        weight_decay: 0 or more.
        lr_factors: see `Optimizer`.

    Raises:
        TrainingError: when a setting is out of range.

    >>> params = {"w": np.array([1.0, 2.0])}
    >>> SGD(0.5).update(params, {"w": np.array([1.0, 0.0])})
    >>> params["w"]
    array([0.5, 2. ])

    Source: Sutskever et al. 2013, in the form of torch.optim.SGD.
    """

    def __init__(
        self,
        lr: float = 0.01,
        *,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        lr_factors: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(lr, weight_decay=weight_decay, lr_factors=lr_factors)
        self.momentum = _within("SGD momentum", momentum, 0, 1)
        self.nesterov = nesterov
        if nesterov and not momentum:
            raise TrainingError("SGD nesterov", "a momentum above 0", "momentum 0", "give momentum=0.9")
        self.moments = ("velocity",) if self.momentum else ()

    def _touches_rows_only(self) -> bool:
        return not self.momentum and not self.weight_decay

    def _apply(self, p: Array, g: Array, moments: Sequence[Array], rate: float, step: int) -> None:
        work = self._scratch(1, p)
        for velocity in moments:  # one, or none
            velocity *= self.momentum
            velocity += g
            if self.nesterov:
                np.multiply(velocity, self.momentum, out=work)
                work += g
                g = work
            else:
                g = velocity
        np.multiply(g, rate, out=work)
        p -= work


class AdaGrad(Optimizer):
    """Steps that shrink where gradients have been large: ``a += g g``, then ``p -= lr g / (sqrt(a) + eps)``.

    Args:
        lr: learning rate, above 0.
        eps: above 0.
        initial_accumulator: what ``a`` starts from, 0 or more.
        weight_decay: 0 or more.
        lr_factors: see `Optimizer`.

    Raises:
        TrainingError: when a setting is out of range.

    >>> params = {"w": np.array([1.0, 2.0])}
    >>> AdaGrad(0.5).update(params, {"w": np.array([10.0, 0.0])})
    >>> params["w"]
    array([0.5, 2. ])

    Source: Duchi, Hazan and Singer 2011, figure 1, diagonal.
    """

    moments = ("accumulator",)

    def __init__(
        self,
        lr: float = 0.01,
        *,
        eps: float = 1e-10,
        initial_accumulator: float = 0.0,
        weight_decay: float = 0.0,
        lr_factors: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(lr, weight_decay=weight_decay, lr_factors=lr_factors)
        self.eps = _within("AdaGrad eps", eps, 0, open_low=True)
        self.initial = _within("AdaGrad initial_accumulator", initial_accumulator, 0)

    def _touches_rows_only(self) -> bool:
        return not self.weight_decay

    def _apply(self, p: Array, g: Array, moments: Sequence[Array], rate: float, step: int) -> None:
        (accumulator,) = moments
        work = self._scratch(1, p)
        accumulator += np.multiply(g, g, out=work)
        np.sqrt(accumulator, out=work)
        work += self.eps
        np.divide(g, work, out=work)
        work *= rate
        p -= work


class Adam(Optimizer):
    """Steps of even size along a running mean of the gradient.

    ``m`` and ``v`` are running means of ``g`` and ``g g``, divided by ``1 - beta^step`` because they
    start from 0; ``p -= lr m / (sqrt(v) + eps)``. A sparse gradient still moves every row, as its
    mean fades; see `LazyAdam`.

    Args:
        lr: learning rate, above 0.
        betas: how much of ``m`` and ``v`` is kept, each from 0 to below 1.
        eps: above 0.
        weight_decay: 0 or more, added to the gradient (not AdamW's).
        lr_factors: see `Optimizer`.

    Raises:
        TrainingError: when a setting is out of range.

    >>> params = {"w": np.array([1.0, 2.0])}
    >>> Adam(0.5).update(params, {"w": np.array([-10.0, 1e-3])})
    >>> params["w"].round(4)
    array([1.5, 1.5])

    Source: Kingma and Ba 2015, algorithm 1.
    """

    moments = ("mean", "square")

    def __init__(
        self,
        lr: float = 0.001,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        lr_factors: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(lr, weight_decay=weight_decay, lr_factors=lr_factors)
        kind = type(self).__name__
        self.betas = (_within(f"{kind} betas[0]", betas[0], 0, 1), _within(f"{kind} betas[1]", betas[1], 0, 1))
        self.eps = _within(f"{kind} eps", eps, 0, open_low=True)

    def _touches_rows_only(self) -> bool:
        return False

    def _apply(self, p: Array, g: Array, moments: Sequence[Array], rate: float, step: int) -> None:
        mean, square = moments
        work = self._scratch(1, p)
        np.multiply(g, 1 - self.betas[0], out=work)
        mean *= self.betas[0]
        mean += work
        np.multiply(g, g, out=work)
        work *= 1 - self.betas[1]
        square *= self.betas[1]
        square += work
        # The corrections are drawn out of the quotient, which saves two passes over the block.
        correction = math.sqrt(1 - self.betas[1] ** step)
        np.sqrt(square, out=work)
        work += self.eps * correction
        np.divide(mean, work, out=work)
        work *= rate * correction / (1 - self.betas[0] ** step)
        p -= work


class LazyAdam(Adam):
    """Adam that, for a sparse gradient, leaves all but the touched rows and their moments alone.

    Not equal to `Adam`: there the means of an untouched row fade and still move it. Much cheaper
    for a large table of which a batch touches few rows. Weight decay, too, reaches the touched rows
    only; the bias correction counts the parameter's steps, not the row's. For dense gradients
    it is Adam.

    >>> params, grads = {"w": np.ones((3, 1))}, {"w": SparseRows(np.array([1]), np.ones((1, 1)), (3, 1))}
    >>> LazyAdam(0.5).update(params, grads)
    >>> params["w"].T.round(4)
    array([[1. , 0.5, 1. ]])

    Source: torch.optim.SparseAdam, but for eps, which stands where `Adam` has it.
    """

    def _touches_rows_only(self) -> bool:
        return True
