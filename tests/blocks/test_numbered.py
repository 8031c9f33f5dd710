"""Functions on numbers of nodes note what functions on nodes do, to the bit, and fail as they do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.blocks.lower import Lowered
from foldbatch.blocks.printing import TABLE
from foldbatch.errors import ExampleError
from foldbatch.scheduler.record import BatchRecord
from foldbatch.trees import Tree, TreeNode
from tests.blocks.forests import batches
from tests.blocks.laws import assert_same, lowered
from tests.blocks.test_integers import OF_BINARY_TREES, OF_TREES, declared, row, summed

FEW = settings(max_examples=4)


@contextmanager
def by_nodes(made: Lowered) -> Iterator[None]:
    before = made.numbered
    vars(made)["numbered"] = None
    yield
    vars(made)["numbered"] = before


def check_same(block: fb.Block, examples: list[Any]) -> BatchRecord:
    made = lowered(block)
    record = made.record(examples, range(len(examples)))
    with by_nodes(made):
        assert_same(record, made.record(examples, range(len(examples))))
    return record


@pytest.mark.parametrize("name", OF_BINARY_TREES)
@FEW
@given(examples=batches(binary=True))
def test_binary_trees_are_traced_alike(name: str, examples: list[Tree]) -> None:
    check_same(OF_BINARY_TREES[name], examples)
    tracer = lowered(OF_BINARY_TREES[name])
    assert tracer.numbered is not None
    assert tracer.numbered.globals, "leaves are told by a table"


@pytest.mark.parametrize("name", OF_TREES)
@FEW
@given(examples=batches(), number=st.integers(0, 99))
def test_trees_and_nodes_of_trees_are_traced_alike(name: str, examples: list[Tree], number: int) -> None:
    nodes: list[TreeNode] = [node for tree in examples for node in tree.nodes()]
    check_same(OF_TREES[name], [*examples, *nodes[number : number + 3]])


class Part:
    """An object that is read as a tree is."""

    def __init__(self, label: int, *children: Part) -> None:
        self.parts = {"label": label, "children": children}

    def __getitem__(self, key: str) -> Any:
        return self.parts[key]


def test_other_objects_are_read_beside_trees() -> None:
    tree = Tree.from_nested((1, (2, "x"), (3, "y")))
    record = check_same(declared(summed), [tree, Part(1, Part(2), Part(3)), tree])
    assert record.counts[0].tolist() == record.counts[1].tolist() == record.counts[2].tolist()


def test_whole_nodes_are_nodes() -> None:
    """Results and functions of the user get nodes, and at the root the tree itself."""
    kinds = fb.InputTransform(lambda node: int(type(node) is Tree) + 2 * node.size)
    own = kinds >> fb.Scalar("int32") >> fb.Embedding(20, 2)
    block = fb.AllOf(declared(lambda tree: summed(tree, own)), fb.Identity())
    tree = Tree.from_nested(("a", ("b", "x"), ("c", "y")))
    record = check_same(block, [tree, tree[0]])
    assert record.joined.feeds[0][0].tolist() == [2, 2, 7, 2]
    assert record.results[0][-1] is tree


def test_children_that_are_zipped_are_nodes() -> None:
    """Beside what their parent has computed: they are given to functions on nodes."""
    down = fb.ForwardDeclaration(input_type=("object", "float32"), output_type=None, name="down")
    depth = fb.GetItem(1) >> fb.Function(lambda above: above + 1)
    below = fb.Composition("below")
    with below.scope():
        node, above = below.input[0], depth.reads(below.input)
        fb.Metric("depth").reads(above, node)
        pairs = fb.Zip().reads(fb.GetItem("children").reads(node), fb.Broadcast().reads(above))
        (fb.Map(down())).reads(pairs)
        below.output.reads()
    down.resolve_to(below)
    block = fb.AllOf(fb.Identity(), fb.Zeros([])) >> down()
    tree = Tree.from_nested((1, (2, (3, "x"), (4, "y")), (5, "z")))
    check_same(block, [tree])
    found = fb.compile(block, "numpy").run([tree], metrics=True).metrics["depth"]
    depths = {node.label: int(d) for node, d in zip(found.labels, found.values, strict=True)}
    assert depths == {1: 1, 2: 2, 3: 3, 4: 3, 5: 2}


def tables(*functions: Any) -> int:
    """Return how many of some functions of nodes are looked up by the number of children."""
    block = declared(lambda tree: summed(tree, fb.AllOf(*map(row, functions)) >> fb.GetItem(0)))
    numbered = lowered(block).numbered
    assert numbered is not None
    return sum(name.startswith(TABLE) for name in numbered.globals)


def test_a_function_has_a_table_if_it_reads_nothing_but_how_many_children_there_are() -> None:
    assert tables(lambda node: 1 if len(node) < 3 else len(str(node.label))) == 0, "it reads more"
    assert tables(lambda node: node.is_leaf, attrgetter("is_leaf"), id) == 2


LIMIT = 1


def test_what_a_function_reads_by_name_may_change() -> None:
    global LIMIT
    block = declared(lambda tree: summed(tree, row(lambda node: int(len(node) > LIMIT))))
    tree = Tree([2, 2, -1])
    try:
        for LIMIT, expected in ((1, [0, 0, 1]), (5, [0, 0, 0])):  # noqa: B007
            assert lowered(block).record([tree], [0]).joined.feeds[0][0].tolist() == expected
    finally:
        LIMIT = 1


@pytest.mark.parametrize("nested", [("a", ("b", "x")), ("a", ("b", "x"), ("c", "y"), ("d", "z"))])
def test_errors_are_the_same(nested: Any) -> None:
    made = lowered(OF_BINARY_TREES["benchmark"])
    trees = [Tree.from_nested((1, (1, "x"), (1, "y"))), Tree.from_nested(nested)]
    with pytest.raises(ExampleError) as found:
        made.trace_all(trees, [7, 8])
    with by_nodes(made), pytest.raises(ExampleError) as expected:
        made.trace_all(trees, [7, 8])
    assert str(found.value) == str(expected.value)
    assert "example 8" in str(found.value)


def test_what_is_deeper_than_the_stack_goes_on() -> None:
    chain = Tree([*range(1, 3000), -1], [1] * 3000)
    assert check_same(declared(summed), [chain]).counts.sum() >= 3000


def test_a_program_that_reads_no_trees_has_no_functions_on_numbers() -> None:
    assert lowered(fb.Scalar()).numbered is None
    assert lowered(fb.Map(fb.Scalar()) >> fb.Sum()).numbered is not None


def test_no_tree_is_kept_between_runs() -> None:
    made = lowered(declared(summed))
    made.record([Tree([2, 2, -1], [1, 1, 1])], [0])
    for namespace, _ in made.unused:
        assert namespace["node"] is None
        assert namespace["kids"] is None
