"""LambdaCallback: functions that are called at moments of a training, without a class for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from foldbatch.errors import TrainingError, UnknownNameError, with_nearest
from foldbatch.train.callbacks.callback import Callback
from foldbatch.types import describe_value

if TYPE_CHECKING:
    from foldbatch.train.trainer import Trainer

MOMENTS = tuple(name for name in vars(Callback) if name.startswith("on_"))


class LambdaCallback(Callback):
    """Calls functions of the trainer at moments of the training.

    Args:
        moments: functions by the names of `Callback`'s methods, such as ``on_epoch_end``.

    Raises:
        UnknownNameError: when there is no such moment.
        TrainingError: when something is no function.

    >>> import foldbatch as fb
    >>> w = fb.Parameter([], init=0.0, name="w")
    >>> error = fb.Scalar() >> fb.Function(lambda x: (w - x) ** 2)
    >>> show = LambdaCallback(on_epoch_end=lambda trainer: print(trainer.figures["loss"]))
    >>> trainer = fb.train.Trainer(fb.compile(error >> fb.Loss()), fb.SGD(0.25), callbacks=[show])
    >>> figures = trainer.fit([1.0], epochs=2)
    1.0
    0.25
    """

    def __init__(self, **moments: Callable[[Trainer], object]) -> None:
        for name, function in moments.items():
            if name not in MOMENTS:
                expected = f"a moment of {', '.join(MOMENTS)}"
                raise UnknownNameError("LambdaCallback", expected, with_nearest(name, MOMENTS))
            if not callable(function):
                fix = "give a function of the trainer"
                raise TrainingError(f"LambdaCallback {name}", "a function", describe_value(function), fix)
            setattr(self, name, function)
