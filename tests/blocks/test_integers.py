"""The code of trees makes the record that the tracing program makes, to the bit, or refuses."""

import random
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import attrgetter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from benchmarks.workload import tree_lstm as benchmark_model
from foldbatch.blocks import integers
from foldbatch.blocks.lower import lower
from foldbatch.blocks.purity import pure
from foldbatch.errors import ExampleError
from foldbatch.scheduler.arithmetic import NUMPY
from foldbatch.scheduler.policies import find_policy
from foldbatch.trees import Tree, Vocabulary, parse_brackets
from foldbatch.zoo.models import MODELS
from foldbatch.zoo.tasks import Task
from foldbatch.zoo.words import Words
from tests.blocks.forests import WORDS, batches
from tests.blocks.laws import (
    LLVM,
    arithmetic,
    assert_same,
    check_same,
    lowered,
    program_record,
    refusal,
    trees_of,
    why_not,
)

V = Vocabulary(WORDS[:3])
WHOLE = Words(V, size=2)
NODES, ROOT = Task("nodes", classes=5, dropout=0.5), Task("root", classes=5)
FEW = settings(max_examples=5)
LEAF = attrgetter("is_leaf")
TRACED = arithmetic().traced
pytestmark = [pytest.mark.llvm, pytest.mark.skipif(not LLVM, reason="llvmlite is not installed")]

OF_BINARY_TREES = {
    "benchmark": benchmark_model(2, V),
    "nodes": MODELS["tree_lstm"](WHOLE, NODES, hidden=2),
    "root": MODELS["tree_lstm"](WHOLE, ROOT, hidden=2),
    "rntn": MODELS["rntn"](WHOLE, Task("nodes", classes=5, answers=3), hidden=2),
}


def declared(make, size=2, **options):
    """Return a recursion: `make` gets a use of it and returns its definition."""
    tree = fb.ForwardDeclaration(output_type=size, name="tree", **options)
    tree.resolve_to(make(tree()))
    return tree()


def row(function=lambda x: x):
    return fb.InputTransform(function) >> fb.Scalar("int32") >> fb.Embedding(9, 2)


ADD = fb.Function(lambda a, b: a + b)


CHILDREN = fb.GetItem("children")


def summed(tree, own=None, children=CHILDREN):
    rest = children >> fb.Map(tree) >> fb.Sum()
    return fb.AllOf(own or fb.GetItem("label") >> row(), rest) >> ADD


OF_TREES = {
    "child_sum": MODELS["child_sum"](WHOLE, NODES, hidden=2),
    "sum": declared(summed),
    "children by a lambda": declared(partial(summed, children=fb.InputTransform(lambda t: t.children))),
    "children by a getter": declared(partial(summed, children=fb.InputTransform(attrgetter("children")))),
    "children by a list": declared(partial(summed, children=fb.InputTransform(list))),
    "over the node itself": declared(
        lambda tree: fb.AllOf(fb.GetItem("label") >> row(), fb.Map(tree) >> fb.Sum()) >> ADD
    ),
    "fold": declared(
        lambda tree: fb.AllOf(fb.GetItem("label") >> row(), fb.Map(tree) >> fb.Fold(ADD, fb.Zeros(2))) >> ADD
    ),
    "parents first": declared(
        lambda tree: (
            fb.AllOf(
                fb.GetItem("label") >> row() >> fb.AllOf(fb.Identity(), fb.Metric("own")) >> fb.GetItem(0),
                fb.Map(tree) >> fb.Sum(),
            )
            >> ADD
            >> fb.AllOf(fb.Identity(), fb.Metric("sum"))
            >> fb.GetItem(0)
        )
    ),
    "last child first": declared(
        lambda tree: fb.OneOf(
            len,
            {
                0: fb.GetItem("label") >> row(),
                1: fb.GetItem(0) >> tree,
                2: fb.AllOf(fb.GetItem(-1) >> tree, fb.GetItem(0) >> tree) >> ADD,
                3: fb.AllOf(*(fb.GetItem(n) >> tree for n in (1, 2, 0)))
                >> fb.Function(lambda a, b, _: a + b),
            },
        )
    ),
    "labels of parents": declared(
        lambda tree: fb.OneOf(
            pure(lambda t: t.label if t.label < 2 else "many" if t.token is None else t.token),
            {key: summed(tree) for key in (0, 1, "many", *WORDS)},
        )
    ),
    "leaves by an item": declared(
        lambda tree: fb.OneOf(
            fb.GetItem("is_leaf"), {True: fb.GetItem("label") >> row(), False: fb.Map(tree) >> fb.Sum()}
        )
    ),
    "leaves without children": declared(
        lambda tree: fb.OneOf(
            lambda t: not t.children, {True: fb.GetItem("size") >> row(), False: fb.Map(tree) >> fb.Sum()}
        )
    ),
    "lists of lists": fb.GetItem("children")
    >> fb.Map(fb.GetItem("children") >> fb.Map(fb.GetItem("label") >> row()) >> fb.Sum())
    >> fb.Sum(),
    "a label or another": fb.OneOf(
        LEAF, {True: fb.GetItem("label"), False: fb.GetItem(0) >> fb.GetItem("label")}
    )
    >> row(),
    "of a kind": fb.GetItem("label") >> fb.OneHot(5),
    "length": fb.AllOf(fb.Length("int32"), fb.Map(row(len)) >> fb.Length()),
    "two passes": fb.AllOf(declared(summed), declared(summed)),
    "an object": fb.AllOf(fb.GetItem("label"), fb.GetItem("token") >> fb.Optional(row(V))),
}


@pytest.mark.parametrize("name", OF_BINARY_TREES)
@FEW
@given(examples=batches(binary=True))
def test_records_of_binary_trees_are_those_of_the_program(name, examples):
    check_same(OF_BINARY_TREES[name], examples)


@pytest.mark.parametrize("name", OF_TREES)
@FEW
@given(examples=batches())
def test_records_of_trees_are_those_of_the_program(name, examples):
    """Of nodes of trees, too, and of one tree alone."""
    nodes = [node for tree in examples for node in tree.nodes()]
    for some in ([*examples, *nodes[::3]], examples[:1], nodes[:1]):
        with suppress(ExampleError):  # the program refuses it as well
            program_record(OF_TREES[name], some)
            check_same(OF_TREES[name], some)


def one_of(draw, *makes):
    return draw(st.sampled_from(makes))()


@st.composite
def random_blocks(draw):
    """Return a recursion of random parts, and what reads its result."""
    label, token = fb.GetItem("label"), fb.GetItem("token")
    marked = fb.AllOf(fb.Identity(), fb.Metric("own")) >> fb.GetItem(0)
    judged = fb.AllOf(fb.Identity(), fb.Function(fb.ops.sum) >> fb.Loss()) >> fb.GetItem(0)

    def own():
        reads = (
            lambda: label >> row(),
            lambda: token >> fb.Optional(row(V)),
            lambda: fb.AllOf(label >> row(), row(len)) >> ADD,
            lambda: fb.InputTransform(lambda t: t.size) >> fb.Scalar("int32") >> fb.Embedding(99, 2),
            lambda: fb.OneOf(LEAF, {True: label >> row(), False: fb.Zeros(2)}),
            lambda: fb.OneOf(lambda t: t.token == "a", {True: row(len), False: label >> row()}),
        )
        return one_of(draw, *reads)

    def after(block):
        more = (
            lambda: block,
            lambda: block >> marked,
            lambda: block >> judged,
            lambda: block >> fb.Dropout(0.5),
        )
        return one_of(draw, *more)

    def below(tree):
        children = fb.Map(tree)
        made = (
            lambda: children >> fb.Sum(),
            lambda: fb.GetItem("children") >> children >> fb.Sum(),
            lambda: children >> fb.Fold(ADD, fb.Zeros(2)),
            lambda: children >> fb.RNN(fb.GRUCell(2)) >> fb.GetItem(1),
            lambda: fb.Map(fb.AllOf(tree, own()) >> ADD) >> fb.Sum(),
            lambda: fb.OneOf(LEAF, {True: own(), False: fb.GetItem(draw(st.sampled_from((0, -1)))) >> tree}),
            lambda: fb.OneOf(
                len,
                {
                    0: own(),
                    1: fb.GetItem(0) >> tree,
                    2: fb.AllOf(*(fb.GetItem(n) >> tree for n in (-1, 0))) >> ADD,
                    3: children >> fb.Sum(),
                },
            ),
        )
        return one_of(draw, *made)

    memo = draw(st.sampled_from((None, True, False)))
    names = ("one", "other")[: draw(st.integers(1, 2))]
    declared_ = [fb.ForwardDeclaration(output_type=2, name=name, memo=memo) for name in names]
    for number, each in enumerate(declared_):
        each.resolve_to(after(fb.AllOf(own(), below(declared_[number - 1]())) >> ADD))
    tree = declared_[0]()
    whole = (lambda: tree, lambda: fb.AllOf(tree, label), lambda: fb.Map(tree) >> fb.Sum())
    return one_of(draw, *whole)


@settings(max_examples=40)
@given(random_blocks(), batches(), st.sampled_from(("auto", "by_depth", "by_agenda")))
def test_records_of_random_blocks_are_those_of_the_program(block, examples, policy):
    nodes = [node for tree in examples for node in tree.nodes()]
    check_same(block, [*examples, *nodes[:2]], policy)


@pytest.mark.parametrize("size", [1, 2, 100_000])
def test_trees_of_one_node_and_as_deep_as_any_are_traced(size):
    chain = Tree([*range(1, size), -1], [i % 5 for i in range(size)])
    record = trees_of(OF_TREES["sum"]).record(TRACED, [chain], 3 * size)
    assert_same(record, program_record(OF_TREES["sum"], [chain]))
    assert max(part.max() for part in record.joined.levels) == size - 1


def test_nodes_of_ever_more_children_are_learnt_up_to_many():
    block = declared(
        lambda tree: fb.OneOf(LEAF, {True: fb.GetItem("label") >> row(), False: fb.Map(tree) >> fb.Sum()})
    )
    for count in (2, 9, 200):
        check_same(block, [Tree([count] * count + [-1], [1] * (count + 1))])
    assert "more than 255 children" in refusal(block, [Tree([300] * 300 + [-1], [1] * 301)])
    assert "more" not in trees_of(block).last


TREE = parse_brackets("(1 (2 a) (3 (0 good) (1 film)))", int)
TWICE = declared(
    lambda tree: fb.OneOf(
        LEAF,
        {
            True: fb.GetItem("label") >> row(),
            False: fb.AllOf(fb.GetItem(0) >> tree, fb.GetItem(0) >> tree) >> ADD,
        },
    )
)
OF_OBJECTS = fb.ForwardDeclaration(output_type=fb.types.OBJECT, name="of objects")
OF_OBJECTS.resolve_to(fb.OneOf(LEAF, {True: fb.GetItem("label"), False: fb.GetItem(0) >> OF_OBJECTS()}))
KEPT = [
    (fb.InputTransform(lambda t: random.random()) >> fb.Scalar(), "LOAD_GLOBAL (test_integers.py:"),
    (
        declared(lambda tree: fb.OneOf(lambda t: t.parent is None, {True: fb.Map(tree) >> fb.Sum()})),
        "reads parent",
    ),
    (fb.GetItem("children") >> fb.Map(row(len)) >> fb.Reduce(ADD), "_rounds is given no node"),
    (OF_OBJECTS(), "returns an object"),
    (fb.Map(fb.Identity()), "passes an object to a cell"),
    (fb.Identity(), "a node"),
    (fb.GetItem("label", default=1) >> row(), "Read"),
]


@pytest.mark.parametrize(("block", "reason"), KEPT)
def test_what_keeps_a_model_from_code_is_told(block, reason):
    assert reason in why_not(block)


MISFITS = [
    ("an id out of bounds", declared(summed), [Tree.leaf(9)], "a datum that the block"),
    ("a label that is no number", declared(summed), [Tree.leaf("a")], "a datum that the block"),
    ("no label", declared(summed), [Tree([1, -1])], "a datum that the block"),
    ("no token", fb.GetItem("token") >> row(), [TREE], "a datum that the block"),
    ("a missing child", fb.GetItem(0) >> fb.GetItem("label") >> row(), [Tree.leaf(1)], "refuses"),
    ("too many children", fb.Record((fb.GetItem("label") >> row(),)), [TREE], "refuses"),
    ("no case", fb.OneOf(LEAF, {True: fb.GetItem("label") >> row()}), [TREE], "refuses"),
    ("a function that fails", row(pure(lambda t: t.label + "a")), [TREE], "TypeError"),
    ("a node twice, and then more", TWICE, [Tree([*range(1, 20), -1], [1] * 20)], "refuses"),
]


@pytest.mark.parametrize(
    ("block", "examples", "reason"), [m[1:] for m in MISFITS], ids=[m[0] for m in MISFITS]
)
def test_examples_that_do_not_fit_are_left_to_the_program(block, examples, reason):
    """Its errors are told, though others are traced with them."""
    assert reason in refusal(block, examples)
    made, fits = lowered(block), []
    for tree in (TREE, Tree.leaf(1, "a"), Tree([1, -1], [1, 1], ["a", "a"])):
        with suppress(ExampleError):
            program_record(block, [tree])
            fits.append(tree)
    examples = [*fits, *examples, *fits]
    found = []
    for way in (made, replace(made, arithmetic=NUMPY)):
        try:
            found.append([trace.packed.tolist() for trace in way.trace_all(examples, range(7, 30))])
        except ExampleError as error:
            found.append(str(error))
    assert found[0] == found[1]
    assert block is TWICE or f"at example {7 + len(fits)}" in found[0]


def test_an_example_of_too_many_calls_is_left_to_the_program():
    block = declared(summed)
    calls = int(program_record(block, [TREE]).counts.sum())
    for most, fits in ((calls, True), (calls - 1, False)):
        made = lower(block, find_policy("auto"), most, arithmetic=arithmetic())
        assert (made.trees.records(TRACED, [TREE], most) is not None) == fits
        if not fits:
            assert "refuses" in refusal(block, [TREE], most)
            with pytest.raises(ExampleError, match=f"at example 1: expected at most {most} calls"):
                made.trace_all([Tree.leaf(1), TREE], range(2))


def test_batches_that_are_refused_again_and_again_are_tried_less_often():
    made = lower(declared(summed), find_policy("auto"), arithmetic=arithmetic()).trees
    tries = []
    for number in range(20):
        made.last = ""
        assert made.records(TRACED, [Tree.leaf("a")], 100) is None
        tries += [number] * bool(made.last)
    assert tries == [0, 1, 4, 11]
    while made.records(TRACED, [TREE], 100) is None:
        pass
    assert made.records(TRACED, [TREE], 100) is not None


def test_a_program_traces_by_code_as_it_does_node_by_node():
    """Its losses, metrics and gradients are the same, and an error is told as ever."""
    made = [fb.compile(OF_BINARY_TREES["nodes"], "llvm", seed=3) for _ in range(2)]
    assert made[0].lowered.way.startswith("trees at once, by compiled code")
    object.__setattr__(made[1].lowered, "trees", "none")
    for examples in ([TREE], [TREE, TREE[1], Tree.leaf(2, "film")] * 20):
        (loss, gradients), (other, others) = (program.value_and_grad(examples) for program in made)
        assert loss == other
        assert repr(gradients) == repr(others)
        runs = [program.run([*examples], losses=True, metrics=True) for program in made]
        assert repr(runs[0]) == repr(runs[1])
    bad = [*[TREE] * 139, Tree.leaf("bad", "a"), TREE]
    errors = []
    for program in made:
        with pytest.raises(ExampleError, match="at example 139") as caught:
            program.value_and_grad(bad)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


def test_a_backend_that_compiles_nothing_runs_the_program():
    made = fb.compile(declared(summed), "numpy").lowered
    assert made.trees == "this backend compiles no loops"
    assert "trees from being traced at once: this backend" in made.way


def test_so_many_trees_that_they_are_several_records_have_the_same_traces(monkeypatch):
    block = OF_BINARY_TREES["benchmark"]
    tree = parse_brackets("(3 (2 a) (4 (1 b) (0 (2 c) (3 a))))", labels=int)
    whole = lowered(block).trace_all([tree] * 100, range(100))
    monkeypatch.setattr(integers, "FULL_RECORD", 150)
    parts = lowered(block).trace_all([tree] * 100, range(100))
    assert len({id(trace.origin[0]) for trace in parts}) > 4
    assert all((a.packed == b.packed).all() for a, b in zip(whole, parts, strict=True))


@pytest.mark.parametrize("wanted", ["numbers", "arrays"])
def test_examples_that_may_hold_tensors_are_shown_to_who_looks_for_them(wanted):
    reads = (
        row()
        if wanted == "numbers"
        else fb.InputTransform(pure(lambda x: np.ones(2, "float32") * x)) >> fb.Vector(2)
    )
    block, shown = declared(lambda tree: summed(tree, fb.GetItem("label") >> reads)), []
    lowered(block).trace_all([TREE] * 3, range(3), lambda _, data: shown.append(data))
    assert len(shown) == (wanted == "arrays")
    assert not shown or "looks at objects" in lowered(block).trees.last
    check_same(block, [TREE] * 3)


def test_objects_of_other_kinds_are_read_by_the_program():
    class Own(Tree):
        def __getitem__(self, key):
            return 7 if key == "label" else super().__getitem__(key)

    own = Own(TREE.parents, TREE.labels, TREE.tokens)
    made = lowered(declared(summed))
    for examples, labels in (([own], 7), ([TREE, own], 7), ([TREE, TREE], 1)):
        last = made.trace_all(examples, range(len(examples)))[-1]
        assert max(part[-1] for part in last.feeds[0]) == labels


def test_a_function_that_is_given_other_code_is_called_by_the_program():
    def mark(t):
        return t.is_leaf

    leaf, inner = fb.GetItem("label") >> row(), fb.Zeros(2)
    made = lowered(fb.GetItem(0) >> fb.OneOf(mark, {True: leaf, False: inner}))
    for code, calls in ((lambda t: t.is_leaf, 1), (lambda t: t.is_leaf and random.random() > 2, 0)):
        mark.__code__ = code.__code__
        if not calls:
            assert made.trees.records(TRACED, [TREE], 100) is None
            assert "has another code by now" in made.trees.last
        (trace,) = made.trace_all([TREE], [0])
        assert (
            sum(
                len(rows)
                for rows, cell in zip(trace.calls, made.model.cells, strict=True)
                if cell.graph.feeds
            )
            == calls
        )


def test_an_exception_of_a_handler_is_no_refusal():
    def handler(number, frame):
        raise ValueError("of a handler")

    block = row(pure(lambda t: handler(14, sys._getframe())))
    with pytest.raises(ValueError, match="of a handler"):
        trees_of(block).records(TRACED, [TREE], 100)


def test_threads_may_trace_at_once():
    """While tables of more children are made, too."""
    block = OF_TREES["last child first"]
    trees = [Tree([n] * n + [-1], [1] * (n + 1)) for n in (1, 2, 3)] + [Tree.leaf(1)]
    wide = declared(
        lambda tree: fb.OneOf(LEAF, {True: fb.GetItem("label") >> row(), False: fb.Map(tree) >> fb.Sum()})
    )
    batches_ = [trees[n:] + trees[:n] for n in range(4)] * 8
    more = [[Tree([n] * n + [-1], [1] * (n + 1))] * 3 for n in range(1, 65)]
    with ThreadPoolExecutor(8) as pool:
        for which, some in ((block, batches_), (wide, more)):
            made = lower(which, find_policy("auto"), arithmetic=arithmetic())
            found = [*pool.map(lambda x: made.trees.record(TRACED, x, 10**6), some)]
            for record, examples in zip(found, some, strict=True):
                assert_same(record, program_record(which, examples))
