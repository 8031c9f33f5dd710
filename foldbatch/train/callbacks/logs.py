"""Logs: the figures of a training in files, as a table of epochs or as JSON lines of epochs and steps."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from foldbatch.blocks.values import is_int
from foldbatch.errors import TrainingError
from foldbatch.output import write_whole
from foldbatch.train.callbacks.callback import Callback
from foldbatch.train.callbacks.figures import flattened

if TYPE_CHECKING:
    from foldbatch.train.trainer import Trainer


class CSVLog(Callback):
    """Writes the figures of all epochs to a table, a line each, anew after each epoch.

    So a resumed training leaves no line of epochs that are made again. A figure by class has a column per
    class, ``FIGURE/CLASS``. Matrices are left out. Put logs behind callbacks that add figures.

    Args:
        path: of the file, which is replaced; its folder is made.

    Raises:
        OSError: in `fit`, when the file cannot be written.

    >>> CSVLog("runs/figures.csv").path.name
    'figures.csv'
    """

    first_only = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def on_fit_start(self, trainer: Trainer) -> None:
        """Write what is known at first: the head, or the epochs before a checkpoint."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._write(trainer)

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Write all epochs."""
        self._write(trainer)

    def on_fit_end(self, trainer: Trainer) -> None:
        """Write all epochs, with figures that came late."""
        self._write(trainer)

    def _write(self, trainer: Trainer) -> None:
        rows = [flattened(figures) for figures in trainer.history]
        columns = list(dict.fromkeys(name for row in rows for name in row)) or ["epoch"]
        text = io.StringIO(newline="")
        table = csv.DictWriter(text, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        write_whole(self.path, text.getvalue().encode())


class JSONLinesLog(Callback):
    """Writes the figures of each epoch, and of some steps, to a file, a line of JSON each.

    A line of an epoch has all its figures, and ``steps``. A line of a step has ``step``, ``epoch``, ``loss``
    per example of the batch, and ``lr``. A number that is not finite is null. A resumed training cuts off
    what was written after its checkpoint. Put logs behind callbacks that add figures.

    Args:
        path: of the file, which a new training replaces; its folder is made.
        every: after how many steps a line of a step is written; by default never. On a device that waits.

    Raises:
        TrainingError: when `every` is below 1.
        OSError: in `fit`, when the file cannot be written.

    >>> JSONLinesLog("runs/figures.jsonl", every=100).every
    100
    """

    first_only = True

    def __init__(self, path: str | os.PathLike[str], *, every: int | None = None) -> None:
        if every is not None and not (is_int(every) and every >= 1):
            raise TrainingError("JSONLinesLog every", "1 step or more", repr(every), "None is never")
        self.path = Path(path)
        self.every = every
        self._length = 0  # bytes of the lines that belong to this training

    def on_fit_start(self, trainer: Trainer) -> None:
        """Cut the file off behind the lines that stay."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            self._length = min(self._length, file.tell())
            file.truncate(self._length)

    def on_step_end(self, trainer: Trainer) -> None:
        """Write a line of a step, if it is time."""
        if trainer.fitting and self.every is not None and trainer.steps % self.every == 0:
            loss = float(trainer.batch.loss) / max(len(trainer.batch.examples), 1)
            place = {"step": trainer.steps, "epoch": trainer.epoch + 1}
            self._write(place | {"loss": loss, "lr": trainer.optimizer.lr})

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Write a line of an epoch."""
        self._write({"epoch": trainer.epoch, "steps": trainer.steps, **trainer.figures})

    def state(self) -> dict[str, Any]:
        """Return how many bytes belong to the training."""
        return {"length": self._length}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned; what is behind is cut off when `fit` starts."""
        self._length = state["length"]

    def _write(self, record: Mapping[str, Any]) -> None:
        line = msgspec.json.encode(record, enc_hook=_as_plain) + b"\n"
        with self.path.open("ab") as file:
            file.write(line)
        self._length += len(line)


def _as_plain(value: Any) -> Any:
    """Return a number or an array of NumPy as JSON data."""
    return value.tolist()
