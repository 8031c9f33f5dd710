"""Sums over ranks: in the order of ranks, of all dtypes and shapes, and with few bytes."""

from __future__ import annotations

import numpy as np

from foldbatch.communicators import in_threads
from foldbatch.params import SparseRows
from foldbatch.train.parallel.exchange import counts_of, summed

SIZE = 3
rng = np.random.default_rng(0)
DENSE = rng.normal(size=(SIZE, 7, 5)).astype(np.float32)
TINY = rng.normal(size=(SIZE,))  # scalars of float64, of which some ranks' slices are empty


def rows_of(rank):
    rows = np.flatnonzero(rng_of(rank).random(10) < [0.0, 0.4, 0.9][rank])
    return SparseRows(rows, rng_of(rank).normal(size=(len(rows), 3)).astype(np.float32), (10, 3))


def rng_of(rank):
    return np.random.default_rng(10 + rank)


def exchanged(communicator, *, mixed=False):
    rank = communicator.rank
    rows = rows_of(rank)
    gradients = {"words": rows.dense() if mixed and rank == 1 else rows, "dense": DENSE[rank]}
    gradients["scale"] = np.array(TINY[rank])
    counts = communicator_counts(communicator, gradients)
    return summed(communicator, gradients, counts)


def communicator_counts(communicator, gradients):
    own = np.array(counts_of(gradients))
    return [tuple(part.view(np.int64)) for part in communicator.all_gather(own.view(np.uint8))]


def test_sums_are_those_in_the_order_of_ranks_to_the_bit():
    for sums, _ in in_threads(exchanged, SIZE):
        np.testing.assert_array_equal(sums["dense"], DENSE[0] + DENSE[1] + DENSE[2])
        assert sums["scale"] == TINY[0] + TINY[1] + TINY[2] and sums["scale"].shape == ()
        assert isinstance(sums["words"], SparseRows) and list(sums) == ["words", "dense", "scale"]
        dense = [rows_of(rank).dense() for rank in range(SIZE)]
        np.testing.assert_array_equal(sums["words"].dense(), dense[0] + dense[1] + dense[2])
        touched = set().union(*(rows_of(rank).rows for rank in range(SIZE)))
        assert set(sums["words"].rows) == touched


def test_a_table_is_dense_where_it_is_on_one_rank():
    for sums, _ in in_threads(lambda communicator: exchanged(communicator, mixed=True), SIZE):
        dense = [rows_of(rank).dense() for rank in range(SIZE)]
        np.testing.assert_array_equal(sums["words"], dense[0] + dense[1] + dense[2])


def test_a_rank_sends_less_than_twice_the_dense_gradients():
    numbers = 10_000

    def work(communicator):
        gradients = {"w": np.full(numbers, communicator.rank, np.float32)}
        return summed(communicator, gradients, [(-1,)] * communicator.size)[1]

    assert in_threads(work, 2) == [4 * numbers] * 2
    assert all(sent < 2 * 4 * numbers + 64 for sent in in_threads(work, 5))


def test_rows_are_sent_once_to_each_other_rank():
    def work(communicator):
        gradient = SparseRows(np.arange(6), np.ones((6, 3), np.float32), (1000, 3))
        return summed(communicator, {"w": gradient}, [(6,)] * communicator.size)[1]

    assert in_threads(work, 3) == [2 * 6 * (8 + 12)] * 3
