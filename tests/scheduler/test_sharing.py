"""Calls with equal data share a rank; nothing is lost and order is kept."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.scheduler.sharing import share


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2)), min_size=1, max_size=30))
def test_groups_are_exactly_the_calls_that_agree(rows: list[tuple[int, int]]) -> None:
    """Two calls share a group when, and only when, all their data agree."""
    columns = [np.array(column, np.int32) for column in zip(*rows, strict=True)]
    sharing = share(columns, len(rows))
    if sharing is None:
        assert len(set(rows)) == len(rows)
        return
    groups = [
        sharing.order[a:b].tolist() for a, b in zip(sharing.copies[:-1], sharing.copies[1:], strict=True)
    ]
    assert sorted(call for group in groups for call in group) == list(range(len(rows)))
    assert len(groups) == len(set(rows))
    for group in groups:
        assert len({rows[call] for call in group}) == 1
        assert group == sorted(group)
    assert sharing.representatives.tolist() == [group[0] for group in groups]


def test_calls_without_data_are_all_alike() -> None:
    """A cell of constants runs once a batch."""
    sharing = share([], 4)
    assert sharing is not None
    assert sharing.copies.tolist() == [0, 4]


def test_equal_words_are_embedded_once_and_their_gradients_summed() -> None:
    """Sharing changes how many rows run, not a single gradient."""
    table = fb.Embedding(5, 3, dtype="float64")
    ids = fb.Map(fb.Scalar("int32") >> table >> fb.Function(fb.ops.tanh))
    total = fb.Function(lambda rows: fb.ops.sum(fb.ops.square(fb.ops.segment_sum(rows)))) >> fb.Loss()
    model = ids >> total
    batch = [[1, 2, 1, 1], [4, 1], []]
    program = fb.compile(model, debug=True)
    report = program.describe(batch)
    assert report.cells[0].calls == 6
    assert report.cells[0].rows == (3,)
    shared = program.value_and_grad(batch)
    alone = fb.compile(model, backend="reference").value_and_grad(batch)
    assert np.isclose(shared[0], alone[0], rtol=1e-12)
    gradients = [
        g.dense() if isinstance(g, fb.SparseRows) else g
        for g in (shared[1]["embedding.weight"], alone[1]["embedding.weight"])
    ]
    np.testing.assert_allclose(*gradients, rtol=1e-12)
