"""Connected parts and strongly connected components, against reachability by brute force."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from foldbatch.model.wires import components, connected

EDGES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20)
NODES = range(8)


def closure(edges):
    """All pairs that a path leads between, in none or more steps."""
    reach = {(a, a) for a in NODES} | set(edges)
    for k, i, j in itertools.product(NODES, NODES, NODES):  # Warshall
        if (i, k) in reach and (k, j) in reach:
            reach.add((i, j))
    return reach


@given(EDGES)
def test_connected_parts_are_those_that_paths_join_in_either_direction(edges):
    found = connected(edges, NODES)
    reach = closure(edges + [(b, a) for a, b in edges])
    assert all((found[a] == found[b]) == ((a, b) in reach) for a in NODES for b in NODES)
    firsts = list(dict.fromkeys(found[a] for a in NODES))
    assert firsts == list(range(len(firsts)))  # numbered by first appearance


@given(EDGES)
def test_components_are_those_that_reach_each_other_in_topological_order(edges):
    table = {a: [y for x, y in edges if x == a] for a in NODES}
    found = components(NODES, table)
    reach = closure(edges)
    assert all((found[a] == found[b]) == ((a, b) in reach and (b, a) in reach) for a in NODES for b in NODES)
    assert all(found[a] <= found[b] for a, b in edges)
    assert sorted(set(found.values())) == list(range(len(set(found.values()))))


def test_a_chain_of_any_length_needs_no_recursion():
    n = 100_000
    chain = {i: [i + 1] for i in range(n)}
    assert components(range(n + 1), chain)[0] == 0
    assert len(set(components(range(n + 1), chain | {n: [0]}).values())) == 1
    assert set(connected([(i, i + 1) for i in range(n)], range(n + 1)).values()) == {0}
