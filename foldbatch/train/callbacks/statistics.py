"""ParameterStatistics: norms of parameters and of their gradients, epoch by epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foldbatch.params import SparseRows
from foldbatch.train.callbacks.callback import Callback

if TYPE_CHECKING:
    from foldbatch.params import Gradient
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

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Note the norms."""
        batch = trainer.batch
        count = max(len(batch.examples), 1)
        norms = {name: _norm(array) for name, array in trainer.program.params.items()}
        trainer.figures["norms"] = norms
        trainer.figures["gradient_norms"] = {name: _norm(g) / count for name, g in batch.gradients.items()}


def _norm(array: Gradient) -> float:
    """Return the norm of an array or of sparse rows, in float64 so that squares do not overflow."""
    values = array.values if isinstance(array, SparseRows) else array
    return float(np.linalg.norm(np.asarray(values).astype(np.float64).reshape(-1)))
