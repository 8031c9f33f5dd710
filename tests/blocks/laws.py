"""What the code of trees must do: make the record and the levels of the tracing program, to the bit."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import foldbatch as fb
from foldbatch.blocks.integer_code import Refused
from foldbatch.blocks.integers import TreeProgram
from foldbatch.blocks.lower import Lowered, lower
from foldbatch.engines.llvm.integers import compiled
from foldbatch.scheduler import tree_code
from foldbatch.scheduler.arithmetic import NUMPY, Arithmetic
from foldbatch.scheduler.policies import find_policy, levels
from foldbatch.scheduler.record import BatchRecord

LLVM = find_spec("llvmlite") is not None


@cache
def arithmetic() -> Arithmetic:
    """Return what traces by code: compiled, or as Python where nothing compiles."""
    return compiled() if LLVM else replace(NUMPY, traced=tree_code.traced)


@lru_cache(200)
def lowered(block: fb.Block, policy: str = "auto") -> Lowered:
    return lower(block, find_policy(policy), arithmetic=arithmetic())


def trees_of(block: fb.Block, policy: str = "auto") -> TreeProgram:
    made = lowered(block, policy).trees
    assert isinstance(made, TreeProgram), made
    return made


def why_not(block: fb.Block) -> str:
    reason = lowered(block).trees
    assert isinstance(reason, str), "it has code"
    return reason


def check_same(block: fb.Block, examples: Sequence[Any], policy: str = "auto") -> BatchRecord:
    """Check that the code makes the program's record of examples, compiled and as Python; return it."""
    made, expected = lowered(block, policy), program_record(block, examples)
    assert expected.joined is not None
    own = made.model.signatures, expected.joined.calls, expected.joined.elements, expected.joined.values
    found = levels(made.policy, *own)
    for traced in {arithmetic().traced, tree_code.traced}:
        record = trees_of(block, policy).record(traced, examples, 10**7)
        assert_same(record, expected)
        assert record.joined is not None
        for array, other in zip(record.joined.levels, found, strict=True):
            assert array.dtype == other.dtype
            np.testing.assert_array_equal(array, other, "levels")
    return record


def program_record(block: fb.Block, examples: Sequence[Any]) -> BatchRecord:
    return lowered(block).record(examples, range(len(examples)))


def refusal(block: fb.Block, examples: Sequence[Any], max_calls: int = 10**7) -> str:
    """Return why the code refuses examples that do not fit, compiled and as Python."""
    told = set()
    for traced in {arithmetic().traced, tree_code.traced}:
        with pytest.raises((Refused, TypeError)) as caught:
            trees_of(block).record(traced, examples, max_calls)
        told.add(f"{type(caught.value).__name__}: {caught.value}")
    assert len(told) == 1
    return told.pop()


def assert_same(record: BatchRecord, expected: BatchRecord) -> None:
    for name in ("calls", "elements", "feeds"):
        pairs = zip(_flat(getattr(record.joined, name)), _flat(getattr(expected.joined, name)), strict=True)
        for array, other in pairs:
            assert array.dtype == other.dtype
            np.testing.assert_array_equal(array, other, name)
    for name in ("counts", "lengths", "offsets"):
        array, other = getattr(record, name), getattr(expected, name)
        assert array.dtype == other.dtype
        np.testing.assert_array_equal(array, other, name)
    assert record.joined is not None
    assert expected.joined is not None
    assert record.joined.labels == expected.joined.labels
    for labels, others in zip(
        _flat(record.joined.labels, list), _flat(expected.joined.labels, list), strict=True
    ):
        assert list(map(type, labels)) == list(map(type, others))
    assert repr(list(record.results)) == repr(list(expected.results))


def _flat(nested: Any, kind: type = np.ndarray) -> list[NDArray[Any]]:
    return [nested] if isinstance(nested, kind) else [x for part in nested for x in _flat(part, kind)]
