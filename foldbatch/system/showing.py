"""How results show themselves: as text and tables where they are printed, in notebooks, as pictures."""

import inspect
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from html import escape
from importlib import import_module
from os import PathLike
from typing import IO, Any, Self, TypeAlias

from foldbatch.system.closed import Closed

MAX_REPR = 60  # characters of a block's repr in an error
PRINTED = 12  # blocks printed at most: then the repr is longer than an error shows


class Printed:
    """An object that a notebook shows as `print` does, instead of by a `repr` of one line."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


class Drawing(str):
    """A picture as text, SVG or a page of HTML, which a notebook shows as a picture."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return str(self)


def arguments_of(function: Any) -> inspect.Signature:
    """Return the signature of a function, whose annotations may have names that are not defined yet.

    From Python 3.14 on they are evaluated when somebody asks.

    >>> arguments_of(lambda x, *, y: x)
    <Signature (x, *, y)>
    """
    if sys.version_info < (3, 14):
        return inspect.signature(function)
    lazy = import_module("annotationlib").Format.FORWARDREF
    return inspect.signature(function, annotation_format=lazy)


class Described(Closed):
    """An object that is made with settings: its `repr` has those that differ from the defaults.

    >>> class Rate(Described):
    ...     def __init__(self, first: float, every: int = 1) -> None:
    ...         self.first, self.every = first, every
    >>> Rate(0.5), Rate(0.5, every=3)
    (Rate(0.5), Rate(0.5, every=3))
    """

    def __repr__(self) -> str:
        shown = []
        for name, parameter in arguments_of(type(self)).parameters.items():
            value = getattr(self, name, getattr(self, f"_{name}", parameter.default))
            if parameter.default is parameter.empty and isinstance(value, str | int | float | PathLike):
                shown.append(repr(str(value) if isinstance(value, PathLike) else value))
            elif isinstance(value, str | int | float | dict) and value not in ({}, parameter.default):
                shown.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "", left_columns: int = 1
) -> str:
    """Return a table as text: so many columns to the left, the others to the right.

    >>> print(table(("name", "count"), [("a", "10"), ("longer", "7")], title="Sizes"))
    Sizes
    name    count
    a          10
    longer      7
    """
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = [title] if title else []
    for line in lines:
        cells = [
            cell.ljust(width) if number < left_columns else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        texts.append("  ".join(cells).rstrip())
    return "\n".join(texts)


Bars: TypeAlias = Any  # a `rich.progress.Progress`
BAR_DELAY = 1.0  # seconds after which a task is long


def rich_bars(file: IO[str]) -> Bars:
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
        self._title, self._total, self._advanced = title, total, 0
        self._begun = time.monotonic()
        self._bars: Bars = None

    def advance(self, steps: int) -> None:
        """Count steps that are done."""
        self._advanced += steps
        if self._shown and self._bars is None and time.monotonic() - self._begun > BAR_DELAY:
            self._bars = rich_bars(self._file)
            self._bars.start()
            self._task = self._bars.add_task(self._title, total=self._total)
        if self._bars is not None:
            self._bars.update(self._task, completed=self._advanced)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bars is not None:
            self._bars.stop()


class _Printing(threading.local):
    remaining: int | None = None  # blocks that may still be printed; None: all of them


_printing = _Printing()


def shown(block: object) -> str:
    """Return a block's `repr` for errors: its kind alone where it is long.

    >>> shown(1), shown("long" * 20)
    ('1', 'str(...)')
    """
    outer, _printing.remaining = _printing.remaining, PRINTED
    try:
        text = repr(block)
        cut = _printing.remaining < 0
    finally:
        _printing.remaining = outer
    return f"{type(block).__name__}(...)" if cut or len(text) > MAX_REPR else text


def exceeds_message() -> bool:
    """Count one more block as printed; return whether these are too many for an error message.

    Every block's `repr` asks first.
    """
    if _printing.remaining is None:
        return False
    _printing.remaining -= 1
    return _printing.remaining < 0
