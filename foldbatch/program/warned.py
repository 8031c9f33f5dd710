"""Warnings of a program, once each: of losses and gradients that are not finite, of models without a loss."""

import math
import warnings
from collections.abc import Callable, Mapping
from functools import partial

from foldbatch.engines.nonfinite import look_for_not_finite
from foldbatch.engines.pending import Pending
from foldbatch.errors import FoldbatchWarning, NoLossWarning, NotFiniteWarning, frames_inside
from foldbatch.model.model import Model
from foldbatch.params.parameters import Gradient, ParameterStore


class Warned:
    """What a program has warned of."""

    def __init__(self, params: ParameterStore) -> None:
        self._params = params
        self._of: set[type[FoldbatchWarning]] = set()

    def look_at(self, model: Model, loss: float, gradients: Mapping[str, Gradient] | None = None) -> None:
        """Warn of what is not finite, or of a model to be trained that has no loss."""
        trains, bad = gradients is not None, None
        pending = isinstance(loss, Pending)
        if gradients and NotFiniteWarning not in self._of and (pending or math.isfinite(loss)):
            bad = look_for_not_finite(gradients, self._params.updates)
        warn = partial(self._warn_of, model, bad=bad, trains=trains)
        if isinstance(loss, Pending):
            loss.then(warn)
        else:
            warn(loss)

    def _warn_of(
        self, model: Model, loss: float, bad: Callable[[], str | None] | None, *, trains: bool
    ) -> None:
        """Warn of a loss; `bad` tells the name of a gradient that is not finite."""
        warning: FoldbatchWarning
        fix = "call program.find_nan(examples)"
        if not math.isfinite(loss):
            warning = NotFiniteWarning("loss", "a finite number", str(loss), fix)
        elif bad is not None and (name := bad()) is not None:
            warning = NotFiniteWarning(f"{name} gradient", "finite numbers", "a NaN or an infinity", fix)
        elif trains and loss == 0 and not any(cell.built.losses for cell in model.cells):
            fix = "end a branch of it with Loss, as AllOf(Identity(), Loss()); a plain function calls fb.loss"
            warning = NoLossWarning("value_and_grad", "a model with a loss", "none", fix)
        else:
            return
        if type(warning) not in self._of:
            self._of.add(type(warning))
            warnings.warn(warning, stacklevel=frames_inside())
