"""Agreement: all ranks learn what differs, and where."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.communicators import Alone, in_threads
from foldbatch.errors import TrainingError
from foldbatch.train.contents import digests
from foldbatch.train.facts import text_of
from foldbatch.train.parallel.agreement import check_alike


def differences(facts, rows=lambda rank: {}, ranks=3):
    """What each rank is told; they are all told the same."""

    def work(communicator):
        with pytest.raises(TrainingError) as error:
            check_alike(communicator, facts(communicator.rank), rows(communicator.rank))
        return str(error.value)

    (told,) = set(in_threads(work, ranks))
    assert told.startswith("training: expected all ranks to have the same, found ")
    return told.partition(", found ")[2].partition("; give")[0]


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (lambda rank: {"a": "1", "lr": str(rank == 1)}, "lr False at ranks 0 and 2, True at rank 1"),
        (lambda rank: {"lr": str(rank)}, "lr 0 at rank 0, 1 at rank 1, 2 at rank 2"),
        (lambda rank: {"lr": "1"} if rank else {}, "lr none at rank 0, 1 at ranks 1 and 2"),
        (lambda rank: {"w": text_of(np.full(2, rank == 2))}, "another w at rank 2 than at rank 0"),
        (
            lambda rank: {name: str(rank) for name in "abcde"},
            ", and ".join(f"{n} 0 at rank 0, 1 at rank 1, 2 at rank 2" for n in "abc")
            + ", and 2 differences more",
        ),
    ],
)
def test_facts_that_differ_are_named(facts, told):
    assert differences(facts) == told


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (lambda rank: [1, 2, 3 + (rank == 1)], "other examples at rank 1 from number 2 on"),
        (lambda rank: [1, rank, 3], "other examples at rank 1 from number 1 on, at rank 2 from number 1 on"),
        (lambda rank: [1] * (2 + (rank == 2)), "number of examples 2 at ranks 0 and 1, 3 at rank 2"),
    ],
)
def test_rows_that_differ_are_numbered(rows, told):
    assert differences(lambda rank: {}, lambda rank: {"examples": digests(rows(rank))}) == told


def test_ranks_that_agree_go_on():
    in_threads(lambda communicator: check_alike(communicator, {"a": "1"}, {"examples": digests([1])}), 3)
    check_alike(Alone(), {"a": "1"})
