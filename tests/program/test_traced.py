"""Traces: a tree's is kept as long as the tree lives, and the plan of a tree alone; other examples' are not."""

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import ExampleError, counted
from foldbatch.program import traced
from foldbatch.trees import Tree, TreeNode
from tests.knobs import knobs

DOUBLE = fb.types.TensorType((), "float64")


def model(seen: Callable[[Any], None] = lambda node: None) -> fb.Block:
    """Return a model of nested pairs of ints, as tuples or as a `Tree`: a pair is half the sum of its parts.

    `seen` is called with every node that is traced. There is a loss at every pair.
    """
    half = fb.Parameter(DOUBLE, 0.5, "half")

    def is_leaf(node: Any) -> bool:
        seen(node)
        return node.is_leaf if isinstance(node, TreeNode | Tree) else not isinstance(node, tuple)

    tree = fb.ForwardDeclaration(output_type=DOUBLE, name="tree")
    leaf = fb.InputTransform(lambda node: int(getattr(node, "token", node))) >> fb.Scalar("float64")
    mean = fb.Record((tree(), tree())) >> fb.Function(lambda a, b: (a + b) * half)
    pair = mean >> fb.AllOf(fb.Identity(), fb.Loss()) >> fb.GetItem(0)
    tree.resolve_to(fb.OneOf(is_leaf, {True: leaf, False: pair}))
    return tree()


def value(nested: Any) -> float:
    return sum(map(value, nested)) / 2 if isinstance(nested, tuple) else float(nested)


def as_tree(nested: Any) -> Tree:
    def built(x: Any) -> Any:
        return ("P", *map(built, x)) if isinstance(x, tuple) else ("L", str(x))

    return Tree.from_nested(built(nested))


def compiled(*args: Any, **options: Any) -> fb.Program:
    return fb.compile(model(*args), "numpy", threads=1, **knobs(options))


def outcome(program: fb.Program, batch: Any) -> Any:
    results, (loss, gradients) = program.run(batch, losses=True), program.value_and_grad(batch)
    return list(map(float, results)), results.loss, loss, {name: float(g) for name, g in gradients.items()}


EXAMPLES: list[Any] = [3, (1, 2), ((1, 1), (2, (0, 6))), ((3, 4), 5), 1]
VALUES = [value(x) for x in EXAMPLES]


def test_a_tree_is_traced_once():
    """Identity tells: an equal tree is another one, and is traced anew."""
    nodes: list[Any] = []
    program = compiled(nodes.append)
    trees = [as_tree(x) for x in EXAMPLES]
    assert program.run(trees, losses=True) == VALUES
    assert len(nodes) == sum(tree.size for tree in trees)
    nodes.clear()
    assert program.run(trees[::-1], losses=True) == VALUES[::-1]
    program.value_and_grad(trees)
    program.describe(trees)
    program.vjp(trees)
    program.prepare(trees)
    assert not nodes
    twin = as_tree(EXAMPLES[2])
    assert twin == trees[2]
    assert program.run([twin], losses=True) == VALUES[2:3]
    assert len(nodes) == twin.size


def test_a_trace_that_is_kept_is_of_one_program():
    nodes: list[Any] = []
    tree, block = as_tree((1, 2)), model(nodes.append)
    for _ in range(2):
        assert fb.compile(block, "numpy").run([tree]) == [1.5]
    assert len(nodes) == 2 * tree.size


def test_other_examples_are_traced_each_time():
    """They may have changed in between."""
    program = fb.compile(fb.Map(fb.Scalar()) >> fb.Function(ops.segment_sum), "numpy")
    example = [1.0, 2.0]
    assert program.run([example], losses=True)[0] == 3
    example.append(4.0)
    assert program.run([example], losses=True)[0] == 7
    assert not program._ready.traces._entries


def test_a_trace_is_freed_with_its_tree_and_a_program_before_it():
    program = compiled()
    trees = [as_tree(x) for x in EXAMPLES]
    program.run(trees, losses=True)
    assert len(program._ready.traces._entries) == 5
    del trees[2:]
    gc.collect()
    assert len(program._ready.traces._entries) == 2
    watch = weakref.ref(program)
    del program
    gc.collect()
    assert watch() is None
    trees.clear()  # whose traces are nobody's now
    gc.collect()


SCALAR = fb.InputTransform(lambda node: 1.0) >> fb.Scalar()


@pytest.mark.parametrize(
    "block",
    [
        fb.AllOf(SCALAR, fb.Identity()),
        fb.Map(fb.AllOf(SCALAR, fb.Identity())),
        fb.AllOf(SCALAR, fb.Identity()) >> fb.Metric("m"),
    ],
    ids=["in the result", "in a sequence of the result", "as a label"],
)
def test_a_trace_that_holds_nodes_of_its_tree_is_not_kept(block):
    program = fb.compile(block, "numpy")
    tree = as_tree((1, 2))
    watch = weakref.ref(tree)
    program.run([tree], losses=True)
    assert not program._ready.traces._entries
    del tree
    gc.collect()
    assert watch() is None


def test_an_id_used_again_is_no_mistake():
    """Trees come and go at the same address; each is itself."""
    program = compiled()
    for i in range(200):
        nested = (i % 7, (i % 3, i % 5))
        tree = as_tree(nested)
        assert program.run([tree], losses=True) == [value(nested)]
        del tree
    assert len(program._ready.traces._entries) <= 1
    tree, other = as_tree((1, 2)), as_tree(3)
    program.run([other], losses=True)
    program._ready.traces._entries[id(tree)] = program._ready.traces._entries[
        id(other)
    ]  # as if it had died unnoticed
    assert program.run([tree], losses=True) == [1.5]


@pytest.mark.parametrize("prepared", [False, True])
def test_the_plan_of_a_known_example_that_comes_alone_is_made_once(prepared):
    program, tree = compiled(), as_tree(EXAMPLES[2])
    if prepared:
        (tree,) = program.prepare([EXAMPLES[2]])
    first = outcome(program, [tree])
    with mock.patch("foldbatch.engines.planner.schedule_batch", side_effect=AssertionError):
        assert outcome(program, [tree]) == outcome(program, (tree,)) == first
        with pytest.raises(AssertionError):
            program.run([tree, tree], losses=True)
    assert first[:2] == ([VALUES[2]], program.run([EXAMPLES[2]], losses=True).loss)


def test_examples_that_are_not_known_or_do_not_come_alone_are_planned_each_time():
    program, tree = compiled(), as_tree(EXAMPLES[2])
    program.run(program.prepare([tree]), losses=True)  # it is gone, and so is its plan
    program.run([tree, tree], losses=True)
    program.run([EXAMPLES[2]], losses=True)
    (known,) = program._ready.traces._entries.values()
    assert known.parts is None


@pytest.mark.parametrize("options", [{}, {"batched": False}, {"policy": "by_depth"}], ids=str)
def test_results_are_the_same_with_plans_and_without(options):
    """With other batches and other parameters in between."""
    trees = [as_tree(x) for x in EXAMPLES]
    with mock.patch.object(traced, "PLANNED_BYTES", 0):
        without = compiled(**options)
    program = compiled(**options)
    for number in (0.5, 0.7):
        for each in (without, program):
            each.params["half"] = number
        for _ in range(2):
            for tree in trees:
                assert outcome(program, [tree]) == outcome(without, [tree])
            program.run(trees, losses=True)
    assert all(known.parts is None for known in without._ready.traces._entries.values())
    assert all(known.parts is not None for known in program._ready.traces._entries.values())


def test_prepared_examples_are_not_traced_again():
    """They stand for their examples, mixed with others; as they were when prepared."""
    nodes: list[Any] = []
    program = compiled(nodes.append)
    prepared = program.prepare(EXAMPLES)
    assert repr(prepared[0]) == f"Prepared({counted(prepared[0].trace.size, 'call')})"
    nodes.clear()
    assert program.run(prepared, losses=True) == VALUES
    assert program.value_and_grad(prepared)[0] == program.run(prepared, losses=True).loss
    assert program.run(program.prepare(prepared)) == VALUES
    assert not nodes
    assert program.run([EXAMPLES[0], *prepared[1:3], *EXAMPLES[3:]], losses=True) == VALUES


USES = ["run", "value_and_grad", "vjp", "plan", "prepare", "describe"]


@pytest.mark.parametrize("use", USES)
def test_what_another_program_made_is_refused(use):
    """Its numbers would mean other cells."""
    block = model()
    one, two = fb.compile(block, "numpy"), fb.compile(block, "numpy")
    for _ in range(2):
        message = "example 1: expected an example prepared by this program, found one of another program"
        with pytest.raises(ExampleError, match=message):
            getattr(two, use)([EXAMPLES[0], *one.prepare(EXAMPLES[1:2])])
        message = "examples: expected a batch planned by this program, found one of another program; plan it"
        with pytest.raises(ExampleError, match=message):
            getattr(two, use)(one.plan(EXAMPLES))
    getattr(one, use)([EXAMPLES[0], *one.prepare(EXAMPLES[1:2])])
    getattr(one, use)(one.plan(EXAMPLES))


@pytest.mark.parametrize("copied", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy])
def test_what_was_pickled_can_be_run_by_a_program_that_works_alike(copied):
    block = model()
    one, two, other = (
        fb.compile(block, "numpy", options={"layout": layout}) for layout in ("consumer",) * 2 + ("producer",)
    )
    plan, prepared = copied(one.plan(EXAMPLES)), copied(one.prepare(EXAMPLES))
    for program in (one, two):
        assert program.run(plan) == program.run(prepared) == VALUES
        assert program.run(copied(plan)) == program.run(copied(prepared)) == VALUES
    with pytest.raises(ExampleError, match="a batch planned by this program"):
        other.run(plan)
    with pytest.raises(ExampleError, match="an example prepared by this program"):
        fb.compile(fb.Scalar(), "numpy").run(prepared)
