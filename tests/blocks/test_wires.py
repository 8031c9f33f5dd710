"""Connected parts and strongly connected components, against brute force."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foldbatch.blocks.wires import Wire, components, connected

EDGES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20)


def reach(edges: list[tuple[int, int]]) -> set[tuple[int, int]]:
    found = {(n, n) for n in range(8)} | set(edges)
    while True:
        more = found | {(a, d) for a, b in found for c, d in found if b == c}
        if more == found:
            return found
        found = more


@given(EDGES)
def test_components_are_mutually_reachable_and_in_topological_order(edges: list[tuple[int, int]]) -> None:
    """Two nodes share a number exactly if each reaches the other; edges go to larger numbers."""
    targets: dict[int, list[int]] = {n: [b for a, b in edges if a == n] for n in range(8)}
    number = components(list(range(8)), targets)
    reached = reach(edges)
    for a in range(8):
        for b in range(8):
            assert (number[a] == number[b]) == ((a, b) in reached and (b, a) in reached)
    assert all(number[a] <= number[b] for a, b in edges)


@given(EDGES)
def test_connected_ignores_direction(edges: list[tuple[int, int]]) -> None:
    """Two nodes share a number exactly if a path leads from one to the other, either way along edges."""
    number = connected(edges, range(8))
    both = reach(edges + [(b, a) for a, b in edges])
    assert all((number[a] == number[b]) == ((a, b) in both) for a in range(8) for b in range(8))


def test_long_chains_do_not_recurse() -> None:
    """Python's own stack is not used."""
    n = 50_000
    number = components(list(range(n)), {i: [i + 1] for i in range(n - 1)})
    assert number[0] == 0
    assert number[n - 1] == n - 1


def test_wires_feed_each_other() -> None:
    """An edge per feed."""
    a, b = Wire(), Wire()
    a.feed(b)
    assert a.flows_to == [b]
