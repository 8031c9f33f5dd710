"""ParameterStatistics: norms of parameters and of their gradients, epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from foldbatch.params import SparseRows
from foldbatch.train.callbacks.callback import Callback

if TYPE_CHECKING:
    from foldbatch.params import Gradient
    from foldbatch.train.shares import Batch
    from foldbatch.train.trainer import Trainer


class ParameterStatistics(Callback):
    """Notes the figures ``norms`` and ``gradient_norms``: Euclidean norms by parameter name.

    Gradients are those of the mean loss of an epoch's last batch. Frozen parameters have none.

    >>> import foldbatch as fb
    >>> w = fb.Parameter([], init=0.0, name="w")
    >>> error = fb.Scalar() >> fb.Function(lambda x: (w - x) ** 2)
    >>> program, norms = fb.compile(error >> fb.Loss()), ParameterStatistics()
    >>> figures = fb.train.Trainer(program, fb.SGD(0.25), callbacks=[norms]).fit([1.0], epochs=1)
    >>> figures[0]["norms"], figures[0]["gradient_norms"]
    ({'w': 0.5}, {'w': 2.0})
    """

    def __init__(self) -> None:
        self._batch: Batch | None = None  # the last one, if there was one since training was resumed
        self._norms: dict[str, float] = {}  # of the one before that

    def on_step_end(self, trainer: Trainer) -> None:
        """Keep the batch."""
        self._batch = trainer.batch

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Note the norms."""
        trainer.figures["norms"] = {name: _norm(array) for name, array in trainer.program.params.items()}
        trainer.figures["gradient_norms"] = self._gradient_norms()

    def state(self) -> dict[str, Any]:
        """Return the norms of the last gradients, for an epoch that ends without another batch."""
        return {"gradient_norms": self._gradient_norms()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""
        self._batch, self._norms = None, dict(state["gradient_norms"])

    def _gradient_norms(self) -> dict[str, float]:
        if self._batch is None:
            return self._norms
        count = max(len(self._batch.examples), 1)
        return {name: _norm(gradient) / count for name, gradient in self._batch.gradients.items()}


def _norm(array: Gradient) -> float:
    """Return the norm of an array or of sparse rows, in float64 so that squares do not overflow."""
    values = array.values if isinstance(array, SparseRows) else array
    return float(np.linalg.norm(np.asarray(values).astype(np.float64).reshape(-1)))
