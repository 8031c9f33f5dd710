"""Watching: which kernels of a batch ran when, for a timeline. Who watches nothing pays nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foldbatch.timelines import Span


class Watch:
    """Collects spans of time while batches run; this one is for engines that have no kernels."""

    note = "of the host"  # where the times come from

    def watched(self, ready: Any, part: int) -> object:
        """Return a ready part of a batch in a form that times its kernels."""
        return ready

    def spans(self) -> Sequence[Span]:
        """Wait until all is done, and return what ran."""
        return ()


def named(bound: Any, kernel: int) -> tuple[str, str]:
    """Return the name of a kernel of a `foldbatch.engines.bindings.Bound`, and that of its cell.

    An engine may have more kernels than the model has stages: those that are not of one cell alone.
    """
    if kernel >= len(bound.keys):
        return "products of known rows", ""
    cell = bound.model.cells[bound.keys[kernel].cell].name
    return f"{cell} {bound.routines[kernel].name}", cell
