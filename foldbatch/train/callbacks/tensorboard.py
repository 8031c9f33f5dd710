"""TensorBoardLog: the figures of a training for TensorBoard."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from foldbatch.errors import TrainingError
from foldbatch.train.callbacks.callback import Callback
from foldbatch.train.callbacks.extras import imported
from foldbatch.train.callbacks.figures import flattened

if TYPE_CHECKING:
    from foldbatch.train.trainer import Trainer


class TensorBoardLog(Callback):
    """Writes the figures of epochs, and the loss of some steps, as events that TensorBoard shows.

    All are drawn over steps. A resumed training makes TensorBoard drop what was written after its checkpoint.
    Needs tensorboardX: ``pip install 'foldbatch[tensorboard]'``.

    Args:
        folder: for files of events; is made if there is none.
        every: after how many steps the loss per example of a batch and the learning rate are written, as
            ``step/loss`` and ``step/lr``; by default never. On a device that waits.

    Raises:
        BackendError: when tensorboardX is not installed.
        TrainingError: when `every` is below 1.
    """

    first_only = True

    def __init__(self, folder: str | os.PathLike[str], *, every: int | None = None) -> None:
        if every is not None and every < 1:
            raise TrainingError(
                "TensorBoardLog every", "1 step or more", repr(every), "leave it out for none"
            )
        self._library = imported("tensorboardX", "tensorboard", "TensorBoardLog")
        self.folder = os.fspath(folder)
        self.every = every
        self._writer: Any = None

    def on_fit_start(self, trainer: Trainer) -> None:
        """Begin a file of events."""
        first = trainer.steps + 1 if trainer.steps else None
        self._writer = self._library.SummaryWriter(self.folder, purge_step=first)

    def on_step_end(self, trainer: Trainer) -> None:
        """Write the loss of a step, if it is time."""
        if self._writer is not None and self.every is not None and trainer.steps % self.every == 0:
            loss = float(trainer.batch.loss) / max(len(trainer.batch.examples), 1)
            self._writer.add_scalar("step/loss", loss, trainer.steps)
            self._writer.add_scalar("step/lr", trainer.optimizer.lr, trainer.steps)

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Write the figures of an epoch."""
        for name, value in flattened(trainer.figures).items():
            if isinstance(value, int | float):
                self._writer.add_scalar(name, value, trainer.steps)
        self._writer.flush()

    def on_fit_end(self, trainer: Trainer) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
