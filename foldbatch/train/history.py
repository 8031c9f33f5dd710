"""The history of a training: the figures of its epochs, which draw themselves."""

import base64
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from foldbatch.errors import UnknownNameError, with_nearest
from foldbatch.system.showing import table
from foldbatch.train.metrics import flattened
from foldbatch.views import plots

BEFORE = "validation_averaged_", "validation_"  # begin names of figures that stand beside those of training
MAX_LINES = 20  # epochs that a notebook lists


class History(list[dict[str, Any]]):
    """The figures of all epochs, a dict each: a list that a notebook shows as curves and a table.

    >>> history = History([{"epoch": 1, "loss": 2.0, "seconds": 0.1}, {"epoch": 2, "loss": 1.0}])
    >>> history[-1]["loss"], history.groups()
    (1.0, {'loss': ['loss']})
    """

    def groups(self) -> dict[str, list[str]]:
        """Return the names of figures that are numbers, by the name of those that share axes.

        A figure of the validation set stands beside that of training: ``validation_loss`` beside ``loss``.
        """
        grouped: dict[str, list[str]] = {}
        rows = [flattened(figures) for figures in self]
        for name in dict.fromkeys(
            name for row in rows for name, x in row.items() if isinstance(x, int | float)
        ):
            if name not in ("epoch", "seconds"):
                beginning = next((part for part in BEFORE if name.startswith(part)), "")
                title = name.removeprefix(beginning).partition("/")[0]
                grouped.setdefault(title, []).append(name)
        return grouped

    def plot(self, *names: str) -> plots.Plot:
        """Return the curves of figures over epochs; a notebook shows them, and `Plot.save` writes them.

        Args:
            names: of figures, such as ``"loss"``, with those of the validation set; by default all.

        Raises:
            UnknownNameError: when there is no figure of a name, or none at all.
            BackendError: when matplotlib is not installed.
        """
        groups = self.groups()
        for name in names or ("loss",):
            if name not in groups and (names or not groups):
                expected = f"a figure of {', '.join(groups) or 'an epoch'}"
                actual = with_nearest(name, groups) if groups else "no epochs"
                raise UnknownNameError("plot", expected, actual, "" if groups else "fit first")
        rows = [flattened(figures) for figures in self]
        lines = {
            title: {
                name: plots.shown_points((row["epoch"], row[name]) for row in rows if name in row)
                for name in members
            }
            for title, members in groups.items()
            if not names or title in names
        }
        return plots.curves(lines, "epoch")

    def text(self) -> str:
        """Return the figures that are numbers as a table, a line for each of the last epochs."""
        rows: Sequence[Mapping[str, Any]] = [flattened(figures) for figures in self[-MAX_LINES:]]
        columns = list(dict.fromkeys(name for row in rows for name in row))
        lines = [[_shown(row.get(name, "")) for name in columns] for row in rows]
        return table(columns, lines) if columns else "no epochs"

    def _repr_html_(self) -> str:
        """Return curves, where there are some and matplotlib, and a table."""
        shown = f"<pre>{escape(self.text())}</pre>"
        if self.groups() and plots.is_installed():
            data = base64.b64encode(self.plot().content("png")).decode()
            shown = f'<img src="data:image/png;base64,{data}" alt="curves of training">' + shown
        return shown


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
