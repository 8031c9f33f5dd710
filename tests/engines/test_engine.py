"""Engines by name: which there are, which is chosen, and what every one of them can be asked."""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines import engine as engines
from foldbatch.engines.engine import AUTO, ENGINES, choose_engine, load_engine
from foldbatch.errors import BackendError, UnknownNameError
from foldbatch.scheduler.arithmetic import Arithmetic
from tests.engines import toy
from tests.oracle import meaning
from tests.programs import BlockProgram, programs
from tests.test_laws import assert_meant, assert_same, gradients_of, some

needs_numba = [
    pytest.mark.numba,
    pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed"),
]
NAMES = ["reference", "numpy", pytest.param("numba", marks=needs_numba)]


def model() -> fb.Block:
    """Vectors, projected: a value and a metric for each, and the sum of squares as their loss."""
    layer = fb.Linear(2, name="layer")
    square = fb.Function(lambda h: ops.sum(h * h)) >> fb.Loss()
    return fb.Map(fb.Vector(3, "float64") >> layer >> fb.AllOf(fb.Identity(), fb.Metric("h"), square))


BATCH = [[[1.0, 2.0, 3.0], [0.5, -1.0, 0.0]], [], [[2.0, 0.0, 1.0]]]


@pytest.mark.parametrize("name", NAMES)
def test_every_engine_runs_a_model_both_ways(name: str) -> None:
    """What `Engine` and `Run` promise, of all engines there are."""
    program = fb.compile(model(), "numpy", threads=1)
    engine = load_engine(name, program.model)
    assert engine.name == name
    assert isinstance(engine.arithmetic, Arithmetic)
    assert isinstance(engine.source([0]), str)
    memory = engine.memory()
    weight, bias = (program.params[name] for name in ("layer.weight", "layer.bias"))
    for training in (True, False):
        batch = program.schedule(BATCH)
        ready = engine.ready(batch, training=training)
        run = engine.forward(ready, batch.feeds, memory)
        order = batch.schedule.cells[0].order
        right = np.array([x for example in BATCH for x in example]) @ weight + bias
        np.testing.assert_allclose(run.metrics[0, 0], right[order])
        np.testing.assert_allclose(run.losses[0, 0], (right**2).sum(axis=1)[order])
        numbers = batch.merged.trace.calls[0][:, 0].tolist()
        np.testing.assert_allclose(run.fetch(numbers), right)
        assert run.fetch([]) == []
        if training:
            gradients = {p.name: g for p, g in run.backward().items()}
            np.testing.assert_allclose(gradients["bias"], 2 * right.sum(axis=0))
        assert run.launches >= 0
        assert engine.nbytes(ready) >= 0


@pytest.mark.parametrize("name", NAMES)
def test_values_that_were_fetched_are_the_callers(name: str) -> None:
    """The next batch does not change them."""
    program = fb.compile(model(), "numpy", threads=1)
    engine = load_engine(name, program.model)
    memory, batch = engine.memory(), program.schedule(BATCH)
    (first, *_) = engine.forward(engine.ready(batch, training=False), batch.feeds, memory).fetch([0])
    kept = first.copy()
    other = program.schedule([[[9.0, 9.0, 9.0]]])
    engine.forward(engine.ready(other, training=False), other.feeds, memory)
    np.testing.assert_array_equal(first, kept)


@pytest.mark.parametrize("name", NAMES)
def test_a_line_of_the_table_names_a_module_that_loads_and_what_it_needs(name: str) -> None:
    module, needed = ENGINES[name]
    load = inspect.signature(import_module(module).load)
    assert list(load.parameters) == ["model", "debug"]
    assert needed == ("numba" if name == "numba" else "")


def test_all_engines_are_tested_here() -> None:
    assert [*ENGINES] == ["reference", "numpy", "numba"]


@pytest.mark.parametrize("name", NAMES)
def test_an_engine_is_chosen_by_its_name(name: str) -> None:
    assert choose_engine(name) == name
    assert fb.compile(fb.Vector(2), name).options.backend == name


def test_auto_is_the_first_that_can_be_had() -> None:
    assert choose_engine("auto") == ("numba" if find_spec("numba") else "numpy")
    assert AUTO[-1] == "numpy"  # which needs nothing
    with mock.patch.object(engines, "find_spec", lambda name: None):
        assert choose_engine("auto") == "numpy"


def test_auto_leaves_out_what_is_installed_and_broken() -> None:
    def broken(name: str) -> Any:
        if name == "numba":
            raise ImportError("libllvm is missing")
        return __import__(name, fromlist=["load"])

    with (
        mock.patch.object(engines, "find_spec", lambda name: object()),
        mock.patch.object(engines, "import_module", broken),
    ):
        assert choose_engine("auto") == "numpy"
        with pytest.raises(
            BackendError, match=r"backend numba: expected Numba to be installed, found libllvm"
        ):
            choose_engine("numba")


def test_what_is_not_installed_is_told_with_what_to_do() -> None:
    with (
        mock.patch.dict(sys.modules, {"numba": None}),
        pytest.raises(
            BackendError, match=r"backend numba: expected Numba .* pip install 'foldbatch\[numba\]'"
        ),
    ):
        choose_engine("numba")


@pytest.mark.parametrize("name", ["nunpy", "", None, 3, ["numpy"]])
def test_an_unknown_name_lists_what_there_is(name: Any) -> None:
    with pytest.raises(
        UnknownNameError, match=r"backend: expected one of auto, numba, numpy, reference, found"
    ):
        choose_engine(name)
    with pytest.raises(UnknownNameError):
        fb.compile(fb.Vector(2), name)


def test_only_the_reference_takes_one_example_at_a_time() -> None:
    program = fb.compile(fb.Vector(2), "numpy")
    assert load_engine("reference", program.model).one_by_one
    assert not load_engine("numpy", program.model).one_by_one


def test_a_debugging_engine_fills_memory_with_nan() -> None:
    program = fb.compile(model(), "numpy", threads=1)
    for debug in (True, False):
        engine: Any = load_engine("numpy", program.model, debug=debug)
        memory = engine.memory()
        batch = program.schedule(BATCH)
        engine.forward(engine.ready(batch, training=True), batch.feeds, memory)
        floats = [array for array in memory[True].arrays if array is not None and array.dtype.kind == "f"]
        assert any(np.isnan(array).any() for array in floats) == debug


def test_a_new_engine_is_a_line_in_the_table() -> None:
    """Its module has a function `load`; what it needs is told if it is missing."""
    fake = mock.Mock()
    lines = {"fake": ("fake_engine", ""), "lacking": ("fake_engine", "no_such_module")}
    with mock.patch.dict(ENGINES, lines), mock.patch.dict(sys.modules, {"fake_engine": fake}):
        assert choose_engine("fake") == "fake"
        assert load_engine("fake", "model", debug=True) is fake.load.return_value  # type: ignore[arg-type]
        fake.load.assert_called_once_with("model", debug=True)
        with pytest.raises(BackendError, match="expected No_such_module to be installed"):
            choose_engine("lacking")


# -- a toy engine of some hundred lines: what a new one must have, and no more

TOY = {"toy": ("tests.engines.toy", "")}


@settings(some, max_examples=20)
@given(programs())
def test_a_toy_engine_is_lawful(program: BlockProgram) -> None:
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


def test_a_toy_engine_counts_what_it_runs() -> None:
    with mock.patch.dict(ENGINES, TOY):
        program = fb.compile(fb.Map(fb.Scalar() >> fb.Function(lambda x: x * x + 1)), "toy")
    program.run([[1, 2, 3]])
    assert program.engine.operations == 3 * len("x*x x*x+1 1".split())


def test_a_toy_engine_is_small() -> None:
    assert len(Path(toy.__file__).read_text().splitlines()) < 150
