"""Columns make the record that the tracing program makes, to the bit, or tell why they cannot."""

import random
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from benchmarks.workload import tree_lstm as benchmark_model
from foldbatch import zoo
from foldbatch.blocks.columnar import statements
from foldbatch.blocks.columnar.columns import Columns, Refusals
from foldbatch.blocks.columnar.kinds import Refused
from foldbatch.blocks.purity import pure
from foldbatch.errors import ExampleError
from foldbatch.trees import Tree, Vocabulary, parse_brackets
from foldbatch.zoo.models import MODELS
from foldbatch.zoo.tasks import Task
from foldbatch.zoo.words import Words
from tests.blocks.columnar.forests import WORDS, batches
from tests.blocks.columnar.laws import assert_same, check_same, columns_of, lowered, refusal, why_not
from tests.programs import drawn

V = Vocabulary(WORDS[:3])
WHOLE, SPLIT = Words(V, size=2), Words(V, size=2, split="subwords")
NODES, ROOT, CLASS = Task("nodes", classes=5, dropout=0.5), Task("root", classes=5), Task(classes=3)
FEW = settings(max_examples=8)
LEAF = attrgetter("is_leaf")

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


def summed(tree, own=None):
    children = fb.GetItem("children") >> fb.Map(tree) >> fb.Sum()
    return fb.AllOf(own or fb.GetItem("label") >> row(), children) >> ADD


OF_TREES = {
    "child_sum": MODELS["child_sum"](WHOLE, NODES, hidden=2),
    "sum": declared(summed),
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
    "lists of lists": fb.GetItem("children")
    >> fb.Map(fb.GetItem("children") >> fb.Map(fb.GetItem("label") >> row()) >> fb.Sum()),
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
    check_same(OF_TREES[name], examples)


@FEW
@given(examples=batches(), labels=st.lists(st.sampled_from((0, 2, None)), min_size=5, max_size=5))
def test_records_of_labelled_trees_are_those_of_the_program(examples, labels):
    pairs = list(zip(examples, labels, strict=False))
    check_same(MODELS["child_sum"](SPLIT, CLASS, kinds=V, counts=True, hidden=2), pairs)
    check_same(zoo.json(fb.GetItem("label") >> row(), CLASS), pairs)


def test_records_of_random_programs_are_those_of_the_program_where_there_are_any():
    applied = 0
    for seed in range(45):
        drawn_program = drawn(seed, 2000, size=6, depth=3)
        made = lowered.__wrapped__(drawn_program.block)
        examples = drawn_program.examples
        with suppress(Refused):
            if isinstance(made.columns, Columns):
                record = made.columns.record(examples, 10**7)
                assert_same(record, made.tracer.record(examples, range(len(examples))))
                applied += 1
    assert applied > 2


def test_a_tree_as_deep_as_any_takes_no_stack():
    size = 100_000
    chain = Tree([*range(1, size), -1], [i % 5 for i in range(size)])
    record = columns_of(OF_TREES["sum"]).record([chain], size + 1)
    assert record.offsets.tolist() == [0, size + 1] or record.counts.sum() == size


TREE = parse_brackets("(1 (2 a) (3 (0 good) (1 film)))", int)
REFUSALS = [
    (fb.InputTransform(lambda t: random.random()) >> fb.Scalar(), "LOAD_GLOBAL (test_columns.py:"),
    (
        declared(lambda tree: fb.OneOf(lambda t: t.parent is None, {True: fb.Map(tree) >> fb.Sum()})),
        "reads parent",
    ),
    (fb.GetItem("children") >> fb.Map(row(len)) >> fb.Reduce(ADD), "_rounds is called at every visit"),
]


@pytest.mark.parametrize(("block", "reason"), REFUSALS)
def test_what_keeps_a_model_from_columns_is_told(block, reason):
    assert reason in why_not(block)


MISFITS = [
    ("an id out of bounds", declared(summed), [Tree.leaf(9)], "tree[0] Scalar('int32'): there is a datum"),
    ("a label that is no number", declared(summed), [Tree.leaf("a")], "there is a datum"),
    ("a missing child", fb.GetItem(0) >> fb.GetItem("label") >> row(), [Tree.leaf(1)], "model"),
    ("too many children", fb.Record((fb.GetItem("label") >> row(),)), [TREE], "refuses"),
    ("no case", fb.OneOf(LEAF, {True: fb.GetItem("label") >> row()}), [TREE], "refuses"),
    ("no tree", declared(summed), ["ab"], "one tree"),
    ("a node", declared(summed), [TREE[0]], "several places"),
    ("trees and others", fb.GetItem("label") >> row(), [TREE, {"label": 1}], "some objects are trees"),
    (
        "a node twice",
        declared(
            lambda tree: fb.OneOf(
                LEAF,
                {
                    True: fb.GetItem("label") >> row(),
                    False: fb.AllOf(fb.GetItem(0) >> tree, fb.GetItem(0) >> tree) >> ADD,
                },
            )
        ),
        [TREE],
        "each node once",
    ),
]


@pytest.mark.parametrize(
    ("block", "examples", "reason"), [m[1:] for m in MISFITS], ids=[m[0] for m in MISFITS]
)
def test_examples_that_do_not_fit_are_left_to_the_program(block, examples, reason):
    assert reason in refusal(block, examples)


def test_an_example_of_too_many_calls_is_left_to_the_program(monkeypatch):
    assert "more calls" in refusal(declared(summed), [TREE], max_calls=3)
    monkeypatch.setattr(statements, "MOST", 3)
    assert "too many calls" in refusal(declared(summed), [TREE])


def test_few_nodes_are_left_to_the_program():
    columns = columns_of(declared(summed))
    assert columns.records([TREE] * 259, 100) is None
    assert columns.records([TREE] * 260, 100) is not None
    assert columns.records([(TREE, 1)] * 216, 100) is None
    assert columns_of(OF_TREES["length"]).records([TREE] * 260, 100) is None, "nothing recurs"
    assert not columns.refusals.last


def test_batches_that_are_refused_again_and_again_are_tried_less_often():
    columns = replace(columns_of(declared(summed)), refusals=Refusals())
    bad, good = [Tree.leaf("a")] * 1300, [TREE] * 260
    tries = []
    for number in range(20):
        columns.refusals.last = ""
        assert columns.records(bad, 100) is None
        tries += [number] * bool(columns.refusals.last)
    assert tries == [0, 1, 4, 11]
    while columns.records(good, 100) is None:
        pass
    assert columns.records(good, 100) is not None


def test_a_program_traces_by_columns_as_it_does_node_by_node():
    """Its losses and gradients are the same, and an error is told as ever."""
    model = OF_BINARY_TREES["nodes"]
    made = [fb.compile(model, "numpy", seed=3) for _ in range(2)]
    assert isinstance(made[0].lowered.columns, Columns)
    object.__setattr__(made[1].lowered, "columns", "none")
    trees = [parse_brackets("(1 (2 a) (3 (0 good) (1 film)))", int) for _ in range(260)]
    (loss, gradients), (other, others) = (program.value_and_grad(trees) for program in made)
    assert loss == other
    assert repr(gradients) == repr(others)
    with pytest.raises(ExampleError, match="at example 139"):
        made[0].value_and_grad([*trees[:139], Tree.leaf("bad", "a")])


def test_so_many_trees_that_they_are_several_records_have_the_same_traces(monkeypatch):
    block = OF_BINARY_TREES["benchmark"]
    tree = parse_brackets("(3 (2 a) (4 (1 b) (0 (2 c) (3 a))))", labels=int)
    trees = [tree] * 800
    whole = fb.compile(block, "numpy").lowered.trace_all(trees, range(800))
    monkeypatch.setattr("foldbatch.blocks.columnar.columns.MANY", 1500)
    program = fb.compile(block, "numpy")
    parts = program.lowered.trace_all(trees, range(800))
    assert len({id(trace.origin[0]) for trace in parts}) == 4
    assert all((a.packed == b.packed).all() for a, b in zip(whole, parts, strict=True))


@pytest.mark.parametrize("beside", [1, np.ones(2, "float32")], ids=["numbers", "arrays"])
def test_examples_that_may_hold_tensors_are_shown_to_who_looks_for_them(beside):
    read = fb.GetItem(1) >> (fb.Scalar() if isinstance(beside, int) else fb.Vector(2))
    block = fb.AllOf(fb.GetItem(0) >> declared(summed), read) >> fb.Function(lambda a, b: a * b)
    shown = []
    examples = [(Tree([4] * 4 + [-1], [1] * 5), beside)] * 260
    lowered(block).trace_all(examples, range(260), lambda _, data: shown.append(data))
    assert len(shown) == (not isinstance(beside, int))
