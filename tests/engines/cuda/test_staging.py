"""Blocks in turns: nothing is overwritten that the device, or a copy, may still need."""

import pytest

from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.recording.calls import count
from foldbatch.engines.cuda.recording.faults import faults
from foldbatch.engines.cuda.recording.nothing import Nothing
from foldbatch.engines.cuda.recording.recorder import Recorder
from foldbatch.engines.cuda.staging import Staging


def batches(sizes, computed=True):
    """Send batches of so many bytes, each of which a kernel reads; and return the record."""
    driver = Recorder(Nothing())
    device = Device(driver)
    staging, kernel = Staging(device), driver.load("").function("kernel")
    for number, size in enumerate(sizes):
        scratch = device.empty((10,), "float32")
        block = staging.next(size)
        block.host[:size] = number
        staging.send(block, size)
        if computed:
            device.launch(kernel, 1, (1, 1), (), reads=[block.device], writes=[scratch])
            staging.done(block)
        del scratch
    device.synchronize()  # the blocks are freed here
    return driver


@pytest.mark.parametrize("sizes", [[5], [5] * 6, [10, 5, 300, 5, 1000, 2000, 300, 300], [300, 5, 300, 5]])
def test_batches_of_any_sizes_have_no_fault(sizes):
    """A new block may be memory that earlier batches, which are not done, have freed."""
    assert faults(batches(sizes).finish()) == []


def test_a_batch_that_failed_leaves_no_fault_behind():
    assert faults(batches([5] * 6, computed=False).finish()) == []


def test_batches_of_one_size_take_no_new_memory():
    few, many = (count(batches([100] * number).calls) for number in (2, 8))
    assert many.allocations - few.allocations == 6  # of the test
    assert many.copies_in == 8
