"""Optimizers: formulas for one step of the parameters, given their gradients.

In: parameters and gradients by name, a gradient being an array or `SparseRows`. Out: nothing;
the parameters are changed in place, after every gradient has been found fit, so that a bad
batch changes nothing at all.

The formulas are torch.optim's, to rounding. A sparse gradient gives what its dense form would
give: where rows without a gradient stay as they are (plain SGD, AdaGrad) only the touched rows
are visited, else (momentum, RMSprop, Adam, weight decay) all are. `LazyAdam` is the one exception,
and bears it in its name.

`foldbatch.train.adams` has Adam and its kin.
"""

from __future__ import annotations

from foldbatch.errors import TrainingError
from foldbatch.train.optimizer import Factors, Optimizer, within


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum if wanted.

    ``v = momentum v + g``, then ``p -= lr v``; with `nesterov`, ``p -= lr (g + momentum v)``.

    Args:
        lr: learning rate, above 0.
        momentum: from 0 to below 1.
        nesterov: whether to look ahead; needs momentum.
        weight_decay: 0 or more.
        lr_factors: see `Optimizer`.
        decay_factors: see `Optimizer`.

    Raises:
        TrainingError: when a setting is out of range.

    >>> import numpy as np
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
        lr_factors: Factors | None = None,
        decay_factors: Factors | None = None,
    ) -> None:
        super().__init__(lr, weight_decay=weight_decay, lr_factors=lr_factors, decay_factors=decay_factors)
        self.momentum = within("SGD momentum", momentum, 0, 1)
        self.nesterov = nesterov
        if nesterov and not momentum:
            raise TrainingError("SGD nesterov", "a momentum above 0", "momentum 0", "give momentum=0.9")
        self.moments = ("velocity",) if self.momentum else ()

    def _touches_rows_only(self, decay: float) -> bool:
        return not self.momentum and not decay

    def _lines(self) -> tuple[str, ...]:
        if not self.momentum:
            return ("p = p - rate * g",)
        moved = "(g + momentum * velocity)" if self.nesterov else "velocity"
        return ("velocity = momentum * velocity + g", f"p = p - rate * {moved}")

    def _numbers(self, rate: float, step: int) -> dict[str, float]:
        return {"rate": rate, "momentum": self.momentum} if self.momentum else {"rate": rate}


class AdaGrad(Optimizer):
    """Steps that shrink where gradients have been large: ``a += g g``, then ``p -= lr g / (sqrt(a) + eps)``.

    Args:
        lr: learning rate, above 0.
        eps: above 0.
        initial_accumulator: what ``a`` starts from, 0 or more.
        weight_decay: 0 or more.
        lr_factors: see `Optimizer`.
        decay_factors: see `Optimizer`.

    Raises:
        TrainingError: when a setting is out of range.

    >>> import numpy as np
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
        lr_factors: Factors | None = None,
        decay_factors: Factors | None = None,
    ) -> None:
        super().__init__(lr, weight_decay=weight_decay, lr_factors=lr_factors, decay_factors=decay_factors)
        self.eps = within("AdaGrad eps", eps, 0, open_low=True)
        self.initial = within("AdaGrad initial_accumulator", initial_accumulator, 0)

    def _touches_rows_only(self, decay: float) -> bool:
        return not decay

    def _lines(self) -> tuple[str, ...]:
        return ("accumulator = accumulator + g * g", "p = p - rate * (g / (sqrt(accumulator) + eps))")

    def _numbers(self, rate: float, step: int) -> dict[str, float]:
        return {"rate": rate, "eps": self.eps}


class RMSprop(Optimizer):
    """Steps divided by a running mean of the gradient's size.

    ``s`` is the running mean of ``g g``; ``p -= lr g / (sqrt(s) + eps)``. With `centered`, the square of the
    running mean of ``g`` is subtracted from ``s``, which makes it a variance. With `momentum`,
    ``v = momentum v + g / (sqrt(s) + eps)``, then ``p -= lr v``. A sparse gradient visits every row, because
    the means of all rows fade.

    Args:
        lr: learning rate, above 0.
        alpha: how much of the running means is kept, from 0 to below 1.
        eps: above 0.
        momentum: from 0 to below 1.
        centered: whether to divide by the standard deviation.
        weight_decay: 0 or more.
        lr_factors: see `Optimizer`.
        decay_factors: see `Optimizer`.

    Raises:
        TrainingError: when a setting is out of range.

    >>> import numpy as np
    >>> params = {"w": np.array([1.0, 2.0])}
    >>> RMSprop(0.5, alpha=0.75).update(params, {"w": np.array([-10.0, 1e-3])})
    >>> params["w"].round(3)
    array([2., 1.])

    Source: Tieleman and Hinton 2012, lecture 6.5; `centered` as in Graves 2013, equations 38 to 45. The form
    is that of torch.optim.RMSprop, but the variance has a recurrence of its own, which cannot fall below 0.
    """

    def __init__(
        self,
        lr: float = 0.01,
        *,
        alpha: float = 0.99,
        eps: float = 1e-8,
        momentum: float = 0.0,
        centered: bool = False,
        weight_decay: float = 0.0,
        lr_factors: Factors | None = None,
        decay_factors: Factors | None = None,
    ) -> None:
        super().__init__(lr, weight_decay=weight_decay, lr_factors=lr_factors, decay_factors=decay_factors)
        self.alpha = within("RMSprop alpha", alpha, 0, 1)
        self.eps = within("RMSprop eps", eps, 0, open_low=True)
        self.momentum = within("RMSprop momentum", momentum, 0, 1)
        self.centered = centered
        spread = ("variance", "mean") if centered else ("square",)
        self.moments = (*spread, "velocity") if self.momentum else spread

    def _touches_rows_only(self, decay: float) -> bool:
        return False

    def _lines(self) -> tuple[str, ...]:
        if self.centered:  # the variance takes the mean of the step before
            spread: tuple[str, ...] = (
                "variance = keep * (variance + first * ((g - mean) * (g - mean)))",
                "mean = keep * mean + first * g",
                "g = g / (sqrt(variance) + eps)",
            )
        else:
            spread = ("square = keep * square + first * (g * g)", "g = g / (sqrt(square) + eps)")
        if not self.momentum:
            return (*spread, "p = p - rate * g")
        return (*spread, "velocity = momentum * velocity + g", "p = p - rate * velocity")

    def _numbers(self, rate: float, step: int) -> dict[str, float]:
        numbers = {"rate": rate, "keep": self.alpha, "first": 1 - self.alpha, "eps": self.eps}
        return numbers | {"momentum": self.momentum} if self.momentum else numbers
