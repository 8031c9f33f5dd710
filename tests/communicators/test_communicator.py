"""What the communicators of one process do."""

from __future__ import annotations

import pytest

from foldbatch.communicators import Alone, Communicator, in_threads
from tests.communicators.checks import check


@pytest.mark.parametrize("size", [1, 2, 5])
def test_ranks_exchange_bytes_in_the_order_of_ranks(size):
    in_threads(check, size)
    communicator: Communicator = Alone()
    check(communicator)
