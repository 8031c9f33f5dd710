"""Logs of a training for people: a table of figures, lines and a bar."""

import csv
import io
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias, get_args

import msgspec
import numpy as np

from foldbatch.engines.pending import Pending
from foldbatch.errors import UnknownNameError
from foldbatch.system.files import write_whole
from foldbatch.system.showing import rich_bars
from foldbatch.train.metrics import flattened
from foldbatch.train.trainer import USUAL, Callback, Trainer


class _HistoryFile(Callback):
    """A file that holds the figures of all epochs, written anew after each epoch; subclasses give its format.

    So a resumed training leaves no line of epochs that are made again.
    """

    first_only = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def on_fit_start(self, trainer: Trainer) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._write(trainer)

    def on_epoch_end(self, trainer: Trainer) -> None:
        self._write(trainer)

    def on_fit_end(self, trainer: Trainer) -> None:
        self._write(trainer)

    def _write(self, trainer: Trainer) -> None:
        write_whole(self.path, self.content(trainer.history))

    def content(self, history: Sequence[Mapping[str, object]]) -> bytes:
        """Return the content of the file for the figures of all epochs."""
        raise NotImplementedError


class CSVLog(_HistoryFile):
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

    def content(self, history: Sequence[Mapping[str, object]]) -> bytes:
        """Return the table; its columns are the names of all figures."""
        rows = [flattened(figures) for figures in history]
        columns = list(dict.fromkeys(name for row in rows for name in row)) or ["epoch"]
        text = io.StringIO(newline="")
        table = csv.DictWriter(text, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        return text.getvalue().encode()


class JSONLinesLog(_HistoryFile):
    r"""Writes the figures of all epochs to JSON lines, an object an epoch, anew after each epoch.

    Objects keep figures by class and matrices as they are in `Trainer.history`. A figure that is not finite
    is null. pandas and polars read such a file: ``pandas.read_json(path, lines=True)``. Put logs behind
    callbacks that add figures.

    Args:
        path: of the file, which is replaced; its folder is made.

    Raises:
        OSError: in `fit`, when the file cannot be written.

    >>> JSONLinesLog("runs/figures.jsonl").content([{"epoch": 1, "f1": {"bad": 0.5}, "loss": np.inf}])
    b'{"epoch":1,"f1":{"bad":0.5},"loss":null}\n'
    """

    def content(self, history: Sequence[Mapping[str, object]]) -> bytes:
        """Return a line for each epoch."""
        return msgspec.json.Encoder(enc_hook=_plain).encode_lines(history)


def _plain(value: object) -> object:
    """Return a figure of a metric of the user's, such as a number or an array of NumPy, as plain data."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return str(value)


Style: TypeAlias = Literal["auto", "bar", "lines"]
STYLES = get_args(Style)


class Progress(Callback):
    """Shows a line with the figures of each epoch; in a terminal also a bar of its steps.

    Put it behind callbacks that add figures.

    Args:
        style: ``"bar"`` for a terminal, ``"lines"`` for files, pipes and notebooks; ``"auto"`` finds out.
        file: where to; by default standard error, and nowhere where that is closed.

    Raises:
        UnknownNameError: when there is no such style.

    >>> w = fb.Parameter([], init=0.0, name="w")
    >>> error = fb.Scalar() >> fb.Function(lambda x: (w - x) ** 2)
    >>> shown = Progress("lines", file=sys.stdout)
    >>> trainer = fb.train.Trainer(fb.compile(error >> fb.Loss()), fb.SGD(0.25), callbacks=[shown])
    >>> figures = trainer.fit([1.0], [1.0], epochs=2)  # doctest: +ELLIPSIS
    epoch 1/2  loss/example 1  validation_loss/example 0.25  ... s
    epoch 2/2  loss/example 0.25  validation_loss/example 0.0625  ... s
    """

    first_only = True

    def __init__(self, style: Style = "auto", *, file: IO[str] | None = None) -> None:
        if style not in STYLES:
            raise UnknownNameError("Progress style", f"one of {', '.join(STYLES)}", repr(style), "try 'auto'")
        self.style = style
        self.file = file
        self._to: IO[str] | None = None  # where lines go while a `fit` is under way
        self._bars: Any = None  # of rich, where there is a bar
        self._task: Any = None

    def on_fit_start(self, trainer: Trainer) -> None:
        self._to = sys.stderr if self.file is None else self.file
        if self._to is not None and (self.style == "bar" or (self.style == "auto" and self._to.isatty())):
            self._bars = rich_bars(self._to)
            self._bars.start()

    def on_epoch_start(self, trainer: Trainer) -> None:
        if self._bars is not None:
            name, completed = f"epoch {trainer.epoch + 1}/{trainer.epochs}", trainer.position.batches
            self._task = self._bars.add_task(name, completed=completed, total=trainer.batches)

    def on_step_end(self, trainer: Trainer) -> None:
        """Advance the epoch's bar by a step; show the mean loss of the batch where it is computed already."""
        if self._bars is not None:
            loss: Any = trainer.batch.loss
            loss_text = "" if isinstance(loss, Pending) else f"  loss {loss / max(trainer.batch.size, 1):.4g}"
            name = f"epoch {trainer.epoch + 1}/{trainer.epochs}"
            self._bars.update(self._task, advance=1, description=name + loss_text)

    def on_epoch_end(self, trainer: Trainer) -> None:
        self._say(line_of(trainer.figures, trainer.epochs))

    def on_fit_end(self, trainer: Trainer) -> None:
        if trainer.stopped is not None:
            self._say(f"stopped: {trainer.stopped}")
        if self._bars is not None:
            self._bars.stop()
        self._to = self._bars = None

    def _say(self, line: str) -> None:
        """Show a line that stays, above the bar where there is one."""
        if self._bars is None:
            if self._to is not None:
                print(line, file=self._to, flush=True)
            return
        for task in self._bars.task_ids:
            self._bars.remove_task(task)
        self._bars.console.print(line, markup=False, highlight=False, soft_wrap=True)


def line_of(figures: Mapping[str, object], epochs: int) -> str:
    """Return the figures of an epoch that are single numbers, as a line.

    >>> line_of({"epoch": 3, "loss": 0.51234, "seconds": 12.34, "validation_f1": {"good": 1.0}}, 10)
    'epoch 3/10  loss/example 0.5123  12.3 s'
    """
    parts = [f"epoch {figures['epoch']}/{epochs}"]
    for name, value in figures.items():
        if name not in ("epoch", "seconds") and isinstance(value, int | float):
            per = "/example" * name.endswith("loss")  # all of an example's losses are summed
            parts.append(f"{name}{per} {value:.4g}")
    return "  ".join([*parts, f"{figures['seconds']:.1f} s"] if "seconds" in figures else parts)


def _usual_progress(callbacks: Sequence[Callback]) -> Callback | None:
    shown = sys.stderr is not None and sys.stderr.isatty()
    return Progress() if shown and not any(isinstance(callback, Progress) for callback in callbacks) else None


USUAL.append(_usual_progress)
