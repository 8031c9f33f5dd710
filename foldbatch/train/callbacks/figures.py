"""Figures that callbacks watch: finding one by name, comparing it with the best one, flattening all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from foldbatch.errors import TrainingError, UnknownNameError, with_nearest

Mode = Literal["min", "max"]


def flattened(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return figures with those by class on their own; what is no single number or text is left out.

    >>> flattened({"loss": 0.5, "dev_f1": {"bad": 1.0, "good": 0.5}, "dev_confusion": [[1, 0], [0, 1]]})
    {'loss': 0.5, 'dev_f1/bad': 1.0, 'dev_f1/good': 0.5}
    """
    flat: dict[str, Any] = {}
    for name, value in figures.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}/{key}": entry for key, entry in flattened(value).items()}
        elif isinstance(value, int | float | str):
            flat[name] = value
    return flat


def figure_of(where: str, figures: Mapping[str, Any], name: str) -> float:
    """Return a figure by name; one by class is named ``FIGURE/CLASS``.

    Raises:
        UnknownNameError: when there is no such number.

    >>> figure_of("EarlyStopping", {"dev_f1": {"good": 0.5}}, "dev_f1/good")
    0.5
    """
    flat = flattened(figures)
    if not isinstance(flat.get(name), int | float):
        fix = "figures that begin with dev_ need fit(examples, dev)"
        raise UnknownNameError(where, f"a figure of {', '.join(flat)}", with_nearest(name, flat), fix)
    return float(flat[name])


def check_mode(where: str, mode: str) -> None:
    """Raise `TrainingError` for a mode other than ``min`` and ``max``."""
    if mode not in ("min", "max"):
        raise TrainingError(where, "'min' or 'max'", repr(mode), "'min' is for losses, 'max' for accuracies")


def is_better(value: float, best: float | None, mode: str, margin: float = 0.0) -> bool:
    """Return whether a figure is better than the best one by more than a margin; NaN never is.

    >>> is_better(0.5, None, "min"), is_better(0.5, 0.55, "min", 0.1), is_better(0.7, 0.5, "max", 0.1)
    (True, False, True)
    """
    if math.isnan(value):
        return False
    return best is None or (value < best - margin if mode == "min" else value > best + margin)
