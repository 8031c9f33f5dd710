"""Names of rows are found wherever functions of a model keep them."""

from __future__ import annotations

import functools
import types

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import TrainingError
from foldbatch.train.contents import digests
from foldbatch.train.names import Table, check_names, tables
from foldbatch.trees import Vocabulary

WORDS = Vocabulary(["good", "film"])
IDS = {"good": 0, "film": 1}
LISTED = ["good", "film"]
module = types.ModuleType("words_of_mine")
module.TABLE = {"good": 1, "film": 2}
NAMES = {"good": 0, "film": 1}, ["good", "film"]


class Reader:
    def __init__(self):
        self.ids = dict(IDS)

    def read(self, word):
        return self.ids[word]

    def __call__(self, word):
        return self.read(word)


class Slotted:
    __slots__ = ("ids",)

    def __init__(self):
        self.ids = dict(IDS)

    def __call__(self, word):
        return self.ids[word]


def number_in(table, word):
    return table[word]


def by_default(word, table=IDS):
    return table[word]


def through_another(word):
    return by_global(word)


def by_global(word):
    return IDS[word]


def nested(word):
    return [IDS[each] for each in [word]][0]  # noqa: RUF015 - code within code


@functools.cache
def cached(word):
    return IDS[word]


def in_closure():
    table = dict(IDS)
    return lambda word: table[word]


MADE = {"x": in_closure()}
FUNCTIONS = {
    "vocabulary": WORDS, "method of a vocabulary": WORDS.__getitem__, "global vocabulary": lambda w: WORDS[w],
    "closure": in_closure(), "partial": functools.partial(number_in, dict(IDS)), "default": by_default,
    "global": by_global, "through another": through_another, "nested": nested, "cached": cached,
    "method": Reader().read, "object": Reader(), "slots": Slotted(), "dict's method": dict(IDS).__getitem__,
    "list": lambda w: LISTED.index(w), "list's method": LISTED.index, "module": lambda w: module.TABLE[w],
    "dict of functions": lambda w, made=MADE: made["x"](w),
}  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_tables_are_found(function):
    program = fb.compile(fb.InputTransform(function) >> fb.Scalar("int32") >> fb.Embedding(3, 2), "numpy")
    (table,) = tables(program).values()
    assert table.names[-2:] == ["good", "film"]


def test_lists_of_blocks_are_found():
    block = fb.OneHotFromList(["red", "blue"])
    (table,) = tables(fb.compile(block, "numpy")).values()
    assert table.names == ["red", "blue"]


@pytest.mark.parametrize(
    ("numbers", "names"),
    [
        ({"b": 1, "a": 0}, ["a", "b"]),
        ({"a": 2, "b": 3}, [None, None, "a", "b"]),
        ({"a": 7, "b": 5}, [(5, "b"), (7, "a")]),
    ],
)
def test_rows_without_names_are_counted(numbers, names):
    program = fb.compile(fb.InputTransform(numbers.get) >> fb.Scalar("int32") >> fb.Embedding(9, 2), "numpy")
    assert tables(program)["names of rows"].names == names


@pytest.mark.parametrize("seen", [[], ["a", "a"], {}, {"a": 0, "b": 0}, {"a": "b"}, {"a": 1.5}, {"a": True}])
def test_what_names_no_rows_is_none(seen):
    assert tables(fb.compile(fb.InputTransform(lambda x: (seen, x)[1]) >> fb.Scalar(), "numpy")) == {}


def table(*words):
    return {"vocabulary": Table(None, list(words), digests(words))}


def kept(*words):
    return {"vocabulary": digests(words), "gone": digests(["x"])}


@pytest.mark.parametrize(
    ("present", "before", "found"),
    [
        ("abc", "acb", "expected the 3 names .* 'b' at row 1, which was the name of row 2"),
        ("abx", "abc", "'x' at row 2, which is new"),
        ("ab", "abc", "found 2 names, and none for row 2"),
        ("abcd", "abc", None),
        ("abc", "abc", None),
    ],
)
def test_rows_keep_their_names_and_new_ones_may_come(present, before, found):
    if found is None:
        check_names(table(*present), kept(*before), "last")
    else:
        with pytest.raises(TrainingError, match=f"last: vocabulary: .*{found}"):
            check_names(table(*present), kept(*before), "last")


def test_digests_follow_a_dict_that_grows():
    ids = {"a": 0}
    one = Table(ids, ["a"], digests(["a"]), 1)
    assert one.refresh() is one.digests
    ids["b"] = 1
    np.testing.assert_array_equal(one.refresh(), digests(["a", "b"]))
