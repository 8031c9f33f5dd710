"""The law of the fast program: it makes the record of the program that users see, to the bit."""

from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

import foldbatch as fb
from foldbatch.blocks.lower import Lowered, lower
from foldbatch.blocks.tracer import FILENAME
from foldbatch.scheduler.arithmetic import NUMPY
from foldbatch.scheduler.policies import find_policy
from foldbatch.scheduler.record import BatchRecord
from foldbatch.system.remembering import code_of

LLVM = find_spec("llvmlite") is not None
WAYS = ("compiled", "printed", "seen") if LLVM else ("printed", "seen")


@lru_cache(400)
def lowered(block: fb.Block, way: str = WAYS[0]) -> Lowered:
    """Return a block ready to trace: by compiled calls, by printed ones, or by the program that users see."""
    arithmetic = NUMPY
    if way == "compiled":
        from foldbatch.engines.llvm.integers import compiled  # noqa: PLC0415 - it needs llvmlite

        arithmetic = compiled()
    made = lower(block, find_policy("auto"), arithmetic=arithmetic)
    object.__setattr__(made, "compiled", way == "compiled")
    if way == "seen":
        object.__setattr__(made, "code", code_of(made.source, FILENAME))
    return made


def record_of(block: fb.Block, examples: Sequence[Any], way: str = WAYS[0]) -> BatchRecord:
    return lowered(block, way).record(examples, range(len(examples)))


def check_same(block: fb.Block, examples: Sequence[Any]) -> BatchRecord:
    """Check that all ways make one record of examples; return it."""
    expected, *records = (record_of(block, examples, way) for way in reversed(WAYS))
    for record in records:
        assert_same(record, expected)
    return expected


def assert_same(record: BatchRecord, expected: BatchRecord) -> None:
    for name in ("calls", "elements", "feeds", "levels"):
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
