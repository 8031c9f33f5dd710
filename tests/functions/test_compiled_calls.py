"""Compiled functions of CPython: they do what the code in Python does that they stand for, and keep no object."""

import sys
from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import ExampleError, FoldbatchError, WalkError
from foldbatch.functions import notes
from foldbatch.functions.cells import COUNTERS, all_cells
from foldbatch.functions.loose import RECORDER
from foldbatch.functions.values import refuse_made, value_class
from foldbatch.trees import Tree, tree
from foldbatch.types import TensorType

pytest.importorskip("llvmlite")
from foldbatch.functions import call_loops

State = NamedTuple("State", [("h", Any), ("c", Any)])  # noqa: UP014 - of no module, as a class of the user's
linear = fb.Linear(3)


class Small(int):
    """A number that is not a plain one."""


@fb.cell
def pair(x: "float32") -> Any:  # noqa: F821 - a dtype
    return x * np.ones(3, np.float32), x + np.zeros(3, np.float32)


@fb.cell
def step(left: Any, right: Any, label: Any = None) -> Any:
    fb.loss(fb.ops.mean(left[0]) if label is None else fb.ops.mean(left[0]) * fb.ops.cast(label, "float32"))
    return State(linear(left[0]) + right[1], left[1])


@fb.cell
def deeper(nested: Any) -> Any:
    (a, (b, c)), d = nested
    return a * b + c * d


@fb.cell
def added(several: Any) -> Any:
    return fb.ops.segment_sum(several[0] * several[1])


@fb.cell
def hinted(several: "list['float32[3]']", *, scale: float = 1.0, name: str = "a") -> Any:  # noqa: F821
    return fb.ops.segment_sum(several) * (scale if name == "a" else 2.0), None


@fb.cell
def read(rows: Any, number: Any) -> Any:
    return fb.ops.sum(rows, axis=0) * fb.ops.cast(number[0], "float32")


ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


def walk(example: Sequence[Any]) -> Any:
    read(ROWS, (4,)), read(ROWS[::-1], (5,)), fb.tensor(ROWS[0])
    pairs = [pair(x) for x in example]
    state: Any = pairs[0]
    for number, other in enumerate(pairs):
        state = step(tuple(state), other, *([number] if number % 2 else []))
    whole, _ = hinted([h for h, _ in pairs], scale=2.0)
    none, _ = hinted([], name="b")
    return deeper(((state.h, (whole, none)), added(pairs))), step(state, pairs[-1], 2).h


EXAMPLES = [[1, 2.5, True], [Small(3)], [np.float32(0.5), 1], [4, 5, 6, 7]]
PROGRAM = fb.compile(walk, "llvm")


def noted(given: Callable[[Any], Any], *, careful: bool) -> tuple[Any, ...]:
    """Return all that a run leaves; where `careful`, Python's code does the calls."""
    start = COUNTERS[0]
    with notes.noting(held := notes.Notes(start), [], RECORDER, careful=careful):
        notes.begin(0, 100_000)
        result = given(EXAMPLES[0]) if given is not walk else [walk(example) for example in EXAMPLES]
    found = {
        (signature.name, number): items
        for signature, lists in held.lists.items()
        for number, items in enumerate(lists.all)
    }
    lengths = {signature.name: len(signature.operands) for signature in held.lists}

    def relative(x: Any) -> Any:
        if isinstance(x, np.ndarray):
            assert not any(np.shares_memory(x, other) for other in (ROWS, GIVEN)), "arrays may be written to"
            return x.tolist(), x.dtype
        return x - start if type(x) is int and x >= start else (type(x), x)

    return (
        {key: [*map(relative, items)] for key, items in found.items()},
        COUNTERS[0] - start,
        lengths,
        values(result, start),
    )


def values(result: Any, start: int) -> Any:
    if isinstance(result, list | tuple):
        return type(result), [values(item, start) for item in result]
    return type(result), getattr(result, "n", start) - start


def test_a_compiled_call_notes_and_yields_what_the_cells_code_does() -> None:
    """Of every structure that can be told, and of some that cannot."""
    PROGRAM.run(EXAMPLES)
    assert [cell.name for cell in all_cells() if any(one.coded for one in cell.signatures)]
    assert noted(walk, careful=False) == noted(walk, careful=True)


@pytest.mark.parametrize("name", ["pair", "step", "deeper", "added", "hinted", "read"])
def test_common_structures_are_compiled(name: str) -> None:
    PROGRAM.run(EXAMPLES)
    (cell,) = [cell for cell in all_cells() if cell.name == name and cell.function.__module__ == __name__]
    assert all(
        signature.coded is not None for signature in cell.signatures if "Small" not in str(signature.specs)
    )


GIVEN = np.zeros((2, 3), np.float32)
ODD = {
    "an array of another dtype": lambda a, b: read(GIVEN.astype(np.int32), (1,)),
    "an array of another shape": lambda a, b: read(GIVEN[:1], (1,)),
    "an array of more axes": lambda a, b: read(GIVEN[None], (1,)),
    "an array of a class of its own": lambda a, b: read(GIVEN.view(np.recarray), (1,)),
    "rows of Python": lambda a, b: read([[1.0, 2.0, 3.0]], (1,)),
    "another class among the elements": lambda a, b: added([a, (a[0], 2.0)]),
    "one element too short": lambda a, b: added([a, a[:1]]),
    "of another type": lambda a, b: added([a, (b, b)]),
    "a list for a tuple": lambda a, b: step([*a], a),
    "another tuple": lambda a, b: step(namedtuple("Other", "h c")(*a), a),  # noqa: PYI024
    "a longer tuple": lambda a, b: step((*a, b), a),
    "an empty list": lambda a, b: added([]),
}


@pytest.mark.parametrize("what", ODD)
def test_what_a_compiled_call_does_not_know_is_left_to_the_cells_code(what: str) -> None:
    """With its result, or its error; nothing is noted before."""

    def run(example: Any) -> Any:
        a, b = pair(1.0), fb.tensor(2.0)
        added([a, a]), step(a, a), read(GIVEN, (1,))
        before = COUNTERS[0]
        try:
            return repr(values(ODD[what](a, b), before))
        except (FoldbatchError, IndexError) as error:
            assert COUNTERS[0] == before
            return str(error)

    assert noted(run, careful=False)[-1] == noted(run, careful=True)[-1]


def test_an_example_takes_no_more_numbers_than_it_may() -> None:
    program = fb.compile(lambda n: [pair(1.0) for _ in range(n)][-1], "llvm", options={"max_calls": 100})
    program.run([40])
    with pytest.raises(ExampleError, match="max_calls"):
        program.run([60])


def test_nothing_is_kept() -> None:
    """References to what calls meet are given back, and lists end with the run."""

    def run() -> list[int]:
        with notes.noting(notes.Notes(COUNTERS[0]), [], RECORDER):
            notes.begin(0, 1 << 60)
            for _ in range(50):
                walk(EXAMPLES[-1])
        return [sys.getrefcount(x) for x in (None, float, int, bool, tuple, State, *known)]

    known = [type(x) for x in (fb.compile(lambda x: x, "llvm"), call_loops)]
    run()
    before, after = run(), run()
    assert max(abs(one - other) for one, other in zip(before, after, strict=True)) < 40


TREES = [
    Tree.from_nested(("S", ("NP", ("D", "the"), ("N", "film")), ("VP", ("V", "slept")))),
    Tree.from_nested((1, "word")),
    Tree(np.array([5, 5, 5, 5, 5, -1], np.int64)[::1]),
    Tree([*range(1, 300), -1]),
]


@pytest.mark.parametrize("number", range(len(TREES)))
def test_nodes_are_those_that_python_makes(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given = TREES[number]
    assert tree.NodeFactory.nodes is not None, "a program of a function was made"

    def made() -> tuple[Any, Any]:
        below = tree.linked(given)
        parts = [[tuple(getattr(n, f) for f in type(n).__struct_fields__) for n in own] for own in below]
        counts = [sys.getrefcount(own) for own in below], [sys.getrefcount(n) for own in below for n in own]
        return [[(part[0] is given, *part[1:-1], len(part[-1])) for part in own] for own in parts], counts

    fast = made()
    assert (
        tree.NodeFactory.nodes(given, given.parents.astype(np.int64), given.labels, given.tokens, []) is False
    )
    monkeypatch.setattr(tree.NodeFactory, "nodes", None)
    assert fast == made()


def test_what_is_noted_has_room() -> None:
    """Rows and elements go on where their arrays are full."""

    def many(_: Any) -> Any:
        return hinted([pair(float(i))[0] for i in range(3000)], scale=2.0)[0]

    found = noted(many, careful=False)
    assert max(map(len, found[0].values())) == 3000
    assert found == noted(many, careful=True)


def test_a_number_that_is_none_is_refused() -> None:
    with notes.noting(notes.Notes(COUNTERS[0]), [], RECORDER):
        notes.begin(0, 1000)
        hinted([pair(1.0)[0]], scale=2.0)
        for odd in ("x", 2.5, 1 << 70):
            with pytest.raises(WalkError, match="one made by hand"):
                hinted([value_class(TensorType((3,), "float32"))(odd)], scale=2.0)  # type: ignore[arg-type]


def test_values_whose_parts_cannot_be_told_apart_are_left_to_python() -> None:
    value = value_class(TensorType((), "float32"))(5)
    value.n = value.unknown
    assert call_loops.caller(COUNTERS, value, refuse_made) is None
