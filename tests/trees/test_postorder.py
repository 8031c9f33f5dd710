"""What counts as post-order, and flattening linked objects without recursion."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foldbatch.errors import ExampleError
from foldbatch.trees import Tree
from foldbatch.trees.postorder import as_parents, check_post_order, children_csr, flatten


def is_post_order(parents):
    """Say the same by definition: walk the tree recursively and see whether nodes come as 0, 1, 2, ..."""
    if (
        parents.count(-1) != 1
        or parents[-1] != -1
        or any(not -1 <= above < len(parents) for above in parents)
    ):
        return False
    order, seen = [], set()

    def walk(node):
        if node in seen:
            return
        seen.add(node)
        for child, above in enumerate(parents):
            if above == node:
                walk(child)
        order.append(node)

    walk(len(parents) - 1)
    return order == list(range(len(parents)))


@st.composite
def candidates(draw):
    """Parent lists that point upwards, sometimes post-order and sometimes not, and a few wild ones."""
    size = draw(st.integers(1, 9))
    upward = [draw(st.integers(node + 1, min(size - 1, node + 4))) for node in range(size - 1)] + [-1]
    if draw(st.booleans()):
        upward[draw(st.integers(0, size - 1))] = draw(st.integers(-3, size + 2))
    return upward


@given(candidates())
def test_check_accepts_exactly_the_parents_whose_recursive_walk_is_in_order(parents):
    try:
        check_post_order(as_parents(parents))
        accepted = True
    except ExampleError:
        accepted = False
    assert accepted == is_post_order(parents)


@given(st.from_type(Tree))
def test_csr_lists_every_child_once_below_its_parent_in_order(tree):
    starts, indices = children_csr(tree.parents)
    for node in range(tree.size):
        assert (
            indices[starts[node] : starts[node + 1]].tolist() == np.flatnonzero(tree.parents == node).tolist()
        )


def test_flatten_tells_where_an_object_lies_and_shortens_long_places():
    places = []

    def expand(depth, where):
        places.append(where())
        return None, None, [depth + 1] if depth < 20 else []

    flatten(0, expand, "root", "[{}]", 1)
    assert places[:3] == ["root", "root[1]", "root[1][1]"]
    assert places[20] == "root[1][1]…16 steps…[1][1]"
