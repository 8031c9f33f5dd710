"""All errors have one form, survive pickling, are the built-in ones too, and come as early as they can.

golden/block_errors.txt is a table of misuses: the built-in error that a user would catch, when it is
raised, the expression that raises it, and below it what the user reads.
"""

from __future__ import annotations

import builtins
import inspect
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import errors, ops
from foldbatch.blocks import tracer
from foldbatch.errors import FoldbatchError

CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, FoldbatchError)]
MISUSES = Path(__file__).parent / "golden" / "block_errors.txt"
ENTRY = re.compile(r"(\w+) when (composed|compiled|run): (.*)")
ENTRIES = [ENTRY.fullmatch(line).groups() for line in MISUSES.read_text().splitlines()[::2]]
MOVED = {"Items": fb.blocks.Items, "RNTN": fb.blocks.RNTN, "TreeRNN": fb.blocks.TreeRNN, "types": fb.types}
PUBLIC = MOVED | {name: getattr(fb, name) for name in dir(fb) if not name.startswith("_")}


def test_every_error_says_where_expected_found_and_fix() -> None:
    """Also KeyErrors, which Python would print as a repr."""
    for kind in CLASSES:
        error = kind("here", "this", "that", "do so")
        assert str(error) == "here: expected this, found that; do so"
        assert str(kind("here", "this", "that")) == "here: expected this, found that"
        again = pickle.loads(pickle.dumps(error))
        assert (again.where, again.expected, again.found, again.fix) == ("here", "this", "that", "do so")


def test_every_error_derives_from_a_built_in_one() -> None:
    """So that code written without foldbatch in mind can catch it."""
    for kind in [c for c in CLASSES if c is not FoldbatchError]:
        built_in = (TypeError, ValueError, LookupError, AttributeError, RuntimeError, Warning)
        assert issubclass(kind, built_in)


def names() -> dict[str, Any]:
    """What the expressions of the table may use, besides what foldbatch exports."""
    tree = fb.ForwardDeclaration(output_type="float32", name="tree")
    pair = fb.Record((tree(), tree())) >> fb.Function(lambda a, b: a + b)
    tree.resolve_to(fb.OneOf(lambda x: isinstance(x, list), {False: fb.Scalar(), True: pair}))
    wrong = fb.ForwardDeclaration(output_type=2, name="wrong")
    wrong.resolve_to(fb.Vector(3))
    untyped = fb.ForwardDeclaration(name="untyped")
    untyped.resolve_to(fb.Scalar())
    endless = fb.ForwardDeclaration(output_type=2, name="endless")
    endless.resolve_to(fb.Record((endless(), fb.Scalar())) >> fb.GetItem(0))
    ping = fb.ForwardDeclaration(output_type=2, name="ping")
    pong = fb.ForwardDeclaration(output_type=2, name="pong")
    ping.resolve_to(fb.GetItem(0) >> pong())
    pong.resolve_to(fb.GetItem(0) >> ping())
    cyclic: list[Any] = [1]
    cyclic.append(cyclic)
    deep: Any = "end"
    for i in range(60):
        deep = [i, deep]
    own = {name: value for name, value in locals().items() if name not in ("pair", "i")}
    state, numbers = fb.Record((fb.Vector(2), fb.Vector(2))), fb.Map(fb.Scalar())
    repeated = fb.Scalar() >> fb.Broadcast()
    weight = fb.Parameter([], init=0.0, name="w")
    error = fb.Scalar() >> fb.Function(lambda x: (weight - x) ** 2) >> fb.Loss()
    more = {"state": state, "numbers": numbers, "repeated": repeated, "shared": fb.Linear(3), "error": error}
    rooms = {name: getattr(fb, name) for name in ("params", "schema", "zoo")}
    return {
        **vars(fb.blocks),
        **PUBLIC,
        **own,
        **more,
        **rooms,
        "np": np,
        "ops": ops,
        "add": fb.Function(lambda a, b: a + b),
    }


def scope(wire: Callable[[fb.Composition, fb.Composition], Any]) -> fb.Composition:
    """A composition that a function wires; it is also given another one, with a scope open around."""
    inner, outer = fb.Composition("inner"), fb.Composition("outer")
    with outer.scope(), inner.scope():
        wire(inner, outer)
    return inner


def misuse(expression: str) -> tuple[Exception, str]:
    """The error that an expression raises, and when."""
    times = ["composed"]

    def compile(*args: Any, **kwargs: Any) -> fb.Program:
        times.append("compiled")
        program = fb.compile(*args, **kwargs)
        times.append("run")
        return program

    def run(block: Any, *examples: Any) -> Any:
        return compile(block).run(examples)

    with pytest.raises(Exception) as caught:
        eval(expression, {**names(), "compile": compile, "run": run, "scope": scope})
    return caught.value, times[-1]


def test_every_misuse_says_where_what_was_expected_what_was_found_and_what_to_do(golden, monkeypatch):
    """It raises what a user would catch, as early as it is known."""
    monkeypatch.setattr(tracer, "DEEPEST", 1000)
    lines = []
    for kind, time, expression in ENTRIES:
        error, raised = misuse(expression)
        lines += [f"{kind} when {time}: {expression}", f"    {type(error).__name__}: {error}"]
        assert isinstance(error, getattr(builtins, kind)), expression
        assert isinstance(error, FoldbatchError), expression
        assert raised == time, expression
        assert str(error) != repr(error.args), expression
        assert error.fix or isinstance(error, errors.UnknownNameError | errors.BlockTypeError), expression
    golden(MISUSES.name, "\n".join(lines) + "\n")
    assert len({expression for _, _, expression in ENTRIES}) == len(ENTRIES)
