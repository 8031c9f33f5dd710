"""A new engine is a module with `load` and a line in `ENGINES`: a toy of some hundred lines obeys the law."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
from hypothesis import given

import foldbatch as fb
from foldbatch.engines.engine import ENGINES
from tests.engines import toy
from tests.oracle import meaning
from tests.programs import programs
from tests.test_laws import assert_meant, assert_same, gradients_of, some

TOY = {"toy": ("tests.engines.toy", "")}


@some
@given(programs())
def test_a_toy_engine_is_lawful(program):
    with mock.patch.dict(ENGINES, TOY):
        engine = fb.compile(program.block, "toy", threads=1, debug=True)
    meanings = [meaning(program.block, example) for example in program.examples]
    assert_meant(engine, program.examples, meanings)
    loss, gradients = gradients_of(engine, program.examples)
    assert_same(np.array(loss), np.array(float(sum(m.loss for m in meanings))))
    _, right = gradients_of(fb.compile(program.block, "numpy", threads=1), program.examples)
    assert gradients.keys() == right.keys()
    for name in gradients:
        assert_same(gradients[name], right[name])


def test_a_toy_engine_counts_what_it_runs():
    with mock.patch.dict(ENGINES, TOY):
        program = fb.compile(fb.Map(fb.Scalar() >> fb.Function(lambda x: x * x + 1)), "toy")
    program.run([[1, 2, 3]])
    assert program.engine.operations == 3 * len("x*x x*x+1 1".split())


def test_a_toy_engine_is_small():
    assert len(Path(toy.__file__).read_text().splitlines()) < 150
