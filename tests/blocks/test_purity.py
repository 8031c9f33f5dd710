"""Which functions may be called once for many visits; and that state is seen at every visit, on every way."""

import itertools
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

import pytest

import foldbatch as fb
from foldbatch.blocks.integers import TreeProgram
from foldbatch.blocks.lower import Lowered, lower
from foldbatch.blocks.purity import Reads, pure, reads_of
from foldbatch.errors import ExampleError
from foldbatch.scheduler.arithmetic import NUMPY
from foldbatch.scheduler.policies import find_policy
from foldbatch.trees import Tree, Vocabulary
from foldbatch.zoo.tasks import class_or_minus_one, class_or_none, number_or_nan
from foldbatch.zoo.words import name_of, subwords, words_of
from tests.blocks.functions import BEYOND, STATEFUL, Case, Opaque, of, random_pure
from tests.blocks.laws import LLVM, arithmetic

V = Vocabulary(["a"])


@pure
def first_letter(word: Any) -> Any:
    return word[:1] if isinstance(word, str) else word


@pytest.mark.parametrize(
    ("function", "arity"),
    [
        *((function, True) for function in (len, attrgetter("is_leaf"), itemgetter("is_leaf"), lambda t: 3)),
        *((function, True) for function in (lambda t: t.is_leaf, lambda t: not t["is_leaf"] == 1)),
        *((lambda t: t["label"] == t.token, False), (lambda t: t.label in ("a", "b"), False)),
        *((lambda t: t.label is None, False), (lambda t: t.is_leaf == t.size, False)),
        *((lambda t: t.label[0] != "N", False), (attrgetter("is_leaf", "size"), False)),
        *((itemgetter("label"), False), (itemgetter(0), False), (lambda t: t[-1], False)),
        *((function, False) for function in (str, V, V.__getitem__, lambda t: t, lambda t: t == 1)),
        *((lambda t: not t, False), (partial(class_or_none, answers=3), False), (first_letter, False)),
        *((f, False) for f in (class_or_minus_one, name_of, number_or_nan, subwords, words_of)),
    ],
)
def test_what_a_function_reads_is_told(function: Any, arity: bool) -> None:
    known = reads_of(function)
    assert isinstance(known, Reads)
    assert known.arity == arity


def generator(t):
    yield t.label


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        *((lambda t: random.random(), "LOAD_GLOBAL"), (lambda t: V, "LOAD_GLOBAL")),
        *((lambda t: t.parent, "reads parent (test_purity.py:"), (lambda t: t.label.real, "reads real")),
        *((lambda t: t.words(), ""), (lambda t: t.label is t.token, "compares by 'is'")),
        *((lambda t: t.label[t.size], "by what is no constant"),),
        *((lambda t: [t.label], "BUILD_LIST"), (lambda t: t.label + 1, "BINARY_OP")),
        *((lambda t: t.label if t.is_leaf else 1, "JUMP"), (generator, ""), (lambda *t: t, "more than one")),
        *((lambda t, *, k=1: t, "more than one"), (lambda t, u: t, "more than one")),
        *((lambda t, k=[]: t, "more than one"), (lambda t: [x for x in "a"], "")),  # noqa: C416
        *((attrgetter("label.real"), "reads label.real"), (itemgetter(slice(1)), "reads an item by a slice")),
        *((partial(len), "is a partial"), (partial(class_or_none, answers=[3]), "is a partial")),
        *((f, "that is not on the list") for f in (random.random, {}.get, re.compile("a").match, dict, id)),
    ],
)
def test_what_is_not_on_the_list_is_called_at_every_visit(function: Any, reason: str) -> None:
    known = reads_of(function)
    assert isinstance(known, str)
    assert reason in known


def test_what_is_around_a_function_is_not_on_the_list() -> None:
    around = 1
    assert isinstance(reads_of(lambda t: t.label == around), str)


def test_no_other_object_is_marked() -> None:
    with pytest.raises(fb.errors.BlockTypeError, match="pure: expected a Python function"):
        pure(len)


# The law. A model with a function stands beside the same model with an equal function of which nothing is
# known. Both read the same batches; then they must have made the same traces, and the functions have noted
# the same.

CHILDREN = fb.GetItem("children")


def one_of_each_node(function: Any, *others: Any) -> fb.Block:
    """Return the sum of a function over a tree."""
    tree = fb.ForwardDeclaration(output_type="float64", name="tree")
    own = fb.InputTransform(function) >> fb.Scalar("float64")
    more = [fb.InputTransform(each) >> fb.Vector(1) for each in others]
    below = CHILDREN >> fb.Map(tree()) >> fb.Sum()
    tree.resolve_to(fb.AllOf(own, below, *more) >> fb.Function(lambda a, b, *_: a + b))
    return tree()


def where_to_stop(function: Any, *others: Any) -> fb.Block:
    """Return a recursion that a function ends: the number of nodes that are visited."""
    tree = fb.ForwardDeclaration(output_type=[1], name="tree")
    stops = fb.InputTransform(function) >> fb.InputTransform(bool)
    below = CHILDREN >> fb.Map(tree()) >> fb.Sum()
    more = [fb.InputTransform(each) >> fb.Vector(1) for each in others]
    own = fb.OneOf(stops, {True: fb.Zeros(1), False: below})
    tree.resolve_to(fb.AllOf(own, *more) >> fb.Function(lambda first, *_: first + 1))
    return tree()


def beside_a_tree(function: Any, *others: Any) -> fb.Block:
    return fb.AllOf(one_of_each_node(len, *others), fb.InputTransform(function))


def of_words(function: Any) -> fb.Block:
    word = fb.GetItem("word") >> fb.InputTransform(function) >> fb.Scalar("float64")
    return fb.GetItem("items") >> fb.Map(word) >> fb.Sum()


def nested(random_: random.Random, size: int) -> Any:
    if size == 1:
        return random_.choice("Na"), random_.choice("abc")
    cut = random_.randrange(1, size)
    return ("N", nested(random_, cut), nested(random_, size - cut))


def made(block: fb.Block) -> Lowered:
    return lower(block, find_policy("auto"), arithmetic=arithmetic())


def outcome(lowered: Lowered, examples: Sequence[Any]) -> Any:
    """Return what traces of examples hold, or the error that tells why there are none."""
    try:
        traces = lowered.trace_all(examples, range(len(examples)))
    except ExampleError as error:
        return str(error).replace("(Opaque)", "(f)")
    arrays = [[*trace.calls, *itertools.chain.from_iterable(trace.feeds)] for trace in traces]
    return [(repr(trace.result), repr(some)) for trace, some in zip(traces, arrays, strict=True)]


def check(
    make: Callable[[], Case], model: Any, batches: Sequence[Sequence[Any]], *, beside: bool = False
) -> None:
    """Check that a function is called as one of which nothing is known."""
    found = []
    for way in ("by code", "by number", "by nodes"):
        case = make()
        others = [Opaque(lambda _, c=case: [1.0, c.change()][:1])] if beside else []  # in mid-batch
        function = Opaque(case.function) if way == "by nodes" else case.function
        lowered = made(model(function, *others))
        if way != "by code":
            lowered = replace(lowered, arithmetic=NUMPY)
        if way == "by nodes":
            vars(lowered)["numbered"] = None
        noted = []
        for batch in batches:
            noted.append((outcome(lowered, batch), case.state()))
            case.change()
        found.append(noted)
    assert found[0] == found[2]
    assert found[1] == found[2]


def trees(seed: int, sizes: Sequence[int] = (6, 1, 4)) -> list[list[Tree]]:
    random_ = random.Random(seed)
    return [[Tree.from_nested(nested(random_, size)) for size in sizes] for _ in range(3)]


MODELS = [one_of_each_node, where_to_stop, beside_a_tree]


@pytest.mark.parametrize("make", STATEFUL, ids=lambda make: make.__name__)
def test_what_a_function_keeps_is_what_it_keeps_when_it_is_called_at_every_visit(make):
    for seed, model in enumerate(MODELS):
        check(make, model, trees(seed))
        check(make, model, trees(seed), beside=True)
    words = [[{"items": [{"word": word} for word in "abca"]}, {"items": [{"word": "b"}]}]] * 3
    check(make, of_words, words)


def test_functions_on_the_list_make_the_same_by_code_and_tables() -> None:
    applied = 0
    for seed in range(24):
        make = partial(random_pure, seed, nodes=True)
        model = MODELS[seed % 3]
        check(make, model, trees(seed))
        check(make, model, trees(seed), beside=True)
        applied += isinstance(made(model(make().function)).trees, TreeProgram)
    assert applied > 19


@pytest.mark.parametrize("text", BEYOND)
def test_nodes_that_a_function_tells_apart_are_told_apart(text: str) -> None:
    for model in MODELS:
        check(lambda: Case(of(f"def f(x): return {text}", Tree=Tree)), model, trees(len(text)))


def test_lists_are_not_shared_by_examples() -> None:
    block = beside_a_tree(lambda tree: [tree.label])
    (first, second) = (
        result[1]
        for result in fb.compile(block, "llvm" if LLVM else "numpy").run([Tree.leaf("a"), Tree.leaf("a")])
    )
    assert first == second == ["a"]
    assert first is not second
