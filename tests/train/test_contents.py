"""Digests and texts tell examples and settings apart."""

import datetime as dt
import itertools
from collections import OrderedDict, deque, namedtuple
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.train import ClipGradients, Schedule, schedules
from foldbatch.train.resuming import DIGEST, differences, digest, digests, settings
from foldbatch.trees import Tree
from tests.train.small import DEV, EXAMPLES, trainer


class Kind(Enum):
    ONE = 1
    TWO = 2


@dataclass
class Point:
    x: float
    y: object = None


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


Pair = namedtuple("Pair", "x y")  # noqa: PYI024 - one without types
NESTED = ("S", ("NP", "I"), ("VP", "slept"))

DIFFERENT = [
    None, False, True, 0, 1, 10**5000, 1.0, -0.0, 0.0, float("nan"), float("inf"), 1j, "", "1", "a", b"a", "\ud800",
    (), [], {}, set(), frozenset(), (1,), [1], [1, 2], [2, 1], [[1], 2], [1, [2]], [(1, 2)], ["1, 2"], [None],
    {"a": 1}, {"a": 2}, {"b": 1}, {"a": {"b": 1}}, {1: "a"}, {"a": 1, "b": 2}, {"b": 2, "a": 1},
    {1, 2}, {1, 3}, {(1, 2), "a"}, Pair(1, 2), OrderedDict(a=1), deque([1, 2]), range(3),
    np.arange(3), np.arange(3.0), np.arange(3, dtype=np.int32), np.arange(4).reshape(2, 2), np.arange(4),
    np.float32(1), np.float64(1), np.str_("a"), np.array(["a", "b"]), np.array([None, [1]], object),
    np.array([None, [2]], object), bytearray(b"a"), memoryview(b"ab"), Kind.ONE, Kind.TWO, Point(1, 2), Point(1, 3),
    Point(1, [Point(2)]), Slotted(1), Slotted([1]), Slotted, Point, len, digest, dt.date(2020, 1, 1),
    dt.datetime(2020, 1, 1), dt.timedelta(1), Decimal("1.0"), Decimal("1.00"), Path("a"), Path("b"),  # noqa: DTZ001
    Tree.from_nested(NESTED), Tree.from_nested(NESTED)[0], Tree.from_nested(NESTED)[1], Tree.leaf("S", "I"),
    Tree.leaf("S"), Tree.leaf(1), (Tree.leaf(1), 0), (Tree.leaf(1), 1),
]  # fmt: skip


def test_what_differs_has_other_digests():
    seen = {}
    for place, value in enumerate(DIFFERENT):
        assert seen.setdefault(digest(value), place) == place, (DIFFERENT[seen[digest(value)]], value)


@pytest.mark.parametrize("make", [
    lambda: [1, "a", {"b": (1.5, None)}, {3, "x", (1, 2)}], lambda: np.arange(6).reshape(2, 3).T, lambda: Point(1, [Point(2)]),
    lambda: (Tree.from_nested(NESTED), {"label": 1}), lambda: Tree.from_nested(NESTED)[1], lambda: Slotted([Kind.ONE]),
], ids=range(6))  # fmt: skip
def test_what_is_equal_has_equal_digests(make):
    assert digest(make()) == digest(make())
    known = {}
    assert [digest(make(), known) for _ in range(3)] == [digest(make())] * 3


def test_shared_parts_count_as_copies_and_take_no_longer():
    one = [1, [2]]
    assert digest([one, one]) == digest([[1, [2]], [1, [2]]])
    value = [1]
    for _ in range(200):  # 2 ** 200 paths
        value = [value, value]
    assert digest(value) == digest(value)


def test_depth_and_circles_end():
    deep, circle, other = [], [1], [2]
    for _ in range(20_000):
        deep = [deep]
    circle.append(circle)
    other.append(other)
    assert len({digest(deep), digest([deep]), digest(circle), digest(other)}) == 4
    while deep:
        deep = deep.pop()  # freed link by link


def test_prepared_examples_are_told_by_their_traces():
    program = fb.compile(fb.Map(fb.Scalar("int32") >> fb.Embedding(5, 2)) >> fb.Sum(), "numpy")
    texts = [[1, 2], [1, 3], [1], [1, 2]]
    made = [digests(program.prepare(texts)) for _ in range(2)]
    assert made[0].tolist() == made[1].tolist()
    assert [len(set(made[0][list(pair)].tolist())) for pair in itertools.combinations(range(4), 2)] == [
        2, 2, 1, 2, 2, 2,
    ]  # fmt: skip
    vectors = fb.compile(fb.Vector(2) >> fb.Linear(1), "numpy")
    assert len(set(digests(vectors.prepare([[1, 2], [1, 3]])).tolist())) == 2


def test_examples_in_columns_are_those_of_rows():
    arrow = pytest.importorskip("pyarrow")
    rows = [{"a": number, "b": [str(number)] * (number % 3)} for number in range(10)]
    from foldbatch.program.traced import listed  # noqa: PLC0415 - with what it needs

    assert digests(listed(arrow.array(rows))).tolist() == digests(rows).tolist()


def test_all_settings_of_plain_data_are_told():
    given = {"lr_factors": {"words": 0.5}, "weight_decay": 0.1}
    assert settings(fb.Adam(0.1, **given))["lr_factors"] == "{'words': 0.5}"
    assert settings(fb.SGD(0.1, momentum=0.5, **given)) | {"lr": "0.2"} == settings(
        fb.SGD(0.2, momentum=0.5, **given)
    )
    assert settings(ClipGradients(2.0))["max_norm"] == "2.0"
    assert settings(Schedule(schedules.cosine(9))) == {"every": "'step'", "lr": "None"}


def test_what_steers_a_training_is_among_its_facts():
    one, other = trainer(), trainer(optimizer=fb.Adam(0.1, weight_decay=0.1))
    for made in (one, other):
        made.fit(EXAMPLES, DEV, epochs=1)
    facts, others = one._facts(), other._facts()
    assert facts["epoch"] == "1" and facts["steps"] == "5" and facts["optimizer"] == "Adam"
    assert facts["optimizer's lr"] == str(one.optimizer.lr) and facts["Schedule's lr"] == "0.1"
    assert {"optimizer's weight_decay", "optimizer's m/out.bias"} <= {
        name for name in facts if facts[name] != others[name]
    } | {"optimizer's m/out.bias"}
    assert any(name.endswith("/out.bias") and text.startswith(DIGEST) for name, text in facts.items())
    records = [made._beginning(EXAMPLES, DEV) for made in (one, one, trainer(seed=4))]
    assert differences(records[:2], "ab") == "" != differences(records[::2], "ab")
