"""Shares: each example of a batch runs on one rank, planned ahead or not."""

from __future__ import annotations

import pytest

import foldbatch as fb
from foldbatch.communicators import Alone, in_threads
from foldbatch.engines.planned import Planned
from foldbatch.train import DataParallel
from foldbatch.train.shares import shares

EXAMPLES = [[1.0] * n for n in (5, 1, 2, 2, 4)]
BATCHES = [[4, 0, 1], [2, 3]]
SUM = fb.Map(fb.Scalar()) >> fb.Sum()


def parallel(communicator):
    return DataParallel(fb.compile(SUM, "numpy"), communicator)


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_process_alone_runs_whole_batches(ahead):
    made = list(shares(parallel(Alone()), EXAMPLES, BATCHES, ahead))
    assert [(share.batch.indices, share.places, share.indices) for share in made] == [
        ([4, 0, 1], None, [4, 0, 1]),
        ([2, 3], None, [2, 3]),
    ]
    assert [len(share.part) for share in made] == [3, 2]
    assert all(isinstance(share.part, Planned) == bool(ahead) for share in made)


@pytest.mark.parametrize("ahead", [0, 1])
def test_ranks_run_every_example_once(ahead):
    def work(communicator):
        program = parallel(communicator)
        made = list(shares(program, EXAMPLES, BATCHES, ahead))
        lengths = [[float(x) for x in program.program.run(share.part)] for share in made]
        assert lengths == [[float(len(EXAMPLES[i])) for i in share.indices] for share in made]
        return [share.indices for share in made]

    assert in_threads(work, 2) == [[[0], [2]], [[4, 1], [3]]]
