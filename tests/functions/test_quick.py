"""Ops of a walk that are found by the types of their operands, and those that are not."""

import copy
from typing import Any, Self

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import GraphError
from tests.backends import LLVM

W, B = fb.Parameter([3, 2], name="W"), fb.Parameter([2], name="B")
EXPRESSIONS = [
    lambda v, n: (ops.stack([v, v], 0), ops.stack([v, v, v], 0), ops.concat([v, v[n : n + 1]])),
    lambda v, n: (v[n : n + 1], v[n], v[True:2], v[:2], v[0:2], ops.reshape(v, (1, 3))[0, n : n + 1]),
    lambda v, n: (ops.reshape(v, [3, 1]), ops.reshape(v, (1, 3)), v.reshape(3)),
    lambda v, n: (ops.gather(v, ids=n), ops.gather(v, n), ops.gather(v, np.int64(n))),
    lambda v, n: (ops.cross_entropy(v, n), ops.cross_entropy(v, np.int32(n)), ops.tanh(x=v)),
    lambda v, n: (v + n, n + v, v + (n + 0.5), v * v, ops.clip(v, 0, n), v > n),
    lambda v, n: (v * np.float64(n), v - np.float32(n), v @ W, v.mean(), ops.sum(v)),
    lambda v, n: (ops.sum(v, axis=0), ops.sum(v, 0, keepdims=True), ops.sum(v, axis=0, keepdims=np.True_)),
    lambda v, n: (np.full(3, n) - v, ops.minimum(np.full(2, n + 0.5), B), np.full((3, 2), n) * B, B + n),
    lambda v, n: (v + np.full(3, n), v + np.full(1, n + 0.5), v + np.full((2, 3), n, np.int8)),
    lambda v, n: (ops.clip(v, low=np.full(3, n)), ops.cross_entropy(v, label=n, weights=np.full(3, n + 1.0))),
    lambda v, n: (
        v @ np.full(3, n + 0.5),
        ops.where(condition=v > n, a=v, b=0.0),
        ops.mean(v, keepdims=True),
    ),
    lambda v, n: (ops.where(v > 1, n, 0), ops.where(v > 1, v, n), ops.argmax(v) + n),
]


@pytest.mark.parametrize("engine", ["numpy", *LLVM])
def test_ops_that_are_found_at_once_are_those_that_are_looked_for(engine: str) -> None:
    """In a walk they make what they make in a cell of each number, whatever numbers came before."""

    def cell_of(expression: Any) -> Any:
        @fb.cell
        def known(v: Any, *, n: int) -> Any:
            return expression(v, n)

        return known

    def walk(x: Any) -> Any:
        v = fb.tensor([1.0, 5.0, 2.0])
        i = fb.ops.argmax(v)  # an index by a computed number reads it
        read = (v[i:], v[True : i + 1], fb.ops.gather(v, ids=i)), (v[1:], v[1:2], v[1])
        pairs = [
            (expression(v, x), made(v, n=x)) for expression, made in zip(EXPRESSIONS, cells, strict=True)
        ]
        return (*pairs, read)

    cells = [cell_of(expression) for expression in EXPRESSIONS]
    program = fb.compile(walk, engine)
    for number in (1, 2, 0, 2, 1):
        for own, other in program.run([number])[0]:
            for found, wanted in zip(own, other, strict=True):
                np.testing.assert_array_equal(found, wanted)


class Named(tuple[Any, ...]):  # noqa: SLOT001 - a tuple can have no others than `__dict__`
    """A tuple whose class does more when it is made."""

    name: str

    def __new__(cls, *items: Any) -> Self:
        made = super().__new__(cls, items)
        made.name = "two"
        return made


@fb.cell
def halves(x: Any) -> Any:
    return Named(x * 0.5, x * 0.25)


@pytest.mark.parametrize("engine", ["numpy", *LLVM])
def test_classes_of_tuples_make_their_results_themselves(engine: str) -> None:
    """What a call yields is made by its class, where that is no plain named tuple, each time."""

    def walk(x: float) -> Any:
        many = [halves(fb.tensor(x)) for _ in range(3)]
        assert [made.name for made in many] == ["two"] * 3
        return many[-1][1]

    assert fb.compile(walk, engine).run([4.0, 8.0]) == [1.0, 2.0]


def test_ints_that_no_bool_is_are_refused_beside_bools() -> None:
    """As a bool, 2 would be true: ``flags == 2`` is not what NumPy makes of it."""
    program = fb.compile(lambda x: fb.tensor(x) == 2, "numpy")
    with pytest.raises(GraphError, match="expected operands of one dtype .bool., found the int 2"):
        program.run([np.array([True, False])])
    found = fb.compile(lambda x: fb.tensor(x) == 1, "numpy").run([np.array([True, False])])
    assert found[0].tolist() == [True, False]


def test_what_holds_values_can_be_copied() -> None:
    """As searches copy their beams; a value is its own copy, as nothing changes it."""

    @fb.cell
    def doubled(x: Any) -> Any:
        return copy.deepcopy([x * 2.0])[0]

    def walk(x: float) -> Any:
        beam = [doubled(x), {"h": (fb.tensor(x),)}]
        other: Any = copy.deepcopy(beam)
        other[0] += 1.0
        return beam[0], other[0], copy.copy(other[1]["h"][0])

    program = fb.compile(walk, "numpy")
    assert program.run([1.5, 2.0]) == [(3.0, 4.0, 1.5), (4.0, 5.0, 2.0)]
    assert program.debug(1.5).result == (3.0, 4.0, 1.5)


@pytest.mark.parametrize("home", ["elsewhere", __name__])
def test_super_finds_one_cell_where_classes_have_one_name(home: str) -> None:
    class Base(fb.Module):
        __module__ = home

        @fb.cell
        def step(self, x: Any) -> Any:
            return x * 2.0

    first = Base

    class Base(first):  # type: ignore[no-redef,valid-type,misc]
        @fb.cell
        def step(self, x: Any) -> Any:
            return super().step(x) + 1.0

    last = Base

    class Base(last):  # type: ignore[no-redef,valid-type,misc]
        @fb.cell
        def step(self, x: Any) -> Any:
            return super().step(x) * 3.0

        def __call__(self, x: float) -> Any:
            return super().step(self.step(fb.tensor(x)))

    program = fb.compile(Base(), "numpy")
    assert [program.run([1.0])[0] for _ in range(4)] == [19.0] * 4
    assert "linked once" in str(program.describe([1.0]))
