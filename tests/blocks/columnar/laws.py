"""What columns must do: make the record that the tracing program makes, to the bit."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import foldbatch as fb
from foldbatch.blocks.columnar.columns import Columns, find
from foldbatch.blocks.columnar.kinds import Refused
from foldbatch.blocks.lower import Lowered, lower
from foldbatch.scheduler.policies import find_policy
from foldbatch.scheduler.record import TraceColumns


@lru_cache(100)
def lowered(block: fb.Block) -> Lowered:
    return lower(block, find_policy("auto"))


@lru_cache(100)
def columns_of(block: fb.Block) -> Columns:
    made = lowered(block)
    columns = find(made.tracer.functions, made.model)
    assert isinstance(columns, Columns), columns
    return columns


def why_not(block: fb.Block) -> str:
    made = lowered(block)
    reason = find(made.tracer.functions, made.model)
    assert isinstance(reason, str), "it has columns"
    return reason


def check_same(block: fb.Block, examples: Sequence[Any]) -> TraceColumns:
    """Check that columns make the program's record of examples; return it."""
    record = columns_of(block).record(examples, 10**7)
    assert_same(record, lowered(block).tracer.record(examples, range(len(examples))))
    return record


def refusal(block: fb.Block, examples: Sequence[Any], max_calls: int = 10**7) -> str:
    """Return why columns refuse examples that they do not fit."""
    with pytest.raises(Refused) as caught:
        columns_of(block).record(examples, max_calls)
    return str(caught.value)


def assert_same(record: TraceColumns, expected: TraceColumns) -> None:
    for name in ("calls", "elements", "feeds"):
        pairs = zip(_flat(getattr(record, name)), _flat(getattr(expected, name)), strict=True)
        for array, other in pairs:
            assert array.dtype == other.dtype
            np.testing.assert_array_equal(array, other, name)
    for name in ("counts", "lengths", "offsets"):
        array, other = getattr(record, name), getattr(expected, name)
        assert array.dtype == other.dtype
        np.testing.assert_array_equal(array, other, name)
    assert record.labels == expected.labels
    for labels, others in zip(_flat(record.labels, list), _flat(expected.labels, list), strict=True):
        assert list(map(type, labels)) == list(map(type, others))
    assert repr(list(record.results)) == repr(list(expected.results))


def _flat(nested: Any, kind: type = np.ndarray) -> list[NDArray[Any]]:
    return [nested] if isinstance(nested, kind) else [x for part in nested for x in _flat(part, kind)]
