"""Optimizers: formulas for one step of the parameters, given their gradients.

In: parameters and gradients by name, a gradient being an array or `SparseRows`. Out: nothing;
the parameters are changed in place, after every gradient has been found fit, so that a bad
batch changes nothing at all.

The formulas are torch.optim's, to rounding. A sparse gradient gives what its dense form would
give: where rows without a gradient stay as they are (plain SGD, AdaGrad) only the touched rows
are visited, else (momentum, Adam, weight decay) all are. `LazyAdam` is the one exception, and
bears it in its name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foldbatch.errors import TrainingError
from foldbatch.params import SparseRows
from foldbatch.train.gradients import WHOLE, Array, takes
from foldbatch.train.optimizer import Optimizer, within


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
        self.momentum = within("SGD momentum", momentum, 0, 1)
        self.nesterov = nesterov
        if nesterov and not momentum:
            raise TrainingError("SGD nesterov", "a momentum above 0", "momentum 0", "give momentum=0.9")
        self.moments = ("velocity",) if self.momentum else ()

    def _touches_rows_only(self) -> bool:
        return not self.momentum and not self.weight_decay

    def _apply(self, p: Array, g: Array, moments: Sequence[Array], rate: float, step: int) -> None:
        work = self._scratch(1, p)
        if self.momentum:
            (velocity,) = moments
            velocity *= self.momentum
            velocity += g
            if self.nesterov:
                g = np.add(g, np.multiply(velocity, self.momentum, out=work), out=work)
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
        self.eps = within("AdaGrad eps", eps, 0, open_low=True)
        self.initial = within("AdaGrad initial_accumulator", initial_accumulator, 0)

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
        first, second = (within(f"{kind} betas[{i}]", beta, 0, 1) for i, beta in enumerate(betas))
        self.betas = (first, second)
        self.eps = within(f"{kind} eps", eps, 0, open_low=True)

    def _touches_rows_only(self) -> bool:
        return False

    def _corrected(self, rate: float, step: int) -> tuple[float, float]:
        """Return eps and rate with the bias corrections in them, which saves two passes over the moments."""
        correction = math.sqrt(1 - self.betas[1] ** step)
        return self.eps * correction, rate * correction / (1 - self.betas[0] ** step)

    def _in_one_pass(
        self, tables: Sequence[Array], gradient: Any, factor: float, rate: float, step: int
    ) -> bool:
        if self._updates is None:
            return False
        p, mean, square = tables
        g, rows, width = gradient, WHOLE, p.size
        if isinstance(gradient, SparseRows):
            g, rows, width = gradient.values, gradient.rows, p.size // max(1, len(p))
        loop = self._updates.adam(p.dtype)
        if loop is None or rows.dtype != np.int64 or not all(map(takes, (p, g, mean, square, rows))):
            return False
        flat = p.reshape(-1), g.reshape(-1), mean.reshape(-1), square.reshape(-1)
        first, second = self.betas
        loop(*flat, rows, width, factor, first, 1 - first, second, 1 - second, *self._corrected(rate, step))
        return True

    def _apply(self, p: Array, g: Array, moments: Sequence[Array], rate: float, step: int) -> None:
        if self._in_one_pass((p, *moments), g, 1.0, rate, step):
            return
        mean, square = moments
        eps, rate = self._corrected(rate, step)
        work = self._scratch(1, p)
        np.multiply(g, 1 - self.betas[0], out=work)
        mean *= self.betas[0]
        mean += work
        np.multiply(g, g, out=work)
        work *= 1 - self.betas[1]
        square *= self.betas[1]
        square += work
        np.sqrt(square, out=work)
        work += eps
        np.divide(mean, work, out=work)
        work *= rate
        p -= work


class LazyAdam(Adam):
    """Adam that, for a sparse gradient, leaves all but the touched rows and their moments alone.

    Not equal to `Adam`: there the means of an untouched row fade and still move it. Much cheaper
    for a large table of which a batch touches few rows. Weight decay, too, reaches the touched rows
    only; the bias correction counts the parameter's steps, not the row's. For dense gradients
    it is Adam.

    >>> from foldbatch.params import SparseRows
    >>> params = {"w": np.ones((3, 1))}
    >>> LazyAdam(0.5).update(params, {"w": SparseRows(np.array([1]), np.ones((1, 1)), (3, 1))})
    >>> params["w"].T.round(4)
    array([[1. , 0.5, 1. ]])

    Source: torch.optim.SparseAdam, but for eps, which stands where `Adam` has it.
    """

    def _touches_rows_only(self) -> bool:
        return True
