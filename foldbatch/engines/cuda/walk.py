"""Walking the steps of a direction: each is enqueued on the compute stream, with its batch's addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.drivers.driver import Function, MatrixProduct
from foldbatch.engines.cuda.steps import LaunchStep


class StepWalker:
    """Runs the steps of some kernels.

    Args:
        device: where.
        functions: the compiled kernels, by name.
    """

    def __init__(self, device: Device, functions: Mapping[str, Function]) -> None:
        self._device = device
        self._functions = functions

    def run(self, steps: Sequence[LaunchStep], table: int, addresses: Sequence[int]) -> None:
        """Enqueue steps.

        Args:
            steps: what to run.
            table: where the packed table lies.
            addresses: of the batch's buffers.
        """
        driver, stream, functions = self._device.driver, self._device.stream, self._functions
        for step in steps:
            task = step.task
            if task.multiplied is not None:
                driver.multiply(product_of(step, addresses), stream)
            else:
                driver.launch(
                    functions[task.name], step.blocks, task.threads, (table, *step.arguments), stream
                )


def product_of(step: LaunchStep, addresses: Sequence[int]) -> MatrixProduct:
    """Return the product that a step is."""
    p = step.task.multiplied
    assert p is not None
    m, k, count = step.extents
    a, b, c = (addresses[buffer] + offset for buffer, offset in step.matrices)
    leads = p.a.lead, p.b.lead, p.c.lead
    return MatrixProduct(
        p.dtype, m, p.n, k, a, b, c, *leads, p.a.across, p.b.across, step.adds, count, *p.steps
    )
