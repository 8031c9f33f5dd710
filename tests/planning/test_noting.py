"""Calls of walks: loops find the wires, and pack the columns, that an oracle in NumPy does."""

import os
from typing import Any

import numpy as np
import pytest

from foldbatch.planning.compiled import PLAIN, Loops, loops
from foldbatch.planning.noting import Noting
from tests.planning import noted

WALKS = int(os.environ.get("FOLDBATCH_TRACES") or 50)


def plain(part: Any) -> Any:
    return part.tolist() if isinstance(part, np.ndarray) else [plain(x) for x in part]


@pytest.fixture(params=["compiled", "plain"])
def by(request: pytest.FixtureRequest) -> Loops:
    return loops() if request.param == "compiled" else PLAIN


def test_new_wires_and_calls_to_be_refused_are_the_oracles(by: Loops) -> None:
    """A call is refused that reads a value of another example, or a later one, or none at all."""
    kinds = set()
    for seed in range(6 * WALKS):
        rng = np.random.default_rng(seed)
        walked = noted.random_walks(rng)
        if seed % 2:
            noted.spoilt(walked, rng)
        noting, calls = Noting(walked.called), walked.calls(start=7)
        before, found = noting.table.copy(), noting.new_wires(by.learn, calls)
        assert found.refused == noted.misread(walked), seed
        kinds.add(found.refused is None)
        if found.refused is None:
            assert {*found.wires} == noted.wires_of(walked) - walked.known, seed
            assert len({*found.wires}) == len(found.wires), seed
            assert found.outputs.tolist() == noted.owners(walked).tolist(), seed
        assert np.array_equal(noting.table, before), "the tables are as they were"
    assert kinds == {True, False}


def test_columns_are_the_oracles(by: Loops) -> None:
    """None where a wire is new, or a value in a result is of an output that no result has had."""
    packed = 0
    for seed in range(6 * WALKS):
        rng = np.random.default_rng(seed)
        walked = noted.random_walks(rng)
        owners = noted.owners(walked)
        seen = [n for n in np.flatnonzero(owners >= 0).tolist() if rng.random() < 0.1]
        noting = Noting(walked.called, walked.kept, walked.in_results)
        arguments = [n + 7 for n in seen], [n + 7 for n in walked.visits]
        found = noting.columns(by.noted, walked.calls(start=7), *arguments)
        known = noted.wires_of(walked) <= walked.known
        assert (found is not None) == (known and {*owners[seen].tolist()} <= {*walked.in_results}), seed
        if found is not None:
            packed += 1
            expected = noted.columns(walked)
            for name in ("calls", "elements", "counts", "lengths", "offsets", "new"):
                assert plain(getattr(found, name)) == plain(getattr(expected, name)), (seed, name)
    assert packed > WALKS
