"""A handler of signals may raise wherever a walk notes, and the walk may catch that: no number is wrong for it.

Python runs handlers after calls of C functions, and where functions and turns of loops begin. What is raised
at each such place of our code is caught by the walk here.
"""

import dis
import sys
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import WalkError
from tests.backends import BACKENDS

ENGINES = [engine for engine in BACKENDS if engine != "reference"]
OURS = {"mixed.py", "deciding.py", "notes.py"}
BEFORE = {"CALL", "CALL_FUNCTION_EX", "CALL_KW", "RESUME", "JUMP_BACKWARD"}  # of places where handlers run
EXAMPLES = [2, 1]


class LateError(Exception):
    """What a handler raises."""


@cache
def places(code: CodeType) -> frozenset[int]:
    """Where handlers run: the instructions after those that look for signals."""
    found = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "PRECALL")]
    return frozenset(b.offset for a, b in pairwise(found) if a.opname in BEFORE)


class Handler:
    """Raises at one of the places that a function comes to, the first times that it does."""

    def __init__(self) -> None:
        self.listens = False
        self.places: dict[tuple[CodeType, int], None] = {}
        self.at: tuple[CodeType, int] | None = None

    def trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(("<foldbatch cell", "<foldbatch block")) and Path(file).name not in OURS:
            return None
        frame.f_trace_opcodes = True
        place = frame.f_code, frame.f_lasti
        if event == "opcode" and place[1] in places(place[0]):
            self.places[place] = None
            if place == self.at:
                sys.settrace(None)
                raise LateError
        return self.trace


def model(engine: str, handler: Handler) -> fb.Program:
    embed, out = fb.Embedding(9, 3, name="embed"), fb.Linear(1, name="out")
    word = fb.AllOf(fb.Scalar("int32") >> embed, fb.InputTransform(float) >> fb.Scalar())
    block = fb.Map(word >> fb.Function(lambda h, x: h * x)) >> fb.Sum()

    @fb.cell
    def leaf(word: Any, scale: Any) -> Any:
        return embed(word) * scale

    @fb.cell
    def node(children: Any, word: Any) -> Any:
        return fb.ops.segment_sum(children) + embed(word)

    def noted(word: int) -> list[Any]:
        first = leaf(word, 0.5)
        return [node([first, leaf(8, 2.0)], word), block([word, 3]), first * float(out(first)[0])]

    def walk(count: int) -> Any:
        found = []
        for number in range(count):
            try:
                sys.settrace(handler.trace if handler.listens else None)
                noted(5)
            except LateError:
                pass
            finally:
                sys.settrace(None)
            found += noted(number)
        return found

    return fb.compile(walk, engine)


def flat(results: Any) -> Any:
    return np.concatenate([np.ravel(x) for result in results for x in result])


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_handler_raises_in_the_midst_of_calls_makes_no_number_wrong(engine: str) -> None:
    handler, before, outcomes = Handler(), sys.gettrace(), Counter[str]()
    program = model(engine, handler)
    try:
        program.run(EXAMPLES)
        right = flat(program.run(EXAMPLES))
        handler.listens = True
        program.run(EXAMPLES)
        assert len(handler.places) > 60
        for at in [*handler.places]:
            handler.at, handler.listens = at, True
            try:
                found = flat(program.run(EXAMPLES))
                np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-7, err_msg=str(at))
                outcomes["went on"] += 1
            except (LateError, WalkError) as error:
                if isinstance(error, WalkError):
                    assert "broken off by a handler" in str(error) and at[0].co_filename.endswith(
                        "mixed.py"
                    ), at
                outcomes[type(error).__name__] += 1
            handler.at, handler.listens = None, False
            np.testing.assert_allclose(
                flat(program.run(EXAMPLES)), right, rtol=1e-5, atol=1e-7, err_msg=str(at)
            )
    finally:
        sys.settrace(before)
    assert outcomes["went on"] > sum(outcomes.values()) // 2 and outcomes["LateError"], outcomes


class Busy(dict[str, Any]):
    """Data that call a cell when they are read, as another thread may at any time."""

    def __getitem__(self, key: str) -> Any:
        fb.tensor(1.0)
        return super().__getitem__(key)


@pytest.mark.parametrize("decides", [False, True])
def test_calls_in_the_midst_of_others_are_refused(*, decides: bool) -> None:
    @fb.cell
    def leaf(given: Any) -> Any:
        return given[0]["x"] * 2.0

    def walk(data: Any) -> Any:
        h = leaf((data,))
        return float(h) if decides else h

    program = fb.compile(walk, "numpy")
    assert program.run([{"x": 0.5}]) == [1.0]
    for _ in range(2):
        with pytest.raises(
            WalkError, match="expected one call of a cell after the other, found some in the midst"
        ):
            program.run([Busy(x=0.5)])
    assert program.run([{"x": 0.5}]) == [1.0]
