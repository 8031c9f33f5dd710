"""Names of rows and elements in a kernel's text."""

from __future__ import annotations

import pytest

from foldbatch.engines.cuda.texts.kernel_text import KernelText, Setting, indented, offset_of
from foldbatch.static.op import CALL, UNBATCHED, ragged
from foldbatch.static.places import Place
from foldbatch.static.statements import Binding, Routine, Slot
from foldbatch.types import TensorType

M = ragged()
PAIR = TensorType((2,))
SLOTS = (
    Slot(Binding("operand", 0), PAIR, CALL),
    Slot(Binding("kept", 0), PAIR, M),
    Slot(Binding("segments", 0), TensorType((), "int64"), M),
    Slot(Binding("parameter", "w"), TensorType((2, 3), "float64"), UNBATCHED),
    Slot(Binding("store", 1), TensorType((2, 2), "float64"), CALL),
    Slot(Binding("scratch", 0), TensorType((5,), "bool"), CALL),
)


def text(*copied: int) -> KernelText:
    return KernelText(Setting(Routine("r", SLOTS, (), (), {M: 2}), 3, {4: 2}, frozenset(copied)))


def test_what_is_used_is_declared_once() -> None:
    """What holds for the launch stands in the head, the row before the lines that need it."""
    under_way = text()
    assert under_way.element(Place(0, CALL, 2, 1, (2,), (1,)), [("e", 1)]) == "p0[e + 1]"
    assert under_way.here(0) == "p0"
    head = list(under_way.head)
    assert under_way.declared(["f(p0);"]) == ["f4* p0 = (s0 + (at0 ? at0[r] : r) * 2);", "f(p0);"]
    assert under_way.declared(["f();"]) == ["f();"]
    under_way.here(0)
    assert under_way.head == head
    assert [line.split(" = ")[0] for line in head] == ["const int apart0", "f4* s0", "const i4* at0"]


def test_rows_that_are_copied_together_follow_each_other() -> None:
    under_way = text(0)
    assert under_way.row(0, "q") == "(s0 + (q) * 2)"
    assert not any("at0" in line for line in under_way.head)
    assert under_way.may_be_apart(0) is False
    assert text().may_be_apart(0) is True
    assert text().may_be_apart(1) is False


@pytest.mark.parametrize(
    ("axis", "lower", "rows"), [(UNBATCHED, "0", "1"), (CALL, "start", "calls"), (M, "first2", "rows2")]
)
def test_rows_of_a_level(axis: object, lower: str, rows: str) -> None:
    under_way = text()
    assert (under_way.lower(axis), under_way.rows(axis)) == (lower, rows)  # type: ignore[arg-type]
    under_way.rows(axis)  # type: ignore[arg-type]
    assert len(under_way.head) == (2 if axis is M else 0)


def test_slots_have_kinds_sizes_and_grains() -> None:
    """The grain is what one row of an arena has, several of which may be a row of a slot."""
    under_way = text()
    assert [under_way.kind(n) for n in (0, 3, 5)] == ["f4", "f8", "b1"]
    assert [under_way.size(n) for n in (0, 3, 4)] == [2, 6, 4]
    assert [under_way.grain(n) for n in (0, 4)] == [2, 2]
    assert [under_way.item(n) for n in (0, 2, 3, 5)] == [4, 8, 8, 1]
    number = under_way.rows_at("d", "i4", 6)
    assert (under_way.here(number), under_way.kind(number), under_way.size(number)) == ("d", "i4", 6)
    assert under_way.used == {}


def test_what_has_one_row_is_that_row() -> None:
    under_way = text()
    assert under_way.row(3, "r") == "s3"
    assert under_way.row(1, "q") == "(s1 + (q) * 2)"
    assert "first2 * 2" in under_way.head[-1]


def test_an_offset_leaves_out_what_is_zero() -> None:
    assert offset_of(0, []) == "0"
    assert offset_of(0, [("i", 0)]) == "0"
    assert offset_of(3, []) == "3"
    assert offset_of(0, [("i", 1), ("k", -2)]) == "i + k * -2"


def test_indented() -> None:
    assert indented(["a", "b"], 2) == ["    a", "    b"]
