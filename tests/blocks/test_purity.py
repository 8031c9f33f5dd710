"""Which functions are known to be pure; and that each is called at every visit, whatever is known of it."""

import itertools
import random
import re
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

import pytest

import foldbatch as fb
from foldbatch.blocks.lower import Lowered
from foldbatch.blocks.purity import is_pure, pure
from foldbatch.errors import ExampleError
from foldbatch.trees import Tree, Vocabulary
from foldbatch.zoo.tasks import class_or_minus_one, class_or_none, number_or_nan
from foldbatch.zoo.words import name_of, subwords, words_of
from tests.blocks.functions import BEYOND, STATEFUL, Case, Opaque, of
from tests.blocks.laws import LLVM, WAYS, lowered

V = Vocabulary(["a"])


@pure
def first_letter(word: Any) -> Any:
    return word[:1] if isinstance(word, str) else word


@pytest.mark.parametrize(
    "function",
    [
        *(len, str, str.lower, V, V.__getitem__, V.__contains__, first_letter),
        *(attrgetter("is_leaf"), attrgetter("is_leaf", "size"), itemgetter("label"), itemgetter(0)),
        *(class_or_minus_one, name_of, number_or_nan, subwords, words_of, partial(class_or_none, answers=3)),
    ],
)
def test_what_is_on_the_list_is_pure(function: Any) -> None:
    assert is_pure(function)


def other_code(word: Any) -> Any:
    return random.random()


@pytest.mark.parametrize(
    "function",
    [
        *(random.random, {}.get, re.compile("a").match, dict, id, print, lambda t: t, other_code),
        *(partial(len), partial(class_or_none, answers=[3]), partial(first_letter, k=[])),
        type("Own", (Vocabulary,), {})(["a"]),
    ],
)
def test_nothing_is_known_of_any_other(function: Any) -> None:
    assert not is_pure(function)


def test_a_mark_holds_for_the_code_that_a_function_has() -> None:
    def mark(word: Any) -> Any:
        return word

    assert is_pure(pure(mark))
    mark.__code__ = other_code.__code__
    assert not is_pure(mark)


def test_no_other_object_is_marked() -> None:
    with pytest.raises(fb.errors.BlockTypeError, match="pure: expected a Python function"):
        pure(len)


# The law. A model with a function stands beside the same model with an equal function of another class, traced by
# the program that users see. Both read the same batches; then they must have made the same traces, and the
# functions have noted the same.

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
    """Check that a function is called at every visit, in the order of visits, on all ways."""
    found = []
    for way in WAYS:
        case = make()
        others = [Opaque(lambda _, c=case: [1.0, c.change()][:1])] if beside else []  # in mid-batch
        function = Opaque(case.function) if way == "seen" else case.function
        made = lowered(model(function, *others), way)
        noted = []
        for batch in batches:
            noted.append((outcome(made, batch), case.state()))
            case.change()
        found.append(noted)
    assert all(noted == found[-1] for noted in found)


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
