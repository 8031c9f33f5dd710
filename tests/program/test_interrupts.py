"""Who interrupts a run, as by Ctrl-C in a notebook, may run the program again: it computes the same.

It is interrupted at lines of what changes things that outlive a batch: buffers, what is learnt of walks.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from tests.backends import BACKENDS

pytestmark = pytest.mark.slow

OUTLIVES = {
    "memory.py": {"bring", "_allocate", "fit"},
    "arrays.py": {"held", "bring_value"},
    "cells.py": {"_admit", "of"},
    "notes.py": {"unbind", "bind", "_first_call", "_unbind_all"},
    "rounds.py": {"_admit", "_learn", "_link", "_bound", "_bind", "bind", "_room", "begin", "run"},
    "store.py": {"number", "reserve", "reach", "add", "set_owners"},
    "writer.py": {"inside"},
    "builder.py": {"define"},
}
EXAMPLES = [[1, [2, 3]], [[1, 1], [[2, 0], 3]], 3]
SOME = 12  # lines, or a few more: all of them take a minute
Line = tuple[str, int, str]  # file, number, and who has called the caller


def walk(engine: str, *, decides: bool) -> fb.Program:
    out, embed, join = (
        fb.Linear(1, name="out"),
        fb.Embedding(4, 3, name="embed"),
        fb.Linear(3, "tanh", name="join"),
    )

    @fb.cell
    def pair(left: Any, right: Any) -> Any:
        return join(fb.ops.concat([left, right]))

    def visit(x: Any) -> Any:
        h = embed(x) if isinstance(x, int) else pair(*map(visit, x))
        return h * 0.5 if decides and float(out(h)[0]) > 0 else h

    def whole(x: Any) -> Any:
        h = out(visit(x))
        fb.loss(fb.ops.sum(h * h))
        return h

    return fb.compile(whole, engine)


def block(engine: str) -> fb.Program:
    tree = fb.ForwardDeclaration(output_type=3, name="tree")
    pair = fb.Record((tree(), tree())) >> fb.Concat() >> fb.Linear(3, "tanh", name="join")
    leaf = fb.Scalar("int32") >> fb.Embedding(4, 3, name="embed")
    tree.resolve_to(fb.OneOf(lambda x: isinstance(x, int), {True: leaf, False: pair}))
    loss = fb.Function(lambda h: fb.ops.sum(h * h)) >> fb.Loss()
    both = fb.AllOf(fb.Identity(), loss) >> fb.GetItem(0)
    return fb.compile(tree() >> fb.Linear(1, name="out") >> both, engine)


MODELS: dict[str, Callable[[str], fb.Program]] = {
    "block": block,
    "walk": lambda engine: walk(engine, decides=False),
    "deciding": lambda engine: walk(engine, decides=True),
}


def traced(program: fb.Program, at: Line | None = None) -> list[Line]:
    """The lines of what outlives a batch that a program's first runs come to; it is interrupted at one."""
    found: dict[Line, None] = {}

    def trace(frame: Any, event: str, arg: Any) -> Any:
        code = frame.f_code
        name = Path(code.co_filename).name
        if "foldbatch" not in code.co_filename or code.co_name not in OUTLIVES.get(name, ()):
            return None
        line = (name, frame.f_lineno, frame.f_back.f_back.f_code.co_name)
        if event == "line" and line not in found:
            found[line] = None
            if line == at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        program.run(EXAMPLES)
        program.value_and_grad(EXAMPLES)
    except KeyboardInterrupt:
        assert at is not None
    finally:
        sys.settrace(before)
    return [*found]


@pytest.mark.parametrize("engine", [engine for engine in BACKENDS if engine != "reference"])
@pytest.mark.parametrize("model", MODELS)
def test_an_interrupted_program_computes_the_same(model: str, engine: str) -> None:
    right = MODELS[model](engine)
    lines = traced(right)
    results, (loss, gradients) = list(right.run(EXAMPLES)), right.value_and_grad(EXAMPLES)
    assert len(lines) > 20
    for line in lines[:: len(lines) // SOME]:
        program = MODELS[model](engine)
        traced(program, line)
        program.run(EXAMPLES[2:])
        program.run(EXAMPLES)
        program.params.update({name: right.params[name] for name in program.params})
        np.testing.assert_array_equal(list(program.run(EXAMPLES)), results, err_msg=str(line))
        again, found = program.value_and_grad(EXAMPLES)
        assert again == loss and found.keys() == gradients.keys(), line
        for name, gradient in found.items():
            own, other = (getattr(g, "dense", lambda g=g: g)() for g in (gradient, gradients[name]))
            np.testing.assert_array_equal(own, other, err_msg=str(line))
