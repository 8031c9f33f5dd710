"""Naming: errors of ids out of range become errors that name the example."""

from __future__ import annotations

from dataclasses import dataclass

from foldbatch.engines.batch import Batch
from foldbatch.engines.ranges import OutOfRangeError
from foldbatch.errors import ExampleError
from foldbatch.model.model import Model


@dataclass(frozen=True, slots=True)
class Naming:
    """A context that changes errors of ids out of range into errors that name examples; calling it yields it.

    Raises:
        ExampleError: in the place of an `OutOfRangeError`.
    """

    model: Model
    batch: Batch  # what runs
    first: int  # the example that it begins with

    def __call__(self) -> Naming:
        """Return the context itself."""
        return self

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Change an error, if there is one."""
        if isinstance(error, OutOfRangeError):
            example = self.first + int(self.batch.schedule.cells[error.cell].examples[error.rank])
            where = f"{self.model.cells[error.cell].name} at example {example}"
            fix = "correct what computes the id"
            raise ExampleError(where, f"ids from 0 to {error.size - 1}", str(error.id), fix) from None
