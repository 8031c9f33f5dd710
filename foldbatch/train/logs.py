"""What a person reads of a training: tables, JSON lines, events for TensorBoard, plots, a bar, norms."""

import csv
import io
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias, get_args

import msgspec
import numpy as np

from foldbatch.blocks.drafts import is_int
from foldbatch.engines.pending import Pending
from foldbatch.errors import BackendError, TrainingError, UnknownNameError
from foldbatch.params.parameters import Gradient, SparseRows
from foldbatch.system.files import write_whole
from foldbatch.system.showing import rich_bars
from foldbatch.train.metrics import flattened, imported, plot_confusion, plot_history
from foldbatch.train.parallel import Batch
from foldbatch.train.trainer import USUAL, Callback, Trainer


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
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._write(trainer)

    def on_epoch_end(self, trainer: Trainer) -> None:
        self._write(trainer)

    def on_fit_end(self, trainer: Trainer) -> None:
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
    in_state = ("_length",)

    def __init__(self, path: str | os.PathLike[str], *, every: int | None = None) -> None:
        if every is not None and not (is_int(every) and every >= 1):
            raise TrainingError("JSONLinesLog every", "1 step or more", repr(every), "None is never")
        self.path = Path(path)
        self.every = every
        self._length = 0  # bytes of the lines that belong to this training

    def on_fit_start(self, trainer: Trainer) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            self._length = min(self._length, file.tell())
            file.truncate(self._length)

    def on_step_end(self, trainer: Trainer) -> None:
        if trainer.fitting and self.every is not None and trainer.steps % self.every == 0:
            loss = float(trainer.batch.loss) / max(len(trainer.batch.examples), 1)
            place = {"step": trainer.steps, "epoch": trainer.epoch + 1}
            self._write(place | {"loss": loss, "lr": trainer.optimizer.lr})

    def on_epoch_end(self, trainer: Trainer) -> None:
        self._write({"epoch": trainer.epoch, "steps": trainer.steps, **trainer.figures})

    def _write(self, record: Mapping[str, Any]) -> None:
        line = msgspec.json.encode(record, enc_hook=lambda value: value.tolist()) + b"\n"
        with self.path.open("ab") as file:
            file.write(line)
        self._length += len(line)


Style: TypeAlias = Literal["auto", "bar", "notebook", "lines"]
STYLES = get_args(Style)


class Shown:
    """A way to show progress: lines alone, below which a subclass moves a bar."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def begin(self, epoch: str, done: int, steps: int) -> None:
        """Show that an epoch of so many steps begins; where training is resumed, some are done."""

    def step(self, loss: float | None) -> None:
        """Show that a step is done, with the loss per example if that is known."""

    def say(self, line: str) -> None:
        """Show a line that stays."""
        print(line, file=self._file, flush=True)

    def end(self) -> None:
        """Leave only lines."""


class Progress(Callback):
    """Shows a line with the figures of each epoch; in a terminal or a notebook also a bar of its steps.

    Put it behind callbacks that add figures.

    Args:
        style: ``"bar"`` for a terminal, ``"notebook"`` for Jupyter, which needs tqdm (the extra
            ``notebook``), ``"lines"`` for files and pipes; ``"auto"`` finds out.
        file: where to; by default standard error.

    Raises:
        UnknownNameError: when there is no such style.
        BackendError: when tqdm is not installed, for ``"notebook"``; ``"auto"`` shows lines then.

    >>> import foldbatch as fb
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
        if style == "notebook":
            imported("tqdm.auto", "notebook", "Progress")
        self.style = style
        self.file = file
        self._shown: Shown | None = None

    def on_fit_start(self, trainer: Trainer) -> None:
        file = sys.stderr if self.file is None else self.file
        style = _style_of(file) if self.style == "auto" else self.style
        self._shown = {"bar": _EpochBar, "notebook": _Notebook, "lines": Shown}[style](file)

    def on_epoch_start(self, trainer: Trainer) -> None:
        if self._shown is not None:
            name = f"epoch {trainer.epoch + 1}/{trainer.epochs}"
            self._shown.begin(name, trainer.position.batches, trainer.batches)

    def on_step_end(self, trainer: Trainer) -> None:
        if self._shown is not None:
            loss: Any = trainer.batch.loss
            count = max(len(trainer.batch.examples), 1)
            self._shown.step(None if isinstance(loss, Pending) else loss / count)

    def on_epoch_end(self, trainer: Trainer) -> None:
        if self._shown is not None:
            self._shown.say(line_of(trainer.figures, trainer.epochs))

    def on_fit_end(self, trainer: Trainer) -> None:
        if self._shown is not None:
            if trainer.stopped is not None:
                self._shown.say(f"stopped: {trainer.stopped}")
            self._shown.end()
            self._shown = None


def line_of(figures: Mapping[str, Any], epochs: int) -> str:
    """Return the figures of an epoch as a line; what is no single number is left out.

    >>> line_of({"epoch": 3, "loss": 0.51234, "seconds": 12.34, "validation_f1": {"good": 1.0}}, 10)
    'epoch 3/10  loss/example 0.5123  12.3 s'
    """
    parts = [f"epoch {figures['epoch']}/{epochs}"]
    for name, value in figures.items():
        if name not in ("epoch", "seconds") and isinstance(value, int | float):
            per = "/example" * name.endswith("loss")  # all of an example's losses are summed
            parts.append(f"{name}{per} {value:.4g}")
    return "  ".join([*parts, f"{figures['seconds']:.1f} s"] if "seconds" in figures else parts)


def _usual_progress(others: Sequence[Callback]) -> Callback | None:
    looks = _style_of(sys.stderr) != "lines"
    return Progress() if looks and not any(isinstance(one, Progress) for one in others) else None


USUAL.append(_usual_progress)


def _style_of(file: IO[str]) -> str:
    """Return the style for a place: Jupyter has a shell of its own, and its output is no terminal."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if file in (sys.stderr, sys.stdout) and type(shell).__name__ == "ZMQInteractiveShell":
        try:
            imported("tqdm.auto", "notebook", "Progress")
        except BackendError:
            return "lines"
        return "notebook"
    return "bar" if file.isatty() else "lines"


class _EpochBar(Shown):
    def __init__(self, file: IO[str]) -> None:
        super().__init__(file)
        self._bars = rich_bars(file)
        self._bars.start()
        self._task: Any = None

    def begin(self, epoch: str, done: int, steps: int) -> None:
        self._epoch = epoch
        self._task = self._bars.add_task(epoch, completed=done, total=steps)

    def step(self, loss: float | None) -> None:
        text = self._epoch + ("" if loss is None else f"  loss {loss:.4g}")
        self._bars.update(self._task, advance=1, description=text)

    def say(self, line: str) -> None:
        for task in self._bars.task_ids:
            self._bars.remove_task(task)
        self._bars.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def end(self) -> None:
        self._bars.stop()


class _Notebook(Shown):
    def __init__(self, file: IO[str]) -> None:
        super().__init__(file)
        self._tqdm = imported("tqdm.auto", "notebook", "Progress").tqdm
        self._bar: Any = None

    def begin(self, epoch: str, done: int, steps: int) -> None:
        self._bar = self._tqdm(desc=epoch, initial=done, total=steps, leave=False, file=self._file)

    def step(self, loss: float | None) -> None:
        if loss is not None:
            self._bar.set_postfix(loss=f"{loss:.4g}", refresh=False)
        self._bar.update()

    def say(self, line: str) -> None:
        self.end()
        super().say(line)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class TensorBoardLog(Callback):
    """Writes the figures of epochs, and the loss of some steps, as events that TensorBoard shows.

    All are drawn over steps. A resumed training makes TensorBoard drop what was written after its checkpoint.
    Needs tensorboardX, the extra ``tensorboard``.

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
        first = trainer.steps + 1 if trainer.steps else None
        self._writer = self._library.SummaryWriter(self.folder, purge_step=first)

    def on_step_end(self, trainer: Trainer) -> None:
        if self._writer is not None and self.every is not None and trainer.steps % self.every == 0:
            loss = float(trainer.batch.loss) / max(len(trainer.batch.examples), 1)
            self._writer.add_scalar("step/loss", loss, trainer.steps)
            self._writer.add_scalar("step/lr", trainer.optimizer.lr, trainer.steps)

    def on_epoch_end(self, trainer: Trainer) -> None:
        for name, value in flattened(trainer.figures).items():
            if isinstance(value, int | float):
                self._writer.add_scalar(name, value, trainer.steps)
        self._writer.flush()

    def on_fit_end(self, trainer: Trainer) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


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
        self._batch = trainer.batch

    def on_epoch_end(self, trainer: Trainer) -> None:
        trainer.figures["norms"] = {name: _norm(array) for name, array in trainer.program.params.items()}
        trainer.figures["gradient_norms"] = self._gradient_norms()

    def state(self) -> dict[str, Any]:
        return {"gradient_norms": self._gradient_norms()}

    def load_state(self, state: Mapping[str, Any]) -> None:
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


class Plots(Callback):
    """Draws the curves of all figures, and each confusion matrix of the last epoch, into files.

    They are ``history.png``, and ``validation_confusion.png`` for a matrix of that name. Put it behind
    callbacks that add figures. Needs matplotlib, the extra ``plot``.

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
        self.folder.mkdir(parents=True, exist_ok=True)
        plot_history(trainer.history, self.folder / f"history.{self.ending}")
        for name, value in trainer.figures.items():
            if isinstance(value, list) and value and isinstance(value[0], list):
                plot_confusion(value, self.classes, self.folder / f"{name}.{self.ending}")
