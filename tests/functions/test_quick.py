"""Ops of a walk that are found by the types of their operands, and those that are not."""

from typing import Any, Self

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import GraphError
from tests.backends import LLVM


def quick(x: Any) -> Any:
    v = fb.tensor(x)
    i = fb.ops.argmax(v)
    pairs = [fb.ops.stack([v, v], 0), fb.ops.stack([v, v, v], 0), fb.ops.concat([v, v[:2]], 0)]
    cut = v[i:], v[0], v[1], v[True : i + 1], v[:2], v[0:2], fb.ops.reshape(v, (1, 3))[0, i:]
    named = fb.ops.gather(v, ids=i), fb.ops.tanh(x=v), fb.ops.cross_entropy(v, label=i)
    mixed = v + 1, v + 1.0, 1 + v, v * v, fb.ops.minimum(v, 2), fb.ops.sum(v), fb.ops.sum(v, axis=0)
    return (*pairs, *cut, *named, *mixed)


@pytest.mark.parametrize("engine", ["numpy", *LLVM])
def test_ops_that_are_found_at_once_are_those_that_are_looked_for(engine: str) -> None:
    """Indices by computed numbers read these; operands may have names; lists have as many items as there are."""
    x = [1.0, 5.0, 2.0]
    program, v = fb.compile(quick, engine), np.array(x, np.float32)
    losses = np.log(np.exp(v).sum()) - v[1]
    cut = v[1:], v[0], v[1], v[1:2], v[:2], v[0:2], v[1:]
    pairs = np.stack([v, v]), np.stack([v, v, v]), np.concatenate([v, v[:2]])
    expected = (
        *pairs,
        *cut,
        v[1],
        np.tanh(v),
        losses,
        v + 1,
        v + 1,
        v + 1,
        v * v,
        np.minimum(v, 2),
        v.sum(),
        v.sum(),
    )
    for given in (x, x, x[::-1], x):
        for found, wanted in zip(program.run([given])[0], expected, strict=True):
            if given == x:
                np.testing.assert_allclose(found, wanted, rtol=1e-5)


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
