"""Random programs of float32 in bfloat16, on two engines: ``FOLDBATCH_FLOAT=float32 python -m tests.programs.rounded 0 100``.

Both round the same factors, and differ by the order of sums: where that makes a factor round to the next number, and
where one engine adds up cotangents first. Both are a fraction of what rounding changes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np

import foldbatch as fb
from foldbatch.params.parameters import dense
from tests.programs import drawn
from tests.programs.recipes import FLOAT

WAYS = ("numpy", "fp32"), ("numpy", "bf16"), ("llvm", "bf16")


def main(first: int, last: int) -> None:
    """Check programs, and that rounding changes most of them."""
    assert FLOAT == "float32"
    changed = [check(number) for number in range(first, last)]
    assert sum(changed) >= len(changed) / 2, changed


def check(number: int) -> bool:
    """Return whether rounding changes what the random program of a number computes."""
    rng = Random(number)
    program = drawn(rng.randrange(2**32), 10**6, size=rng.choice([15, 30]))
    exact, right, found = (_computed(program.block, program.examples, *way) for way in WAYS)
    for x, y, z in zip(exact, right, found, strict=True):
        error, apart = np.linalg.norm(z - y), np.linalg.norm(x - y)
        assert error <= max(1e-5 * np.linalg.norm(x), 0.3 * apart), (number, error, apart)
    return any(np.not_equal(x, y).any() for x, y in zip(exact, right, strict=True))


def _computed(block: fb.Block, examples: Any, backend: Any, precision: Any) -> tuple[np.ndarray, np.ndarray]:
    program = fb.compile(block, backend, threads=1, debug=True, options={"precision": precision})
    results = _joined(list(program.run(examples)))
    _, gradients = program.value_and_grad(examples)
    return results, _joined([dense(g) for g in gradients.values()])


def _joined(value: Any) -> np.ndarray:
    return np.concatenate([np.zeros(0), *_leaves(value)])


def _leaves(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, list | tuple):
        for part in value:
            yield from _leaves(part)
    elif value is not None:
        yield np.ravel(np.asarray(value, "float64"))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
