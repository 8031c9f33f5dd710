"""The status of a batch: sums of losses, ids out of range, and who is told."""

from contextlib import contextmanager

import numpy as np
import pytest

from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.forms import STATUS_WORDS
from foldbatch.engines.cuda.row_texts import claim_of
from foldbatch.engines.cuda.run import Status
from foldbatch.engines.launch import OutOfRangeError
from tests.engines.cuda.emulator import Emulator


@pytest.fixture
def device() -> Device:
    return Device(Emulator())


def found(cell: int, size: int, rank: int, id: int) -> list[int]:
    """Return the words by which kernels tell of an id: see ``earliest`` in `device.h`."""
    return [claim_of(cell, size), (2**31 - 1 - rank) << 32 | (2**31 - 1 - id)]


def told(device: Device, numbers: list[int], losses: list[float]) -> Status:
    """Return the status of a batch that wrote numbers, and sums of losses."""
    status = Status(device, len(losses))
    words = np.zeros(STATUS_WORDS + len(losses), np.int64)
    words[: len(numbers)] = numbers
    words[STATUS_WORDS:] = np.array(losses, np.float64).view(np.int64)
    device.write(status.word, words)
    status.send()
    return status


def test_losses_are_read_when_somebody_asks(device):
    status = told(device, [], [1.5, -2.25])
    assert [status.loss(0), status.loss(1)] == [1.5, -2.25]
    status.check()


def test_an_id_out_of_range_is_an_error_of_each_look(device):
    status = told(device, found(cell=2, size=10, rank=4, id=-7), [0.0])
    for look in (status.look, status.check, lambda: status.loss(0), lambda: status.loss(0)):
        with pytest.raises(OutOfRangeError) as caught:
            look()
        error = caught.value
        assert (error.cell, error.rank, error.id, error.size) == (2, 4, -7, 10)


def test_the_rank_is_that_of_the_batch_where_a_class_has_room_between(device):
    status = told(device, found(cell=1, size=10, rank=34, id=-7), [0.0])
    status._ranks = [np.zeros(0, np.int64), np.array([0, 1, 32, 33, 34])]
    with pytest.raises(OutOfRangeError) as caught:
        status.look()
    assert caught.value.rank == 4


def test_errors_are_raised_within_what_may_change_them(device):
    @contextmanager
    def within():
        try:
            yield
        except OutOfRangeError as error:
            raise ValueError(f"cell {error.cell}") from None

    status = told(device, found(cell=1, size=3, rank=0, id=5), [0.0])
    status.within = within
    with pytest.raises(ValueError, match="cell 1"):
        status.loss(0)
    with pytest.raises(ValueError, match="cell 1"):
        status.check()
