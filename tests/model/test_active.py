"""Where gradients flow: downstream of sources, upstream of losses, through recursions, and nowhere else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foldbatch.model.active import acted_on, acting_on, active_ends
from foldbatch.static.cellgraph import CellGraph
from foldbatch.static.graph import input_node
from foldbatch.types import TensorType

FLOAT, INT = TensorType(()), TensorType((), "int32")


def a_cell(operands: list[TensorType], outputs: list[TensorType], losses: int = 0) -> CellGraph:
    floats = [input_node(FLOAT) for _ in range(losses)]
    return CellGraph(
        "cell", tuple(map(input_node, operands)), (), tuple(map(input_node, outputs)), tuple(floats)
    )


def test_only_what_lies_between_source_and_loss_is_active():
    # 0 -> arena 0 -> 1 -> arena 1 -> 2 (loss); 1 -> arena 2 -> 3 (no loss)
    graphs = [
        a_cell([], [FLOAT]),
        a_cell([FLOAT], [FLOAT, FLOAT]),
        a_cell([FLOAT], [], 1),
        a_cell([FLOAT], []),
    ]
    reads, writes = [[], [0], [1], [2]], [[0], [1, 2], [], []]
    none, first = frozenset(), frozenset({0})
    assert active_ends(graphs, reads, writes, [False, True, False, False]) == [
        (none, none),
        (none, first),
        (first, none),
        (none, none),
    ]
    assert active_ends(graphs, reads, writes, [True, False, False, False])[1] == (first, first)


def test_integers_are_never_active():
    graphs = [a_cell([], [INT, FLOAT]), a_cell([INT, FLOAT], [], 1)]
    found = active_ends(graphs, [[], [0, 1]], [[0, 1], []], [True, False])
    assert found == [(frozenset(), frozenset({1})), (frozenset({1}), frozenset())]


def test_a_recursion_with_a_source_is_active_all_round():
    graphs = [a_cell([FLOAT], [FLOAT]), a_cell([FLOAT], [], 1)]
    found = active_ends(graphs, [[0], [0]], [[0], []], [True, False])
    assert found == [(frozenset({0}), frozenset({0})), (frozenset({0}), frozenset())]


arenas = st.lists(st.integers(0, 5), max_size=3)


@given(st.lists(st.tuples(arenas, arenas, st.booleans()), max_size=6))
def test_acting_on_is_acted_on_seen_from_the_other_end(cells):
    reads, writes, seeds = ([cell[i] for cell in cells] for i in range(3))
    assert acting_on(reads, writes, seeds) == acted_on(writes, reads, seeds)
    found = acted_on(reads, writes, seeds)
    right: set[int] = set()
    for _ in range(7):  # as many rounds as there are arenas
        for read, written, seed in cells:
            right |= set(written) if seed or right & set(read) else set()
    assert found == right
