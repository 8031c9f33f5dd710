"""Ranks that are threads: none is left waiting."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.communicators import Alone, in_threads
from foldbatch.errors import ProcessError


def test_the_error_of_a_rank_is_raised_not_those_that_it_caused():
    def work(communicator):
        if communicator.rank == 2:
            raise KeyError("a word")
        communicator.all_gather(np.zeros(1, np.uint8))

    with pytest.raises(KeyError, match="a word"):
        in_threads(work, 3)


def test_aborting_says_why():
    def work(communicator):
        if communicator.rank:
            communicator.abort("no memory")
        with pytest.raises(ProcessError, match="rank 0 of 2: .* found a rank that ended"):
            communicator.all_gather(np.zeros(1, np.uint8))

    with pytest.raises(ProcessError, match="rank 1 of 2: .* found no memory"):
        in_threads(work, 2)
    with pytest.raises(ProcessError, match="found no memory"):
        Alone().abort("no memory")
