"""Records in the loop language: they compile to what offsets compile to, and are views in plain Python."""

import doctest
from typing import Any

import numpy as np
import pytest

from foldbatch.loops import records
from foldbatch.loops.records import Header, Record
from tests.backends import needs_llvm

translation: Any = pytest.importorskip("foldbatch.loops.translation", reason="llvmlite is not installed")
pytestmark = needs_llvm


class Head(Header):
    count: int
    begin: int


class Row(Record):
    key: int
    total: int
    link: int


i8 = int
KEY, TOTAL, LINK, ROW = range(4)


def translated(text: str) -> str:
    """Return the LLVM text of a function of an array of integers."""
    definition = translation.definition_in(text)
    text_of: str = translation.translate_function("f", definition, globals(), "i8[]")
    return text_of


BY_OFFSETS = """
def function(memory) -> int:
    total = i8(0)
    for n in range(memory[0]):
        row = memory[1] + n * ROW
        memory[row + TOTAL] += memory[row + KEY]
        memory[row + KEY], memory[row + LINK] = n, -1
        total += memory[row + TOTAL] if memory[row + LINK] < 0 else memory[row + KEY]
    return total + add_offset(memory, memory[1], ROW)
"""
BY_RECORDS = """
def function(memory) -> int:
    head = Head(memory)
    total = i8(0)
    for n in range(head.count):
        row = Row(memory, head.begin + n * Row.size)
        row.total += row.key
        row.key, row.link = n, -1
        total += row.total if row.link < 0 else row.key
    return total + add_record(Row(memory, head.begin), Row.size)
"""


def add_offset(memory: Any, row: int, count: int) -> int:
    total = i8(0)
    for _ in range(count):
        total += memory[row + TOTAL]
    return total


def add_record(row: Row, count: int) -> int:
    total = i8(0)
    for _ in range(count):
        total += row.total
    return total


def test_the_text_of_records_is_that_of_offsets() -> None:
    assert translated(BY_RECORDS).replace("add_record", "add_offset") == translated(BY_OFFSETS)


def test_plain_python_writes_to_the_array() -> None:
    memory = np.array([2, 3, 0, 5, 6, 7, 8, 9, 10])
    scope = {**globals()}
    exec(BY_RECORDS, scope)
    assert scope["function"](memory) == 11 + 17 + 3 * 11
    assert memory.tolist() == [2, 3, 0, 0, 11, -1, 1, 17, -1]


@pytest.mark.parametrize(
    "lines",
    [
        "row = Row(memory, 0)\n    return row.other",
        "row = Row(memory, 0)\n    row = i8(3)\n    return row",
        "row = Row(memory, 0)\n    memory = moved(memory, 1)\n    return row.key",
        "row = Row(memory, 0)\n    part = moved(memory, 1)\n    row = Row(part, 0)\n    return row.key",
        "row = Row(memory, 0)\n    row = Head(memory)\n    return row.count",
        "row = Row(memory, 0)\n    for row in range(3):\n        memory[row] = 0\n    return 0",
        "row = Row(moved(memory, 1), 0)\n    return row.key",
        "row = i8(0)\n    row = Row(memory, 0)\n    return row.key",
    ],
)
def test_a_record_stays_a_view_of_one_array(lines: str) -> None:
    """Python would go on with the old array, or another one: the text is refused."""
    with pytest.raises(TypeError, match="expected"):
        translated(f"def function(memory) -> int:\n    {lines}\n")


def test_a_field_has_another_name_than_the_parts_of_records() -> None:
    with pytest.raises(TypeError, match="Bad: expected a name of its own for a field, found size"):
        type("Bad", (Record,), {"__annotations__": {"size": int}})


def test_examples() -> None:
    assert doctest.testmod(records).failed == 0
