"""All errors have one form, survive pickling, are the built-in ones too, and come as early as they can.

golden/misuses.txt is a table of misuses: the built-in error that a user would catch, when it is
raised, the expression that raises it, and below it what the user reads.
"""

import builtins
import copy
import inspect
import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import errors, ops
from foldbatch.blocks import tracer
from foldbatch.errors import ExampleError, ExamplePlace, FoldbatchError, WalkError, WalkNote, counted_anew

CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, FoldbatchError)]
MISUSES = Path(__file__).parent / "golden" / "misuses.txt"
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
    monkeypatch.setattr(tracer, "MAX_LEVELS", 1000)
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


class Adds(fb.Module):
    """A walk that reads a field."""

    def __init__(self) -> None:
        self.layer = fb.Linear(2, name="layer")

    def __call__(self, example: Any) -> Any:
        return self.layer(fb.tensor(example["x"]))


def joined() -> None:
    home = fb.Composition("home")
    with home.scope():
        first = fb.GetItem(0).reads(home.input)
        second = fb.Linear(3).reads(first)  # an object is no tensor
        home.output.reads(second)
    fb.compile(home)


PAIRS = fb.Record({"x": fb.Vector(2), "y": fb.Scalar()}) >> fb.Concat() >> fb.Function(ops.sum) >> fb.Loss()
BAD = [{"x": [1.0, 2.0], "y": 1.0}, {"y": 1.0}]
UNCAUGHT = {
    "run": lambda: fb.compile(PAIRS).run(BAD, losses=True),
    "fit": lambda: fb.train.Trainer(fb.compile(PAIRS), fb.Adam(), batch_size=2).fit(BAD, epochs=1),
    "arguments": lambda: fb.train.Trainer(fb.compile(PAIRS), fb.Adam()).fit(BAD),
    "walk": lambda: fb.compile(Adds()).run(BAD),
    "function": lambda: fb.compile(fb.InputTransform(lambda x: x["z"]) >> fb.Scalar()).run(BAD),
    "joint": joined,
    "constructor": lambda: fb.Linear("x"),
    "load": lambda: fb.load("nowhere.safetensors"),
}


@pytest.mark.parametrize("made", UNCAUGHT)
def test_what_nobody_catches_shows_the_users_lines_alone(made, capsys, monkeypatch):
    """Also the errors that it came of. The traceback itself stays whole, and a variable shows it."""
    with pytest.raises(Exception, match=".") as caught:
        UNCAUGHT[made]()
    error, whole = caught.value, caught.value.__traceback__
    for full in (False, True):
        monkeypatch.setenv("FOLDBATCH_TRACEBACK", "full" if full else "")
        sys.excepthook(type(error), error, whole)
        text = capsys.readouterr().err
        assert __file__ in text and (errors.PACKAGE in text) == (full and made != "arguments"), text
        if isinstance(error, FoldbatchError):  # as a notebook shows it
            shown = "".join(error._render_traceback_())
            assert __file__ in shown and (errors.PACKAGE in shown) == full
        assert error.__traceback__ is whole
    if made == "joint":
        assert f"{__file__}:{joined.__code__.co_firstlineno + 4}, in joined" in text


def test_a_fault_of_the_package_shows_its_frames(capsys: pytest.CaptureFixture[str]) -> None:
    scope: dict[str, Any] = {}
    exec(compile("def faulty(): raise RuntimeError('a fault')", f"{errors.PACKAGE}/faulty.py", "exec"), scope)
    with pytest.raises(RuntimeError) as caught:
        scope["faulty"]()
    sys.excepthook(RuntimeError, caught.value, caught.value.__traceback__)
    assert "faulty.py" in capsys.readouterr().err


def test_an_error_of_an_example_keeps_its_number_in_copies_and_counted_anew() -> None:
    error = ExampleError(ExamplePlace("tree", 3, "[1]"), "a number", "None")
    error.add_note(WalkNote(3))
    for found in (error, pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
        counted_anew(found, 256)
        assert (found.example, found.where, found.args[0]) == (259, *["tree at example 259 [1]"] * 2)
        assert found.__notes__ == ["foldbatch: in the walk of example 259"]
        counted_anew(found, -256)
    plain = WalkError("the example 3", "a walk", "none")
    counted_anew(plain, 256)
    assert (plain.example, plain.where) == (None, "the example 3")
