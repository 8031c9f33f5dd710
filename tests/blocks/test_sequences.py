"""Map, Zip, NGrams and Length, over everything that is a sequence, in sequences of sequences and of tuples."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from tests.blocks.results import yields

ONE = fb.Scalar()
TWICE = fb.Function(lambda x: x * 2)
NUMBERS = fb.Map(ONE)


# -- sequences of sequences


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_ngrams_are_all_neighbours_and_none_where_there_are_fewer(n):
    def neighbours(xs):
        return [tuple(xs[i : i + n]) for i in range(len(xs) - n + 1)]

    lists = [list(map(float, range(length))) for length in range(6)]
    yields(NUMBERS >> fb.NGrams(n), *((xs, neighbours(xs)) for xs in lists))
    yields(fb.NGrams(n), *((xs, neighbours(xs)) for xs in ["", "a", "ab", "abcdef"]))
    pairs = fb.Map((ONE, fb.Void(), fb.Identity())) >> fb.NGrams(n)
    given = [(k, 0, str(k)) for k in range(4)]
    yields(pairs, (given, neighbours([(float(k), None, text) for k, _, text in given])))
    yields(fb.Record((ONE,) * 3) >> fb.NGrams(n), ([0, 1, 2], neighbours([0.0, 1.0, 2.0])))


def test_ngrams_of_an_iterator_are_its_neighbours():
    assert fb.NGrams(2).eval(iter("abc")) == [("a", "b"), ("b", "c")]


def test_sequences_are_wiring_and_cost_no_level_beyond_their_blocks():
    apart = fb.AllOf(NUMBERS, NUMBERS) >> fb.Zip()
    for block in (
        NUMBERS,
        apart,
        NUMBERS >> fb.NGrams(2),
        fb.Length(),
        fb.AllOf(NUMBERS, np.float32(1) >> fb.Broadcast()) >> fb.Zip(),
    ):
        assert block.max_depth([1, 2, 3]) == 0
    assert fb.Map(ONE >> TWICE).max_depth(range(9)) == 1
    assert (NUMBERS >> fb.Map(TWICE) >> fb.Map(TWICE)).max_depth(range(9)) == 2
    assert (apart >> fb.Map(fb.Function(ops.add))).max_depth(range(9)) == 1
