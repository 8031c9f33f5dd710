"""Which functions may be called once for many visits."""

from __future__ import annotations

import itertools
import math
import random
import re
from functools import partial
from operator import attrgetter, itemgetter

import pytest

from foldbatch.blocks.columnar.purity import rebound, why_impure
from foldbatch.trees import Vocabulary
from foldbatch.zoo.tasks import class_or_minus_one, class_or_none, number_or_nan
from foldbatch.zoo.words import name_of, reversed_words_of, subwords, words_of

V = Vocabulary(["a"])
IDS = {"a": 1}
SEEN: list[str] = []
COUNT = 3
TEMPLATE = "{0.__class__}"
counter = itertools.count()


def constant_of(value):
    return lambda t: (t.label, value)


def counts(t, seen=[]):  # noqa: B006
    seen.append(t)
    return len(seen)


def remembers(t):
    global COUNT
    COUNT += 1
    return t.label


def closes(start):
    def step(t):
        nonlocal start
        start += 1
        return start

    return step


def writes_to_dict(t):
    IDS[t.label] = 1
    return IDS[t.label]


def imports(t):
    import random as other  # noqa: PLC0415

    return other.random()


def later():
    if COUNT < 0:
        unset = len
    return lambda t: unset(t)


class Counting(Vocabulary):
    """A vocabulary that remembers what it is asked for."""

    def __getitem__(self, word):
        SEEN.append(word)
        return super().__getitem__(word)


class Callable:
    def __call__(self, t):
        return t


PURE = [
    lambda t: t.is_leaf,
    lambda t: t.label + COUNT if isinstance(t.label, int) else V[t.token],
    lambda t: [word.lower() for word in t.words() if word],
    lambda t: IDS.get(t.token, 0),
    lambda t: math.log(len(t)),
    lambda t: name_of(t.label),
    constant_of(2),
    constant_of(("a", 1)),
    *(attrgetter("label"), itemgetter("label"), len, str, str.lower, "abc".index),
    *(V, V.__getitem__, IDS.get, IDS.__getitem__, partial(class_or_none, answers=3)),
    *(class_or_minus_one, number_or_nan, name_of, subwords, words_of, reversed_words_of),
]
IMPURE = [
    (later(), "'unset', which is a NotImplementedType"),
    (lambda t: random.random(), "'random', which is a module"),
    (lambda t: next(counter), "it uses 'next'"),
    (lambda t: SEEN.append(t.label), "'SEEN', which is a list"),
    (lambda t: IDS.pop(t.label), "may change a dict"),
    (lambda t: id(t), "it uses 'id'"),
    (lambda t: print(t.label), "it uses 'print'"),
    (lambda t: t.__class__, "the attribute '__class__'"),
    (lambda t: TEMPLATE.format(t), "the attribute 'format'"),
    (lambda t: getattr(t, "label"), "it uses 'getattr'"),  # noqa: B009
    (constant_of([1]), "which is a list"),
    (constant_of({"a": []}), "which is a dict"),
    (constant_of(random.random), "it is a builtin_function_or_method"),
    (counts, "default may change"),
    (remembers, "it changes or imports"),
    (imports, "it changes or imports"),
    (closes(1), "it changes or imports"),
    (writes_to_dict, "may change a dict"),
    (Callable(), "it is a Callable"),
    (Counting(["a"]).__getitem__, "it is a method"),
    (constant_of(Counting(["a"])), "it uses 'value'"),
    (random.random, "it is a builtin_function_or_method"),
    ({}.pop, "it is a builtin_function_or_method"),
    (partial(max, key=print), "it is a builtin_function_or_method"),
    (partial(class_or_none, answers=[1]), "which is a list"),
]


@pytest.mark.parametrize("function", PURE)
def test_functions_of_what_cannot_change_are_pure(function):
    assert why_impure(function) == ""


@pytest.mark.parametrize(("function", "reason"), IMPURE)
def test_functions_that_may_tell_visits_apart_are_not_pure(function, reason):
    assert reason in why_impure(function)


def test_a_variable_may_change_from_constant_to_constant_alone():
    space = {"x": 1}
    function = eval("lambda t: t.label + x", space)
    bindings = []
    assert not why_impure(function, bindings)
    space["x"] = 2
    assert not rebound(bindings)
    space["x"] = re
    assert rebound(bindings)
