"""Plots: pictures of the figures so far, drawn anew after each epoch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from foldbatch.train.callbacks.callback import Callback
from foldbatch.train.callbacks.extras import imported
from foldbatch.train.pictures import plot_confusion, plot_history

if TYPE_CHECKING:
    from foldbatch.train.trainer import Trainer


class Plots(Callback):
    """Draws the curves of all figures, and each confusion matrix of the last epoch, into files.

    They are ``history.png``, and ``dev_confusion.png`` for a matrix of that name. Put it behind callbacks
    that add figures. Needs matplotlib: ``pip install 'foldbatch[plot]'``.

    Args:
        folder: for the files; is made if there is none.
        classes: the names of the classes, for confusion matrices.
        ending: of the files: ``"png"``, ``"svg"`` or ``"pdf"``.

    Raises:
        BackendError: when matplotlib is not installed.
    """

    first_only = True

    def __init__(
        self, folder: str | os.PathLike[str], classes: Sequence[str] | None = None, *, ending: str = "png"
    ) -> None:
        imported("matplotlib.figure", "plot", "Plots")
        self.folder = Path(folder)
        self.classes = classes
        self.ending = ending

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Draw."""
        self.folder.mkdir(parents=True, exist_ok=True)
        plot_history(trainer.history, self.folder / f"history.{self.ending}")
        for name, value in trainer.figures.items():
            if isinstance(value, list) and value and isinstance(value[0], list):
                plot_confusion(value, self.classes, self.folder / f"{name}.{self.ending}")
