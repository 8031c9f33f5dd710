"""Optimizers: formulas for one step of the parameters, given their gradients.

All have the settings of `Optimizer`, too, which says what they raise.
"""

import math
from dataclasses import KW_ONLY, dataclass

from foldbatch.errors import TrainingError
from foldbatch.train.numbers import checked, number, truth
from foldbatch.train.optimizer import Optimizer, finite, learning_rate
from foldbatch.types import describe_value


@dataclass(eq=False, repr=False)
class SGD(Optimizer):
    """Stochastic gradient descent, with momentum if wanted.

    ``v = momentum v + g``, then ``p -= lr v``; with `nesterov`, ``p -= lr (g + momentum v)``.

    Args:
        momentum: from 0 to below 1.
        nesterov: whether to look ahead; needs momentum.

    >>> params = {"w": np.array([1.0, 2.0])}
    >>> SGD(0.5).update(params, {"w": np.array([1.0, 0.0])})
    >>> params["w"]
    array([0.5, 2. ])

    Source: Sutskever et al. 2013, in the form of torch.optim.SGD.
    """

    lr: float = checked(learning_rate, default=0.01)
    _: KW_ONLY
    momentum: float = checked(number, 0, 1, default=0.0)
    nesterov: bool = checked(truth, default=False)

    @property
    def moments(self) -> tuple[str, ...]:
        """The velocity, if any."""
        if self.nesterov and not self.momentum:
            raise TrainingError("SGD nesterov", "a momentum above 0", "momentum 0", "give momentum=0.9")
        return ("velocity",) if self.momentum else ()

    def _touches_rows_only(self, decay: float) -> bool:
        return not self.momentum and not decay

    def _lines(self) -> tuple[str, ...]:
        if not self.momentum:
            return ("p = p - rate * g",)
        moved = "(g + momentum * velocity)" if self.nesterov else "velocity"
        return ("velocity = momentum * velocity + g", f"p = p - rate * {moved}")

    def _numbers(self, rate: float, step: int) -> dict[str, float]:
        return {"rate": rate, "momentum": self.momentum} if self.momentum else {"rate": rate}


@dataclass(eq=False, repr=False)
class AdaGrad(Optimizer):
    """Steps that shrink where gradients have been large: ``a += g g``, then ``p -= lr g / (sqrt(a) + eps)``.

    Args:
        eps: above 0.
        initial_accumulator: what ``a`` starts from, 0 or more.

    >>> params = {"w": np.array([1.0, 2.0])}
    >>> AdaGrad(0.5).update(params, {"w": np.array([10.0, 0.0])})
    >>> params["w"]
    array([0.5, 2. ])

    Source: Duchi, Hazan and Singer 2011, figure 1, diagonal.
    """

    moments = ("accumulator",)

    lr: float = checked(learning_rate, default=0.01)
    _: KW_ONLY
    eps: float = checked(number, 0, above=True, default=1e-10)
    initial_accumulator: float = checked(number, 0, default=0.0)

    def _touches_rows_only(self, decay: float) -> bool:
        return not decay

    def _lines(self) -> tuple[str, ...]:
        return ("accumulator = accumulator + g * g", "p = p - rate * (g / (sqrt(accumulator) + eps))")

    def _numbers(self, rate: float, step: int) -> dict[str, float]:
        return {"rate": rate, "eps": self.eps}


@dataclass(eq=False, repr=False)
class RMSprop(Optimizer):
    """Steps divided by a running mean of the gradient's size.

    ``s`` is the running mean of ``g g``; ``p -= lr g / (sqrt(s) + eps)``. With `centered`, the square of the
    running mean of ``g`` is subtracted from ``s``, so that ``s`` is a variance. With `momentum`,
    ``v = momentum v + g / (sqrt(s) + eps)``, then ``p -= lr v``. A sparse gradient visits every row, because
    the means of all rows fade.

    Args:
        alpha: how much of the running means is kept, from 0 to below 1.
        eps: above 0.
        momentum: from 0 to below 1.
        centered: whether to divide by the standard deviation of the gradient.

    >>> params = {"w": np.array([1.0, 2.0])}
    >>> RMSprop(0.5, alpha=0.75).update(params, {"w": np.array([-10.0, 1e-3])})
    >>> params["w"].round(3)
    array([2., 1.])

    Source: Tieleman and Hinton 2012, lecture 6.5; `centered` as in Graves 2013, equations 38 to 45. The form
    is that of torch.optim.RMSprop, but the variance has a recurrence of its own, which cannot fall below 0:
    torch's difference of two means can, in float32, and its root is NaN then.
    """

    lr: float = checked(learning_rate, default=0.01)
    _: KW_ONLY
    alpha: float = checked(number, 0, 1, default=0.99)
    eps: float = checked(number, 0, above=True, default=1e-8)
    momentum: float = checked(number, 0, 1, default=0.0)
    centered: bool = checked(truth, default=False)

    @property
    def moments(self) -> tuple[str, ...]:
        """The square, or variance and mean where it is centred; and the velocity, if any."""
        spread = ("variance", "mean") if self.centered else ("square",)
        return (*spread, "velocity") if self.momentum else spread

    def _lines(self) -> tuple[str, ...]:
        """Return the lines of the update: the running means, the divided gradient, then the step."""
        spread: tuple[str, ...] = ("square = keep * square + first * (g * g)", "g = g / (sqrt(square) + eps)")
        if self.centered:  # the variance reads the mean of the step before
            spread = (
                "variance = keep * (variance + first * ((g - mean) * (g - mean)))",
                "mean = keep * mean + first * g",
                "g = g / (sqrt(variance) + eps)",
            )
        if not self.momentum:
            return (*spread, "p = p - rate * g")
        return (*spread, "velocity = momentum * velocity + g", "p = p - rate * velocity")

    def _numbers(self, rate: float, step: int) -> dict[str, float]:
        numbers = {"rate": rate, "keep": self.alpha, "first": 1 - self.alpha, "eps": self.eps}
        return numbers | {"momentum": self.momentum} if self.momentum else numbers


def _pair(where: str, betas: object) -> tuple[float, float]:
    if not (isinstance(betas, tuple | list) and len(betas) == 2):
        raise TrainingError(where, "a pair of numbers", describe_value(betas), "for example (0.9, 0.999)")
    first, second = (number(f"{where}[{i}]", beta, 0, 1) for i, beta in enumerate(betas))
    return first, second


@dataclass(eq=False, repr=False)
class Adam(Optimizer):
    """Steps of even size along a running mean of the gradient.

    ``m`` and ``v`` are running means of ``g`` and ``g g``, divided by ``1 - beta^step`` because they
    start from 0; ``p -= lr m / (sqrt(v) + eps)``. A sparse gradient still moves every row, as its
    mean fades; see `LazyAdam`.

    Args:
        betas: how much of ``m`` and ``v`` is kept, each from 0 to below 1.
        eps: above 0.
        weight_decay: 0 or more, added to the gradient (not AdamW's).

    >>> params = {"w": np.array([1.0, 2.0])}
    >>> Adam(0.5).update(params, {"w": np.array([-10.0, 1e-3])})
    >>> params["w"].round(4)
    array([1.5, 1.5])

    Source: Kingma and Ba 2015, algorithm 1.
    """

    moments = ("mean", "square")

    lr: float = checked(learning_rate, default=0.001)
    _: KW_ONLY
    betas: tuple[float, float] = checked(_pair, default=(0.9, 0.999))
    eps: float = checked(number, 0, above=True, default=1e-8)

    def _lines(self) -> tuple[str, ...]:
        return (
            "mean = keep * mean + first * g",
            "square = keep_square * square + second * (g * g)",
            "p = p - rate * (mean / (sqrt(square) + eps))",
        )

    def _numbers(self, rate: float, step: int) -> dict[str, float]:
        """Return the numbers of the update rule for a rate and a step, bias corrections included."""
        keep, keep_square = self.betas[:2]
        # eps and rate have the bias corrections in them, so that the moments need none
        correction = math.sqrt(1 - keep_square**step)
        return {
            "keep": keep,
            "first": 1 - keep,
            "keep_square": keep_square,
            "second": 1 - keep_square,
            "eps": self.eps * correction,
            "rate": rate * correction / (1 - keep**step),
        }


class LazyAdam(Adam):
    """Adam that, for a sparse gradient, leaves all but the touched rows and their moments alone.

    Not equal to `Adam`: there the means of an untouched row fade and still move it. Much cheaper
    for a large table of which a batch touches few rows. Weight decay, too, reaches the touched rows
    only; the bias correction counts the parameter's steps, not the row's. For dense gradients
    it is Adam.

    >>> from foldbatch.params.parameters import SparseRows
    >>> params = {"w": np.ones((3, 1))}
    >>> LazyAdam(0.5).update(params, {"w": SparseRows(np.array([1]), np.ones((1, 1)), (3, 1))})
    >>> params["w"].T.round(4)
    array([[1. , 0.5, 1. ]])

    Source: torch.optim.SparseAdam, but for eps, which stands where `Adam` has it.
    """

    def _touches_rows_only(self, decay: float) -> bool:
        return True


@dataclass(eq=False, repr=False)
class AdamW(Adam):
    """Adam whose weight decay shrinks the parameter itself: ``p -= lr weight_decay p``, then Adam's step.

    In `Adam` the decay is part of the gradient, and so divided by its running size. A sparse gradient moves
    and shrinks every row.

    Args:
        betas: how much of ``m`` and ``v`` is kept, each from 0 to below 1.
        eps: above 0.
        lr_factors: they scale the decay, too, as ``lr`` does.

    >>> params = {"w": np.array([4.0, 2.0])}
    >>> AdamW(0.5, weight_decay=0.1).update(params, {"w": np.array([-10.0, 0.0])})
    >>> params["w"].round(4)
    array([4.3, 1.9])

    Source: Loshchilov and Hutter 2019, algorithm 2, in the form of torch.optim.AdamW.
    """

    _: KW_ONLY
    weight_decay: float = checked(number, 0, default=0.01)

    def _decay(self, rate: float, decay: float) -> tuple[str, float]:
        return "p = p - decay * p", rate * decay


def _triple(where: str, betas: object) -> tuple[float, float, float]:
    """Return the betas of `Eve` as three numbers from 0 to below 1, or refuse them."""
    if not (isinstance(betas, tuple | list) and len(betas) == 3):
        fix = "for example (0.9, 0.999, 0.999); the third is the feedback's"
        raise TrainingError(where, "three numbers", describe_value(betas), fix)
    first, second, third = (number(f"{where}[{i}]", beta, 0, 1) for i, beta in enumerate(betas))
    return first, second, third


def _thresholds(where: str, thresholds: object) -> tuple[float, float]:
    """Return the thresholds of `Eve` as two numbers above 0, the lower one first, or refuse them."""
    fix = "for example (0.1, 10.0)"
    if not (isinstance(thresholds, tuple | list) and len(thresholds) == 2):
        raise TrainingError(where, "a pair of numbers", describe_value(thresholds), fix)
    lower, upper = (number(f"{where}[{i}]", x, 0, above=True, fix=fix) for i, x in enumerate(thresholds))
    if lower > upper:
        raise TrainingError(where, "the lower threshold first", describe_value(thresholds), fix)
    return lower, upper


def _lower_bound(where: str, minimum: object) -> float:
    return finite(where, minimum, "0 fits cross-entropy and squared errors")


@dataclass(eq=False, repr=False)
class Eve(Adam):
    """Adam whose learning rate follows the loss: smaller where the loss changes much, larger where it rests.

    The relative change of the loss from step to step, clipped, has a running mean that starts from 1, the
    feedback ``d``; Adam's step is ``p -= lr m / (d sqrt(v) + eps)``. With ``f`` the loss, ``h`` the clipped
    loss of the step before and thresholds ``(k, K)``: ``f / h`` is clipped to the range from ``1 + k`` to
    ``1 + K`` where the loss has not fallen, and from ``1 / (1 + K)`` to ``1 / (1 + k)`` where it has; ``h``
    times that is the next ``h``, and ``|h' - h| / min(h', h)`` is the change.

    `update` needs the loss, and multiplies it by `scale` as it does the gradients: give the sum over the
    batch and ``scale=1 / len(batch)``. A `Trainer` does. A loss that a device computes is waited for at every
    step, which the other optimizers need not do.

    Args:
        betas: how much of ``m``, ``v`` and the feedback is kept, each from 0 to below 1.
        thresholds: ``k`` and ``K``, above 0: the least and the largest relative change that counts.
        minimum: is subtracted from each loss, which must be above it: 0 for cross-entropy and squared errors.
        weight_decay: 0 or more, added to the gradient. The paper has none.

    Raises:
        TrainingError: by `update`, when the loss is missing, not finite, or not above the minimum. Nothing
            has been changed then.

    >>> params, eve = {"w": np.array([1.0])}, Eve(0.1, betas=(0.9, 0.999, 0.5))
    >>> eve.update(params, {"w": np.array([2.0])}, loss=3.0)
    >>> eve.update(params, {"w": np.array([2.0])}, loss=1.0)
    >>> eve.state()["feedback"], params["w"].round(4)  # 0.5 * 1 + 0.5 * (3 - 1) / 1
    (1.5, array([0.8333]))

    Source: Koushik and Hayashi 2016, "Improving stochastic gradient descent with feedback" (arXiv 1611.01505,
    version 1), algorithm 1; `minimum` is 0 there.
    """

    loss_memory = ("loss", "feedback")

    _: KW_ONLY
    betas: tuple[float, float, float] = checked(_triple, default=(0.9, 0.999, 0.999))  # type: ignore[assignment]
    thresholds: tuple[float, float] = checked(_thresholds, default=(0.1, 10.0))
    minimum: float = checked(_lower_bound, default=0.0)

    def _remembered(self, loss: float | None, scale: float) -> dict[str, float]:
        """Return the clipped loss and the feedback after a step with a loss.

        Raises:
            TrainingError: when there is no loss, or one that is not finite or not above the minimum.
        """
        if loss is None:
            fix = "call update(params, gradients, loss=loss), or take Adam"
            raise TrainingError("Eve.update loss", "the loss whose gradients these are", "None", fix)
        fix = "nothing was changed; call program.find_nan(examples), or lower the learning rate"
        height = finite("Eve.update loss", loss, fix) * scale - self.minimum
        if not 0 < height < math.inf:
            expected, fix = f"above {self.minimum:g}", "give Eve a lower minimum"
            raise TrainingError("Eve.update loss", expected, f"{height + self.minimum:g}", fix)
        if not self._loss_memory:
            return {"loss": height, "feedback": 1.0}
        before = self._loss_memory["loss"]
        feedback = self._loss_memory["feedback"]
        lower, upper = self.thresholds
        bounds = (1 + lower, 1 + upper) if height >= before else (1 / (1 + upper), 1 / (1 + lower))
        clipped = before * min(max(bounds[0], height / before), bounds[1])
        change = abs(clipped - before) / min(clipped, before)
        keep = self.betas[2]
        return {"loss": clipped, "feedback": keep * feedback + (1 - keep) * change}

    def _numbers(self, rate: float, step: int) -> dict[str, float]:
        """Return Adam's numbers with the feedback in them: ``eps`` and ``rate`` are divided by it."""
        numbers = super()._numbers(rate, step)
        feedback = self._loss_memory["feedback"]
        return numbers | {"eps": numbers["eps"] / feedback, "rate": numbers["rate"] / feedback}
