"""Twins: calls that are nearly alike. What is kept of one must not answer for another.

Each call is made by a program that has made the others, where all loose cells of this process are known, and by a
program of its own, where none are: both compute the same to the bit, or refuse in the same words.
"""

import copy
import enum
import inspect
import pickle
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any, NamedTuple, Self
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.functions import loose
from foldbatch.functions.values import Value
from foldbatch.operators import FUNCTIONS

pytestmark = pytest.mark.slow

assert ops.add, "functions are entered when they are first asked for"


class One(enum.IntEnum):
    ONE = 1


@dataclass(frozen=True)
class Setting:
    part: Any


class Row(tuple[Any, ...]):
    __slots__ = ()

    def __new__(cls, *items: Any) -> Self:
        return super().__new__(cls, items)


class Pair(NamedTuple):
    part: Any


class Place(int):
    """Stands for one of `VALUES`."""


# values of several shapes and dtypes; those of one type have other numbers
VALUES: list[Callable[[], Any]] = [
    lambda: fb.tensor(np.arange(6, dtype="float32").reshape(2, 3) - 2),
    lambda: fb.tensor([3.0, -0.0, 0.25]),
    lambda: fb.tensor(np.float32([[0.5, -1, 2], [-0.0, 3, 4]])),
    lambda: fb.tensor(1),
    lambda: fb.tensor(np.array([1, 0, 1])),
    lambda: fb.tensor([True, False]),
    lambda: fb.tensor(0.5) > 0.25,
    lambda: fb.tensor(-1.5),
    lambda: fb.tensor(np.float64([1, 2, 0.5]), "float64"),
]
PLACES = [Place(i) for i in range(len(VALUES))]
ONES = [1, 1.0, True, np.float32(1), np.float64(1), np.int32(1), np.int64(1), np.bool_(True), One.ONE]
ZEROS = [0, 0.0, -0.0, False, np.float32(0), np.float32(-0.0), np.float64(-0.0), np.int64(0), None]
OTHERS = [2, 2.0, -1, 0.5, np.float32(0.5), np.int64(2), float("inf"), float("nan"), *PLACES]
ARRAYS = [np.float32([1, 2, 4]), np.float32([1, 2, 5]), np.array([1, 2, 4]), np.float64([[1], [2]])]
ARRAYS += [fb.Parameter([3], init, f"w{i}") for i, init in enumerate((1.0, 0.5))]
NUMBERS = [ONES, ZEROS, ONES, ZEROS, OTHERS, ARRAYS]
LISTS = [[x, y] for x in PLACES[:3] for y in PLACES[:3]]
# what arguments are drawn from, by name: groups of what is nearly alike
GROUPS: dict[str, Sequence[Sequence[Any]]] = {
    "axis": [ONES, [0, -1, None, True], [(0, 1), [0, 1], [1, 0], [0], (0,), [1], [True, 0], (-1, 0)]],
    "axes": [[(0, 1), [0, 1], [1, 0], (1, 0), None, [True, 0]]],
    "shape": [
        [6, (6,), [6], (6, 1), [1, 6], (6, True)],
        [(3, 2), [3, 2], (2, 3), (2, -1)],
        [(2, 2, 3), [1, 2, 3]],
    ],
    "key": [
        [0, -1, slice(0, 1), slice(1, 2), slice(0, 2), slice(None)],
        [(0, 1), [0, 1], (1, 0), [1, 0], (0, True)],
    ],
    "dtype": [
        ["float32", np.float32, np.dtype("float32"), "float64", float],
        ["int32", int, "int64", bool, "bool"],
    ],
    "keepdims": [[True, False, 1, 0]],
    "subscripts": [["ij->j", "ij->i", "ij->ji", "i->i"]],
    "xs": [LISTS, [tuple(x) for x in LISTS], [[x] * 3 for x in PLACES]],
    "parts": [[*ONES, 2]],
    "size": [[*ONES, 2], [2, 3]],
}


@dataclass
class Call:
    """A call of an op: its arguments by name, and whether options are given by name."""

    name: str
    given: dict[str, Any]
    named: bool

    def __call__(self) -> Any:
        positional, options, lists = list[Any](), dict[str, Any](), list[list[Any]]()
        for name, p in arguments(self.name).items():
            x = self.given[name]
            if isinstance(x, list | tuple):
                x = type(x)([VALUES[i]() if type(i) is Place else i for i in x])
                lists += [x] if isinstance(x, list) else []
            x = VALUES[x]() if type(x) is Place else x
            if p.kind is p.KEYWORD_ONLY or (self.named and p.default is not p.empty):
                options[name] = x
            else:
                positional += [VALUES[0](), x] if p.kind is p.VAR_POSITIONAL and name == "xs" else [x]
        found = FUNCTIONS[self.name](*positional, **options)
        for each in lists:  # what is written to them later changes nothing
            each.clear()
        return found


def arguments(name: str) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(inspect.unwrap(FUNCTIONS[name])).parameters


def drawn(draw: Random, name: str, changing: str) -> dict[int, tuple[Call, Any]]:
    """Return a call of an op that it takes, and twins, which are each another in one argument; with their outcomes.

    Of the one that is `changing`, they have all that is nearly alike.
    """
    for _ in range(6):
        groups = {n: draw.choice(GROUPS.get(n, NUMBERS)) for n in arguments(name)}
        first = next(iter(groups))
        if first not in GROUPS and draw.random() < 0.8:
            groups[first] = PLACES
        given = {n: draw.choice(group) for n, group in groups.items()}
        call = Call(name, given, named=draw.random() < 0.5)
        if type(told := alone(call)) is not tuple:
            break
    pairs = [(changing, x) for x in draw.sample(groups[changing], min(9, len(groups[changing])))]
    pairs += [(first, x) for x in draw.sample(groups[first], 2)]
    chosen = [call, *(replace(call, given=given | {n: x}) for n, x in pairs)]
    return dict(enumerate((twin, told if twin is call else alone(twin)) for twin in chosen))


@contextmanager
def nothing_known() -> Iterator[None]:
    """Return a context in which no loose cell is known."""
    with ExitStack() as stack:
        for known in ("_cells", "_places", "_of_data"):
            stack.enter_context(mock.patch.object(loose, known, {}))
        yield


def outcomes(program: fb.Program, calls: Sequence[Call]) -> list[Any]:
    """Return what a program makes of calls, each an example; of an error, its words."""
    try:
        found = program.run(calls, metrics=True).metrics
    except Exception as error:  # noqa: BLE001 - whatever an op makes of what it cannot take
        # cells of one name are numbered
        return [(type(error).__name__, re.sub(r"(?<=[a-z])_\d+|example \d+", "", str(error)))]
    of = [dict[str, Any]() for _ in calls]
    for name, metric in found.items():
        for x, example in zip(metric.values, metric.examples, strict=True):
            of[example][name] = x.tobytes()
    return of


def alone(call: Call) -> Any:
    with nothing_known():
        return outcomes(fb.compile(walk, "numpy"), [call])[0]


def walk(call: Call) -> None:
    found = call()
    for i, x in enumerate(found if isinstance(found, tuple) else (found,)):
        fb.metric(
            f"{i}{x.dtype}{x.shape}" if isinstance(x, Value) else repr(x), x if isinstance(x, Value) else 0
        )


@pytest.mark.parametrize("part", range(4))
def test_loose_ops_that_are_nearly_alike(part: int) -> None:
    draw = Random(part + 7)
    for name in sorted(FUNCTIONS.keys() - {"sample", "random", "normal"})[
        part::4
    ]:  # these draw in each run anew
        warm, (first, *others) = fb.compile(walk, "numpy"), arguments(name)
        for changing in others or [first]:
            calls = drawn(draw, name, changing)
            taken = {i: call for i, (call, told) in calls.items() if type(told) is dict}
            found = dict(zip(taken, outcomes(warm, [*taken.values()]), strict=True))
            for i, (call, told) in calls.items():
                assert (found[i] if i in taken else outcomes(warm, [call])[0]) == told, call


def number_of(x: Any) -> float:
    """Return a number that tells an object from its twins."""
    return float(zlib.crc32(f"{type(x)} {x!r}".encode()) % 1000)


@fb.cell
def of_static(x: Any, *, one: Any, two: Any = "") -> Any:
    return x + number_of(one) + 1000 * number_of(two)


@fb.cell
def of_nest(nest: Any) -> Any:
    total = 0.0
    for key, x in nest.items() if isinstance(nest, dict) else enumerate(nest):
        total = total + x * (1.0 + number_of(key))
    return total


def test_static_arguments_that_are_nearly_alike() -> None:
    plain = [*ONES, *ZEROS, 0j, -0j, "1", b"1", float("nan"), float("inf")]
    kinds = [lambda x: x, lambda x: (x, 2), lambda x: (2, (x,)), Pair, Setting, lambda x: frozenset([x]), Row]
    given = [kind(x) for kind in kinds for x in plain]
    Random(1).shuffle(given)

    def walk(_: None) -> list[Any]:
        one = fb.tensor(0.0, "float64")
        return [of_static(one, one=x) for x in given] + [of_static(one, one=1, two=x) for x in given]

    found = fb.compile(walk, "numpy").run([None, None])  # the second time, all are known
    expected = [number_of(x) + 1000 * number_of("") for x in given] + [
        number_of(1) + 1000 * number_of(x) for x in given
    ]
    assert found == [expected, expected]


def test_nests_that_are_nearly_alike() -> None:
    keys = [
        x
        for x in (*ONES, *ZEROS, "1", b"1", (1,), (True,), (-0.0,), (0.0,))
        if type(x).__module__ == "builtins"
    ]
    nests = [{key: 1.0, "b": 2.0} for key in keys] + [{"b": 2.0, key: 1.0} for key in keys]
    nests += [kind(range(1, size)) for kind in (tuple, lambda x: Row(*x)) for size in (2, 3, 4)]
    Random(1).shuffle(nests)

    def values_of(nest: Any) -> Any:
        if isinstance(nest, dict):
            return {key: fb.tensor(x, "float32") for key, x in nest.items()}
        made = [fb.tensor(x, "float32") for x in nest]
        return Row(*made) if isinstance(nest, Row) else type(nest)(made)

    walk = fb.compile(lambda _: [of_nest(values_of(nest)) for nest in nests], "numpy")
    expected = [of_nest.cell.function(nest) for nest in nests]
    assert walk.run([None, None]) == [expected, expected]


class Scaled(fb.Module):
    """A module with a cell that reads a layer and an attribute."""

    def __init__(self, factor: float) -> None:
        self.layer, self.factor = fb.Linear(1, init="ones"), factor

    @fb.cell
    def scaled(self, x: Any) -> Any:
        return self.layer(x) * self.factor

    def __call__(self, x: float) -> Any:
        return self.scaled(fb.tensor([x]))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_of_a_module_compute_with_their_own_parts(copied: Callable[[Scaled], Scaled]) -> None:
    first = Scaled(2.0)
    assert fb.compile(first, "numpy").run([3.0]) == [6.0]
    second = copied(first)
    second.factor, second.layer = 5.0, copy.deepcopy(second.layer)
    second.layer.parameters["weight"].assign([[10.0]])
    assert fb.compile(second, "numpy").run([3.0]) == [150.0]
    assert fb.compile(first, "numpy").run([3.0]) == [6.0]


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_copies_have_names_in_the_order_in_which_they_were_made(order: list[int]) -> None:
    first = Scaled(1.0)
    fb.compile(first, "numpy").warm([3.0])
    both = [first, copy.deepcopy(first)]
    both[1].layer.parameters["weight"].assign([[10.0]])
    program = fb.compile(lambda which: both[which](3.0), "numpy")
    program.warm(order)
    weights = {name: float(x.sum()) for name, x in program.params.items() if name.endswith("weight")}
    assert weights == {"layer.weight": 1.0, "layer_1.weight": 10.0}


class Holder(fb.Module):
    def __init__(self, inner: Any) -> None:
        self.inner = inner


def test_names_are_those_of_the_first_module_that_holds_a_part() -> None:
    def name(module: Any) -> str:
        return name(module.inner) if isinstance(module, Holder) else module.layer.owner.name

    inner = Holder(Scaled(1.0))
    copied = copy.deepcopy(Holder(copy.deepcopy(inner)))
    outer, beside = Holder(inner), Holder(inner.inner)
    for late in (inner, inner.inner, beside, copied.inner):
        Holder(late)
    assert name(outer) == name(beside) == name(copied) == "inner.inner.layer"
    assert name(Holder(copy.deepcopy(inner))) == "inner.inner.inner.layer"


def test_a_module_may_hold_the_one_that_holds_it() -> None:
    """As a node holds its parent; names end."""
    above = Holder(None)
    below = Holder(above)
    below.layer, above.inner = fb.Linear(2), below
    assert below.layer.owner.name == "inner.layer"


def test_a_pickled_part_of_two_modules_is_named_by_the_first() -> None:
    part, both = Scaled(1.0), Holder(None)
    both.inner = [Holder(part), Holder(part)]
    read = pickle.loads(pickle.dumps(both))
    Holder(read)
    assert read.inner[1].inner.layer.owner.name == "inner.inner.0.inner.layer"
