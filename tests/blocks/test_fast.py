"""The fast program makes the record of the program that users see, to the bit, and fails as that does."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from benchmarks.workload import tree_lstm as benchmark_model
from foldbatch.blocks import recorder
from foldbatch.blocks.lower import Lowered, lower
from foldbatch.blocks.purity import pure
from foldbatch.errors import ExampleError
from foldbatch.scheduler.policies import find_policy
from foldbatch.trees import Tree, Vocabulary, parse_brackets
from foldbatch.zoo.models import MODELS
from foldbatch.zoo.tasks import Task
from foldbatch.zoo.words import Words
from tests.blocks.forests import WORDS, batches
from tests.blocks.laws import LLVM, WAYS, assert_same, check_same, lowered, record_of

V = Vocabulary(WORDS[:3])
WHOLE = Words(V, size=2)
NODES, ROOT = Task("nodes", classes=5, dropout=0.5), Task("root", classes=5)
FEW = settings(max_examples=5)
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
def test_records_of_binary_trees_are_alike(name, examples):
    check_same(OF_BINARY_TREES[name], examples)


@pytest.mark.parametrize("name", OF_TREES)
@FEW
@given(examples=batches())
def test_records_of_trees_are_alike(name, examples):
    """Of nodes of trees, too, and of one tree alone."""
    nodes = [node for tree in examples for node in tree.nodes()]
    for some in ([*examples, *nodes[::3]], examples[:1], nodes[:1]):
        with suppress(ExampleError):  # all ways refuse it
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
@given(random_blocks(), batches())
def test_records_of_random_blocks_are_alike(block, examples):
    nodes = [node for tree in examples for node in tree.nodes()]
    check_same(block, [*examples, *nodes[:2]])


class Part:
    """An object that is read as a tree is."""

    def __init__(self, label: int, *children: "Part") -> None:
        self.parts = {"label": label, "children": children}

    def __getitem__(self, key: str) -> Any:
        return self.parts[key]


def test_other_objects_are_read_beside_trees() -> None:
    tree = Tree.from_nested((1, (2, "x"), (3, "y")))
    record = check_same(declared(summed), [tree, Part(1, Part(2), Part(3)), tree, tree[1]])
    assert record.counts[0].tolist() == record.counts[1].tolist() == record.counts[2].tolist()


def test_trees_in_examples_are_read_as_examples_are() -> None:
    """A tree twice, a node of it, and a tree of a class of the user's."""

    class Own(Tree):
        def __getitem__(self, key: Any) -> Any:
            return 7 if key == "label" else super().__getitem__(key)

    tree = Tree.from_nested((1, (2, (3, "x"), (4, "y")), (5, "z")))
    own = Own(tree.parents, tree.labels, tree.tokens)
    several = fb.Map(declared(summed)) >> fb.Sum()
    record = check_same(several, [[tree, tree[0], own], [tree], tree, [own]])
    assert record.joined is not None
    labels = [2, 3, 4, 5, 1], [2, 3, 4], [2, 3, 4, 5, 7]
    assert sorted(record.joined.feeds[0][0].tolist()[:13]) == sorted(x for part in labels for x in part)


def test_whole_nodes_are_nodes() -> None:
    """Results and functions of the user get nodes, and at the root the tree itself."""
    kinds = fb.InputTransform(lambda node: int(type(node) is Tree) + 2 * node.size)
    own = kinds >> fb.Scalar("int32") >> fb.Embedding(20, 2)
    block = fb.AllOf(declared(lambda tree: summed(tree, own)), fb.Identity())
    tree = Tree.from_nested(("a", ("b", "x"), ("c", "y")))
    record = check_same(block, [tree, tree[0]])
    assert record.joined is not None
    assert record.joined.feeds[0][0].tolist() == [2, 2, 7, 2]
    assert record_of(block, [tree]).results[0][-1] is tree


def test_lists_of_children_that_users_are_given_are_theirs() -> None:
    """A function takes the first child out of its list, and later blocks read all children."""
    taken = fb.InputTransform(lambda children: len([children.pop(0), *children])) >> row()
    first = fb.GetItem("children") >> taken
    block = declared(lambda tree: fb.OneOf(LEAF, {True: fb.Zeros(2), False: summed(tree, first)}))
    tree = Tree.from_nested((1, (2, (3, "x"), (4, "y")), (5, "z")))
    record = check_same(block, [tree])
    assert record.joined is not None
    assert record.joined.feeds[1][0].tolist() == [2, 2]


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


LIMIT = 1


def test_what_a_function_reads_by_name_may_change() -> None:
    global LIMIT
    block = declared(lambda tree: summed(tree, row(lambda node: int(len(node) > LIMIT))))
    tree = Tree([2, 2, -1])
    try:
        for LIMIT, expected in ((1, [0, 0, 1]), (5, [0, 0, 0])):  # noqa: B007
            assert record_of(block, [tree]).joined.feeds[0][0].tolist() == expected
    finally:
        LIMIT = 1


TREE = parse_brackets("(1 (2 a) (3 (0 good) (1 film)))", int)
MISFITS = {
    "an id out of bounds": (declared(summed), Tree.leaf(9)),
    "a label that is no number": (declared(summed), Tree.leaf("a")),
    "no label": (declared(summed), Tree([1, -1])),
    "no token": (fb.GetItem("token") >> row(), TREE),
    "a missing child": (fb.GetItem(0) >> fb.GetItem("label") >> row(), Tree.leaf(1)),
    "a missing child of a node": (
        fb.GetItem(0) >> fb.GetItem(0) >> fb.GetItem("label") >> row(),
        Tree.from_nested((1, (2, "a"))),
    ),
    "too many children": (fb.Record((fb.GetItem("label") >> row(),)), TREE),
    "too many children of a node": (
        OF_BINARY_TREES["benchmark"],
        Tree.from_nested((1, (1, "x"), (1, *[(1, "y")] * 3))),
    ),
    "one child": (OF_BINARY_TREES["benchmark"], Tree.from_nested((1, (1, "x"), (1, (1, "y"))))),
    "no case": (fb.OneOf(LEAF, {True: fb.GetItem("label") >> row()}), TREE),
    "a function that fails": (row(pure(lambda t: t.label + "a")), TREE),
}


@pytest.mark.parametrize("name", MISFITS)
def test_errors_are_the_same(name: str) -> None:
    """They name the example, and its place."""
    block, bad = MISFITS[name]
    fits = []
    for tree in (TREE, Tree.leaf(1, "a"), Tree([1, -1], [1, 1], ["a", "a"])):
        with suppress(ExampleError):
            record_of(block, [tree])
            fits.append(tree)
    found = set()
    for way in WAYS:
        with pytest.raises(ExampleError, match=f"at example {7 + len(fits)}") as caught:
            lowered(block, way).trace_all([*fits, bad, *fits], range(7, 30))
        found.add((type(caught.value), str(caught.value)))
    assert len(found) == 1


@pytest.mark.parametrize("way", WAYS)
def test_an_example_may_make_as_many_calls_as_are_allowed(way: str) -> None:
    block = declared(summed)
    calls = int(record_of(block, [TREE]).counts.sum())
    for most in (calls, calls - 1):
        made = lower(block, find_policy("auto"), most, arithmetic=lowered(block, way).arithmetic)
        if most == calls:
            assert len(made.trace_all([TREE] * 3, range(3))) == 3
            continue
        with pytest.raises(ExampleError, match=f"at example 1: expected at most {most} calls"):
            made.trace_all([Tree.leaf(1), TREE], range(2))


@pytest.mark.parametrize("size", [1, 2, 100_000])
def test_trees_of_one_node_and_as_deep_as_any_are_traced(size: int) -> None:
    chain = Tree([*range(1, size), -1], [i % 5 for i in range(size)])
    assert check_same(declared(summed), [chain]).counts.sum() == size


def test_no_tree_is_kept_between_runs() -> None:
    made = lowered(declared(summed))
    made.record([Tree([2, 2, -1], [1, 1, 1])], [0])
    for namespace, _ in made.unused:
        assert namespace["tree"] is None
        assert namespace["kids"] is None


def test_so_many_trees_that_they_are_several_records_have_the_same_traces(monkeypatch: Any) -> None:
    made, tree = (
        lowered(OF_BINARY_TREES["benchmark"]),
        parse_brackets("(3 (2 a) (4 (1 b) (0 (2 c) (3 a))))", int),
    )
    whole = made.trace_all([tree] * 100, range(100))
    monkeypatch.setattr(recorder, "FULL_RECORD", 150)
    parts = made.trace_all([tree] * 100, range(100))
    assert len({id(trace.origin[0]) for trace in parts}) > 4
    assert all((a.packed == b.packed).all() for a, b in zip(whole, parts, strict=True))


def test_threads_may_trace_at_once() -> None:
    block = OF_TREES["last child first"]
    trees = [Tree([n] * n + [-1], [1] * (n + 1)) for n in (1, 2, 3)] + [Tree.leaf(1)]
    some = [trees[n:] + trees[:n] for n in range(4)] * 8
    with ThreadPoolExecutor(8) as pool:
        records = [*pool.map(partial(record_of, block), some)]
    for record, examples in zip(records, some, strict=True):
        assert_same(record, record_of(block, examples, "seen"))


# -- compiled calls


def recorded(made: Lowered) -> tuple[dict[str, Any], recorder.Recorder]:
    """Return the globals of a run that has just begun, and its recorder."""
    made.record([TREE], [0])
    namespace, run = made.unused[-1]
    run.begin(namespace)
    return namespace, run


def test_calls_read_lists_of_numbers_and_of_tuples() -> None:
    pairs = fb.Map(fb.Scalar() >> fb.Function(lambda x: (x, 2 * x)))
    both = pairs >> fb.RNN(fb.Function(lambda x, s: (s, s + x[0] * x[1])), initial_state=fb.Zeros([]))
    summed_pairs = pairs >> fb.Map(fb.Function(lambda a, b: a * b)) >> fb.Sum()
    for block in (both >> fb.GetItem(1), summed_pairs, pairs >> fb.blocks.Map(fb.GetItem(1)) >> fb.Mean()):
        check_same(block, [[1.0, 2.0], [], [3.0]])


@pytest.mark.llvm
@pytest.mark.skipif(not LLVM, reason="llvmlite is not installed")
def test_what_is_no_list_is_noted_by_the_printed_call() -> None:
    namespace, run = recorded(lowered(declared(summed)))
    name = next(name for name in namespace if name.startswith("call") and run.lists[int(name[4:])].elements)
    k = int(name[4:])
    for sequence in ([5, 6], (5, 6)):
        before, start = [*run.lists[k].rows], [*run.lists[k].elements[0]]
        number = namespace[name](sequence, 3)
        assert run.lists[k].rows.tolist() == [*before, number, 2]
        assert run.lists[k].elements[0].tolist() == [*start, 5, 6]
    assert type(namespace[name]).__name__ == "builtin_function_or_method"
    with pytest.raises(TypeError):
        namespace[name](["a"], 3)
