"""Code is followed on all its ways, and what is not known of it is refused."""

from __future__ import annotations

import dis
from typing import Any

import pytest

from foldbatch.blocks.columnar import code
from foldbatch.blocks.columnar.code import ARGUMENT, VALUE, Code, Constant, Impure, Reads, State, is_constant

NAME = "N"


def followed(function: Any) -> tuple[Any, Reads]:
    """Return what a function of one argument returns, and what it reads; it must not call."""

    def call(called: Any, arguments: list[Any]) -> Any:
        raise AssertionError(called, arguments)

    reads = Reads()
    return Code(reads, function, call).followed(State([], {"t": ARGUMENT})), reads


def nested(t):
    if t.is_leaf:
        found = t.label
    elif t.token is None:
        return None
    else:
        found = t.size
    return found == NAME


def kept(t):
    other = t
    return other if other.label else 1


@pytest.mark.parametrize(
    ("function", "fields", "beyond"),
    [
        (nested, "is_leaf label size token", ""),
        (kept, "label", code.WHOLE),
        (lambda t: (0 < t.size < 9 and t.label) or t.token, "label size token", ""),
        (lambda t: (t.label, -t.size)[1] % 3, "label size", ""),
        (lambda t: t.label if t else t.token, "label token", ""),
        (lambda t: t["size"], "size", ""),
    ],
)
def test_all_ways_are_followed(function: Any, fields: str, beyond: str) -> None:
    result, reads = followed(function)
    assert result in (VALUE, ARGUMENT)
    assert sorted(reads.fields) == fields.split()
    assert reads.beyond == beyond


def test_a_constant_is_known() -> None:
    result, _ = followed(lambda t: "a")
    assert isinstance(result, Constant)
    assert result.value == "a"


@pytest.mark.parametrize("name", ["LOAD_FAST", "LOAD_ATTR", "COMPARE_OP", "RETURN_VALUE"])
def test_an_instruction_that_this_python_does_not_know_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = dis.get_instructions

    def newer(given: Any) -> Any:
        return [i._replace(opname=f"{i.opname}_X") if i.opname.startswith(name) else i for i in plain(given)]

    monkeypatch.setattr(code.dis, "get_instructions", newer)
    with pytest.raises(Impure, match=f"not on the list of what is pure, {name}.*_X .test_code.py:"):
        followed(lambda t: t.label == "a")


def test_code_whose_stack_is_not_as_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = dis.get_instructions
    monkeypatch.setattr(code.dis, "get_instructions", lambda given: [*plain(given)][2:])
    with pytest.raises(Impure, match="code that is not known"):
        followed(lambda t: t.label == "a")


def test_only_what_nobody_can_change_is_constant() -> None:
    class Text(str):
        __slots__ = ()

    class Pair(tuple):  # type: ignore[type-arg]
        __slots__ = ()

    assert all(map(is_constant, ("a", 1, None, b"", (1, ("a", 2.0)), frozenset([1]))))
    assert not any(map(is_constant, ([], {}, {1}, Text("a"), Pair([1]), (1, []), bytearray(), object(), 1j)))
