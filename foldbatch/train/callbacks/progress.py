"""Progress: what a person sees of a training: a bar in a terminal or a notebook, lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Any, Protocol

from foldbatch.bars import rich_bars
from foldbatch.engines.pending import Pending
from foldbatch.errors import BackendError, UnknownNameError
from foldbatch.train.callbacks.callback import Callback
from foldbatch.train.callbacks.extras import imported

if TYPE_CHECKING:
    from foldbatch.train.trainer import Trainer

STYLES = ("auto", "bar", "notebook", "lines")


class Shown(Protocol):
    """A way to show progress."""

    def begin(self, epoch: str, done: int, steps: int) -> None:
        """Show that an epoch of so many steps begins; where training is resumed, some are done."""

    def step(self, loss: float | None) -> None:
        """Show that a step is done, with the loss per example if that is known."""

    def say(self, line: str) -> None:
        """Show a line that stays."""

    def end(self) -> None:
        """Leave only lines."""


class Progress(Callback):
    """Shows a line with the figures of each epoch; in a terminal or a notebook also a bar of its steps.

    Put it behind callbacks that add figures.

    Args:
        style: ``"bar"`` for a terminal, ``"notebook"`` for Jupyter, which needs tqdm (``pip install
            'foldbatch[notebook]'``), ``"lines"`` for files and pipes; ``"auto"`` finds out.
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
    epoch 1/2  loss 1  dev_loss 0.25  ... s
    epoch 2/2  loss 0.25  dev_loss 0.0625  ... s
    """

    first_only = True

    def __init__(self, style: str = "auto", *, file: IO[str] | None = None) -> None:
        if style not in STYLES:
            raise UnknownNameError("Progress style", f"one of {', '.join(STYLES)}", repr(style), "try 'auto'")
        if style == "notebook":
            imported("tqdm.auto", "notebook", "Progress")
        self.style = style
        self.file = file
        self._shown: Shown | None = None

    def on_fit_start(self, trainer: Trainer) -> None:
        """Choose a style for where the figures go now."""
        file = sys.stderr if self.file is None else self.file
        style = _style_of(file) if self.style == "auto" else self.style
        makers: dict[str, Callable[[IO[str]], Shown]] = {"bar": _Bar, "notebook": _Notebook, "lines": _Lines}
        self._shown = makers[style](file)

    def on_epoch_start(self, trainer: Trainer) -> None:
        """Begin a bar."""
        if self._shown is not None:
            name = f"epoch {trainer.epoch + 1}/{trainer.epochs}"
            self._shown.begin(name, trainer.position.batches, trainer.batches)

    def on_step_end(self, trainer: Trainer) -> None:
        """Move the bar; a loss on a device is not waited for."""
        if self._shown is not None:
            loss: Any = trainer.batch.loss
            count = max(len(trainer.batch.examples), 1)
            self._shown.step(None if isinstance(loss, Pending) else loss / count)

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Write the line of an epoch."""
        if self._shown is not None:
            self._shown.say(line_of(trainer.figures, trainer.epochs))

    def on_fit_end(self, trainer: Trainer) -> None:
        """Take the bar away, and say why training stopped early."""
        if self._shown is not None:
            if trainer.stopped is not None:
                self._shown.say(f"stopped: {trainer.stopped}")
            self._shown.end()
            self._shown = None


def line_of(figures: Mapping[str, Any], epochs: int) -> str:
    """Return the figures of an epoch as a line; what is no single number is left out.

    >>> line_of({"epoch": 3, "loss": 0.51234, "seconds": 12.34, "dev_f1": {"good": 1.0}}, 10)
    'epoch 3/10  loss 0.5123  12.3 s'
    """
    parts = [f"epoch {figures['epoch']}/{epochs}"]
    for name, value in figures.items():
        if name not in ("epoch", "seconds") and isinstance(value, int | float):
            parts.append(f"{name} {value:.4g}")
    return "  ".join([*parts, f"{figures['seconds']:.1f} s"] if "seconds" in figures else parts)


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


class _Lines:
    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def begin(self, epoch: str, done: int, steps: int) -> None:
        pass

    def step(self, loss: float | None) -> None:
        pass

    def say(self, line: str) -> None:
        print(line, file=self._file, flush=True)

    def end(self) -> None:
        pass


class _Bar:
    """A bar by rich, below the lines of past epochs."""

    def __init__(self, file: IO[str]) -> None:
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


class _Notebook:
    """A bar by tqdm."""

    def __init__(self, file: IO[str]) -> None:
        self._tqdm = imported("tqdm.auto", "notebook", "Progress").tqdm
        self._file = file
        self._bar: Any = None

    def begin(self, epoch: str, done: int, steps: int) -> None:
        self._bar = self._tqdm(desc=epoch, initial=done, total=steps, leave=False, file=self._file)

    def step(self, loss: float | None) -> None:
        if loss is not None:
            self._bar.set_postfix(loss=f"{loss:.4g}", refresh=False)
        self._bar.update()

    def say(self, line: str) -> None:
        self.end()
        print(line, file=self._file, flush=True)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
