"""Walking the launch table in Python."""

from __future__ import annotations

from collections.abc import Sequence

from foldbatch.engines.launch import HEAD, LaunchTable
from foldbatch.engines.numpy.kernel import Function
from foldbatch.engines.ranges import OutOfRangeError
from foldbatch.params.parameters import Array


def run(table: LaunchTable, kernels: Sequence[Function], buffers: Sequence[Array]) -> None:
    """Run the launches of a table, in order.

    Raises:
        OutOfRangeError: with the number of the launch in which an id was out of range.
    """
    bounds, index = table.bounds, table.index
    for launch, row in enumerate(table.launches.tolist()):
        kernel, first, stop = row[:HEAD]
        try:
            kernels[kernel](bounds[first:stop], row, index, buffers)
        except OutOfRangeError as error:
            error.launch = launch
            raise
