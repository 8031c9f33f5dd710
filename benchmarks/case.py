"""`Case`: one benchmark as plain data, which the command gives options, runs, prints, draws and writes.

To add one, write a module with these functions and name its case in `benchmarks.command`.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType

Figure = Any  # matplotlib.figure.Figure; matplotlib is optional


@dataclass(frozen=True, slots=True)
class Case:
    """A benchmark; the functions hand its outcome, of whatever type, from one to the next.

    Attributes:
        name: by which the command calls it.
        summary: one line of help.
        add_arguments: adds its options to its parser; ``--json`` and ``--plot`` are there already.
        run: measures; raises `FoldbatchError` or `OSError` for what the user can mend.
        tables: what is printed, in order: tables and text.
        as_dict: the outcome as plain data that JSON can hold; ``case`` and ``machine`` are added to it.
        figure: the outcome as a picture; called only where matplotlib is installed.
    """

    name: str
    summary: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], Any]
    tables: Callable[[Any], Sequence[RenderableType]]
    as_dict: Callable[[Any], dict[str, Any]]
    figure: Callable[[Any], Figure]
