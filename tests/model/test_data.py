"""Values as data: what comes back is what was given, through JSON; what cannot be written is named."""

import enum
import math
import operator
import re
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import ModelError
from foldbatch.model.data import READERS, from_data, to_data
from foldbatch.model.paths import Trust
from foldbatch.types import BroadcastType, as_type, sequence_of


class Kind(enum.Enum):
    WORD = "word"


class Code(enum.IntEnum):
    LEAF = 1


@dataclass
class Store:
    """Holds what data refer to, for writing and for reading."""

    arrays: dict[str, Any] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    trust: Trust = field(default_factory=partial(Trust, (__name__,)))

    def refer(self, x: object) -> None:
        return None

    def constant(self, array: Any) -> str:
        self.arrays["a"] = array
        return "a"

    def lose(self, what: str) -> None:
        self.lost.append(what)

    def thing(self, number: Any) -> Any:
        raise KeyError(number)


def twice(x: Any) -> tuple[Any, list[str]]:
    store = Store()
    data = msgspec.json.decode(msgspec.json.encode(to_data(x, store)))
    return from_data(data, store), store.lost


VALUES: list[Any] = [
    *(None, True, 0, -1, 2**63 - 1, 2**63, -(2**90), 0.1, -0.0, 1e-320, math.inf, -math.inf),
    *("", "ß", "\ud800x", b"\x00\xff", (), [], {}, (1, (2, [3])), {"a": (1,), 2: None, (1, "x"): []}),
    *({1, 2}, frozenset({"b", "a"}), slice(1, None, -2), range(3, 9, 2), Kind.WORD, Code.LEAF),
    *(np.int8(3), np.float32(0.1), np.bool_(True), re.compile("a+", re.IGNORECASE), re.compile(b"x")),
    *(len, str.lower, fb.ops.tanh, dict, type(None)),
    *(as_type((5, [2, "int64"], "bool", None, "object")), sequence_of((3, None)), BroadcastType(2)),
]


def test_what_comes_back_is_what_was_given():
    for value in VALUES:
        back, lost = twice(value)
        assert not lost
        assert type(back) is type(value)
        assert repr(back) == repr(value) or isinstance(value, set | frozenset)
        assert back == value or isinstance(value, slice)


def test_nan_and_arrays_come_back():
    assert math.isnan(twice(math.nan)[0])
    for array in (np.arange(3), np.zeros((0, 2), "float16"), np.array(True)):
        np.testing.assert_array_equal(twice(array)[0], array, strict=True)


FUNCTIONS_MADE = [
    (partial(int, base=2), "11"),
    (partial(operator.add, (1,)), (2,)),
    (partial(sorted, key=str.lower, reverse=True), "bAc"),
    (operator.itemgetter(0, "x"), {0: 1, "x": 2}),
    (operator.attrgetter("real"), 3),
    ({"a": 1}.get, "b"),
    (["a", "b"].index, "b"),
    ("a b".split, None),
    ({"a": 1}.__getitem__, "a"),
    (re.compile(r"\w").findall, "a b"),
    (np.array([[1, 2]]).take, 1),
]


def test_functions_made_of_plain_things_do_the_same():
    for function, argument in FUNCTIONS_MADE:
        back, lost = twice(function)
        assert not lost
        assert back(argument) == function(argument)


class Other(str):
    __slots__ = ()


nested: list[Any] = []
nested.append(nested)


WHAT_CANNOT = [
    (lambda x: x, r"^a lambda \(test_data.py:\d+\)$"),
    (partial(str, encoding="utf-8"), "^partial"),
    (partial(np.add, 1), "^partial"),
    (partial(len, 1, file=2), "^partial"),
    ("ab".encode, "the function str.encode"),
    (re.compile(b"x", re.LOCALE), "Pattern"),
    (range(10**6 + 1), "^range of 1000001"),
    ([1, {"a": object()}], "^object$"),
    (np.array(["x"]), "array"),
    (Other("x"), "Other"),
    (operator.attrgetter("__class__"), "attrgetter"),
    ("{}".format, "str.format"),
    (nested, "contain themselves"),
    (operator.methodcaller("system", "x"), "methodcaller"),
    (partial(lambda x: x, 1), "lambda"),
]


def test_what_cannot_be_written_is_named():
    for value, named in WHAT_CANNOT:
        store = Store()
        to_data(value, store)
        (text,) = store.lost
        assert re.search(named, text)


OTHER_DATA = [
    {"no": 1},
    {"function": "os:system"},
    {"attributes": ["a.__class__"]},
    {"method": ["{}", "format"]},
    {"method": [{"function": "builtins:len"}, "__self__"]},
    {"enum": ["builtins:len", "x"]},
    {"enum": ["tests.blocks.test_plain:Kind", "WORD"]},
    {"attributes": "ab"},
    {"method": ["ab", "encode"]},
    {"method": [[], "append"]},
    {"method": [{"dict": []}, "update"]},
    {"partial": [{"function": "builtins:type"}, ["X"], []]},
    {"partial": [{"partial": [{"function": "builtins:type"}, [], []]}, ["X"], []]},
    {"partial": [{"function": "builtins:str"}, [], [["encoding", "utf-8"]]]},
    {"partial": [{"function": "numpy:add"}, [1], [["out", 2]]]},
    {"partial": [{"function": "builtins:int"}, [], [["file", 2]]]},
    {"pattern": ["a", 128]},
    {"range": [0, 10**12, 1]},
    {"number": ["O", 1]},
    {"type": [-1, "float32"]},
    {"type": "x"},
    {"tuple": {"tuple": []}},
    {"list": []},
]


def test_other_data_are_refused():
    for data in OTHER_DATA:
        with pytest.raises((ModelError, fb.errors.BlockTypeError)):
            from_data(data, Store())


def test_no_array_is_written_to():
    store = Store({"a": np.arange(3)})
    take = {"method": [{"array": "a"}, "take"]}
    assert from_data(take, store)(2) == 2
    for arguments, words in (([0, None], []), ([], [["out", {"array": "a"}]])):
        with pytest.raises(ModelError, match="which takes no such"):
            from_data({"partial": [take, arguments, words]}, store)


def test_content_of_another_form_raises_an_ordinary_exception():
    for kind in READERS:
        for content in (None, 3, "x", [], {}, [1, 2, 3, 4], ["a", {}], [[1]], {"tuple": [[]]}):
            try:
                from_data({kind: content}, Store())
            except Exception as error:  # noqa: BLE001 - `plain` makes one of ours of any
                assert not isinstance(error, AssertionError)


def test_sets_are_written_in_one_order():
    letters = "qwertyuiopasdfghjkl"
    assert to_data(set(letters), Store()) == {"set": sorted(letters)}
