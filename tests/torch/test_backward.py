"""A held batch as a function of PyTorch."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from foldbatch.params import Parameter

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'foldbatch[torch]'")

from foldbatch.torch.backward import as_tensor, settle  # noqa: E402


def test_tensors_share_memory_that_can_be_written():
    array = np.arange(3.0)
    assert np.shares_memory(as_tensor(array).numpy(), array)
    array.flags.writeable = False
    assert not np.shares_memory(as_tensor(array).numpy(), array)


def test_parameters_come_home_before_an_optimizer_writes_to_them():
    """On a device the array is stale: what would be added to it would be lost."""

    class Away:
        def __init__(self):
            self.lock = threading.Lock()

        def read_into(self, array):
            array[...] = 7

    parameter = Parameter([2], 0.0)
    view = torch.from_numpy(parameter.value)
    parameter.take_away(Away())
    settle([parameter])
    assert view.tolist() == [7, 7]
    view += 1
    assert parameter.value.tolist() == [8, 8]
