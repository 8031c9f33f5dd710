"""Ops of a walk that are found by the types of their operands, and those that are not."""

from typing import Any

import numpy as np
import pytest

import foldbatch as fb
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
