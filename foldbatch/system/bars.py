"""Bars: how far a long task is, in a terminal."""

import sys
import time
from importlib import import_module
from typing import IO, Any, Self

PATIENCE = 1.0  # seconds after which a task is long


def rich_bars(file: IO[str]) -> Any:
    """Return bars by rich (a `rich.progress.Progress`), which vanish at the end."""
    rich = import_module("rich.progress")  # here, since it takes long to import
    counts, clock = rich.MofNCompleteColumn(), rich.TimeElapsedColumn()
    console = import_module("rich.console").Console(file=file)
    columns = ("{task.description}", rich.BarColumn(), counts, clock)
    return rich.Progress(*columns, console=console, transient=True)


class Bar:
    """A bar that a task moves; it appears in a terminal, once the task has taken a while.

    >>> with Bar("tracing", total=2, shown=True) as bar:
    ...     bar.advance(2)
    """

    def __init__(self, title: str, total: int, *, shown: bool, file: IO[str] | None = None) -> None:
        self._file = sys.stderr if file is None else file
        self._shown = shown and self._file is not None and self._file.isatty()
        self._title, self._total, self._done = title, total, 0
        self._begun = time.monotonic()
        self._bars: Any = None

    def advance(self, steps: int) -> None:
        """Count steps that are done."""
        self._done += steps
        if self._shown and self._bars is None and time.monotonic() - self._begun > PATIENCE:
            self._bars = rich_bars(self._file)
            self._bars.start()
            self._task = self._bars.add_task(self._title, total=self._total)
        if self._bars is not None:
            self._bars.update(self._task, completed=self._done)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bars is not None:
            self._bars.stop()
