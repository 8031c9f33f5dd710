"""ClipGradients: gradients within limits, by their joint norm or entry by entry."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foldbatch.errors import BackendError, TrainingError
from foldbatch.params import Remote, SparseRows
from foldbatch.train.callbacks.callback import Callback
from foldbatch.train.checks import is_above
from foldbatch.train.gradients import clip_by_global_norm

if TYPE_CHECKING:
    from foldbatch.params import Gradient
    from foldbatch.train.trainer import Trainer


class ClipGradients(Callback):
    """Limits the gradients of the mean loss of a batch before each update.

    Args:
        max_norm: the greatest joint Euclidean norm; greater gradients are scaled by one factor.
        max_value: the greatest absolute value of an entry, cut before norms are taken; not on a device.

    Raises:
        TrainingError: when neither is given, or one is not above 0.
        BackendError: in a step, when `max_value` is given and gradients are on a device.

    >>> ClipGradients(5.0).max_norm
    5.0

    Source: Pascanu, Mikolov and Bengio 2013, algorithm 1.
    """

    steers = True

    def __init__(self, max_norm: float | None = None, *, max_value: float | None = None) -> None:
        limits = [limit for limit in (max_norm, max_value) if limit is not None]
        if not limits or not all(is_above(limit, 0) for limit in limits):
            found = f"max_norm={max_norm!r}, max_value={max_value!r}"
            raise TrainingError("ClipGradients", "a limit above 0", found, "for example max_norm=5.0")
        self.max_norm = max_norm
        self.max_value = max_value

    def on_gradients(self, trainer: Trainer) -> None:
        """Replace the gradients of the batch, which are those of a sum of losses."""
        batch = trainer.batch
        count = max(len(batch.examples), 1)
        if self.max_value is not None:
            limit = self.max_value * count
            batch.gradients = {name: _cut(gradient, limit) for name, gradient in batch.gradients.items()}
        if self.max_norm is not None:
            batch.gradients, _ = clip_by_global_norm(batch.gradients, self.max_norm * count)


def _cut(gradient: Gradient, limit: float) -> Any:
    values: Any = gradient.values if isinstance(gradient, SparseRows) else gradient
    if isinstance(values, Remote):
        fix = "clip by max_norm"
        raise BackendError("ClipGradients max_value", "gradients of the host", "those of a device", fix)
    cut = np.clip(values, -limit, limit)
    return replace(gradient, values=cut) if isinstance(gradient, SparseRows) else cut
