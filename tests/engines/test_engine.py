"""Engines by name: which there are, which is chosen, and what every one of them can be asked."""

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines import cuda
from foldbatch.engines import engine as engines
from foldbatch.engines.engine import (
    ENGINES,
    VARIABLE,
    Backend,
    EngineSettings,
    check_precision,
    choose_engine,
    choose_launch,
    load_engine,
)
from foldbatch.errors import BackendError, SlowPathWarning, UnknownNameError
from foldbatch.loops import compiling
from foldbatch.planning.policies import Costs
from tests.backends import needs_llvm
from tests.engines.cuda.emulated import gpu_answers
from tests.programs import BlockProgram, programs
from tests.programs.comparing import assert_meant, assert_same, gradients_of, many

needs_gpu = [pytest.mark.gpu, pytest.mark.skipif(not gpu_answers(), reason="there is no GPU")]
NAMES = ["reference", "numpy", "cuda-on-cpu"]
NAMES += [pytest.param("llvm", marks=needs_llvm), pytest.param("cuda", marks=needs_gpu)]


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
    assert isinstance(engine.costs, Costs)
    assert isinstance(engine.source([0]), str)
    memory = engine.memory()
    weight, bias = (program.params[name] for name in ("layer.weight", "layer.bias"))
    for training in (True, False):
        batch = fb.program.schedule(program, BATCH)
        ready = engine.ready(batch, training=training)
        run = engine.forward(ready, batch.feeds, memory)
        order = batch.schedule.cells[0].order
        right = np.array([x for example in BATCH for x in example]) @ weight + bias
        np.testing.assert_allclose(run.metrics[0, 0], right[order])
        np.testing.assert_allclose(run.loss_sums()[0, 0], (right**2).sum())
        numbers = batch.merged.trace.calls[0][:, 0].tolist()
        np.testing.assert_allclose(run.fetch(numbers), right)
        assert run.fetch([]) == []
        if training:
            gradients = {p.name: g for p, g in run.backward().items()}
            np.testing.assert_allclose(gradients["bias"], 2 * right.sum(axis=0))
        assert run.launches >= 0
        assert engine.nbytes(ready) >= 0


@pytest.mark.parametrize("name", NAMES)
def test_a_line_of_the_table_names_a_module_that_loads_and_what_it_needs(name: str) -> None:
    module, needed = ENGINES[name]
    backend = import_module(module).BACKEND
    assert (len(backend.precisions), len(backend.launches)) == {
        "cuda": (5, 3),
        "cuda-on-cpu": (3, 3),
        "cuda-on-ptx": (2, 3),
        "numpy": (2, 1),
        "llvm": (2, 1),
    }.get(name, (1, 1))
    assert needed == {"llvm": "llvmlite.binding", "cuda": "cupy"}.get(name, "")


@pytest.fixture(autouse=True)
def no_backend_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@contextmanager
def gpu(*, works: bool = True) -> Iterator[None]:
    """A machine where a GPU seems to be, and can be used, or not."""
    trouble = BackendError("backend cuda", "cuBLAS", "none", "pip install it")
    with mock.patch.object(cuda, "load_driver", mock.Mock(side_effect=None if works else trouble)):
        yield


@pytest.fixture
def no_gpu() -> Iterator[None]:
    with gpu(works=False):
        yield


@pytest.mark.parametrize("name", NAMES)
def test_an_engine_is_chosen_by_its_name(name: str) -> None:
    assert choose_engine(name) == name
    assert fb.compile(fb.Vector(2), name).options.backend == name


def test_auto_is_no_gpu_unless_somebody_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with gpu():
        assert choose_engine("auto") in {"llvm", "numpy"}
        assert choose_engine("cuda") == "cuda"
        monkeypatch.setenv(VARIABLE, "cuda")
        assert choose_engine("auto") == "cuda"


def test_a_gpu_that_cannot_be_used_is_told_of() -> None:
    with gpu(works=False), pytest.raises(BackendError, match="backend cuda: expected cuBLAS"):
        choose_engine("cuda")


def test_auto_imports_no_engine() -> None:
    """Of a GPU's least of all."""
    with mock.patch.object(engines, "import_module", mock.Mock(side_effect=AssertionError)):
        assert choose_engine("auto") in {"llvm", "numpy"}


def test_auto_is_what_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only ``auto``; nothing, or ``auto`` itself, is no name."""
    monkeypatch.setenv(VARIABLE, "reference")
    assert choose_engine("auto") == "reference"
    assert choose_engine("numpy") == "numpy"
    assert fb.compile(fb.Vector(2)).options.backend == "reference"
    with gpu():
        for nothing in ("", "auto"):
            monkeypatch.setenv(VARIABLE, nothing)
            assert choose_engine("auto") in {"llvm", "numpy"}


def test_an_unknown_name_in_the_environment_is_told_with_the_variable(monkeypatch):
    monkeypatch.setenv(VARIABLE, "cdua")
    names = "auto, cuda, llvm, numpy, reference, cuda-on-cpu, cuda-on-ptx"
    with pytest.raises(UnknownNameError) as error:
        fb.compile(fb.Vector(2))
    assert str(error.value) == f"FOLDBATCH_BACKEND: expected one of {names}, found 'cdua'"


@pytest.mark.parametrize(
    ("name", "has"),
    [
        ("reference", "fp32, the only one"),
        ("numpy", "fp32 or bf16, the only ones"),
        ("cuda-on-cpu", "fp32 or 3xtf32 or mixed, the only ones"),
    ],
)
def test_an_engine_refuses_precisions_that_it_lacks(name: str, has: str) -> None:
    check_precision("fp32", name)
    told = rf"precision: expected {has} of the backend {name}, found 'tf32'; leave precision out, or take"
    with pytest.raises(BackendError, match=told):
        fb.compile(fb.Vector(2), name, options={"precision": "tf32"})


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "3xtf32", "mixed"])
def test_a_precision_reaches_the_engine_and_those_made_of_its_program(precision: str) -> None:
    """Also the programs that a program makes of itself."""
    real = import_module("foldbatch.engines.numpy").load
    asked = []

    def load(model: Any, settings: Any) -> Any:
        asked.append(settings.precision)
        return real(model, settings._replace(precision="fp32"))

    with mock.patch.object(cuda, "BACKEND", replace(cuda.BACKEND, load=load)), gpu():
        program = fb.compile(model(), "cuda", options={"precision": precision})
        program.run(BATCH, losses=True)
        program.vjp(BATCH, inputs=True)
    assert program.options.precision == precision
    assert len(asked) > 1
    assert {*asked} == {precision}


@pytest.fixture
def asks_again() -> Iterator[None]:
    """Whether this process can compile is asked once; here it is before and after a test."""
    compiling.can_compile.cache_clear()
    yield
    compiling.can_compile.cache_clear()


def test_auto_is_the_first_that_can_be_had(no_gpu: None) -> None:
    assert choose_engine("auto") == ("llvm" if find_spec("llvmlite") else "numpy")


@pytest.mark.parametrize("error", [ImportError, OSError])  # the latter where there is no room for the library
def test_auto_is_numpy_where_llvmlite_is_broken_and_warns_once(
    no_gpu: None, asks_again: None, error: type[Exception]
) -> None:
    def broken(name: str) -> Any:
        if name == "llvmlite.binding":
            raise error("libllvm is missing")
        return __import__(name, fromlist=["load"])

    with mock.patch.object(compiling, "import_module", broken):
        said = (
            "compiled code: expected llvmlite to be installed, found libllvm is missing; results are the same"
        )
        with pytest.warns(SlowPathWarning, match=said) as caught:
            assert choose_engine("auto") == "numpy"
            assert choose_engine("auto") == "numpy"
            assert fb.compile(fb.Map(fb.Scalar()) >> fb.Sum()).run([[1, 2]]) == [3]
        assert len(caught) == 1
        with pytest.raises(
            BackendError, match=r"backend llvm: expected llvmlite to be installed, found libllvm"
        ):
            choose_engine("llvm")


def test_what_is_not_installed_is_told_with_what_to_do() -> None:
    with (
        mock.patch.dict(sys.modules, {"llvmlite": None, "llvmlite.binding": None}),
        pytest.raises(BackendError, match=r"backend llvm: expected llvmlite .* pip install llvmlite"),
    ):
        choose_engine("llvm")


@pytest.mark.llvm
def test_without_sources_auto_is_numpy_and_llvm_is_refused(no_gpu: None, asks_again: None) -> None:
    """Where only .pyc files are installed, as by ``compileall -b`` or in a frozen application."""
    pytest.importorskip("llvmlite", reason="llvmlite is not installed")
    block, refused = (
        fb.Map(fb.Scalar()) >> fb.Sum(),
        "the sources of foldbatch, which it compiles, found none;",
    )
    compiling.has_sources.cache_clear()
    try:
        with mock.patch.object(inspect, "getsource", side_effect=OSError("could not get source code")):
            with pytest.warns(SlowPathWarning, match=f"expected {refused} results are the same"):
                program = fb.compile(block)
            assert program.run([[1, 2]]) == [3] and program.options.backend == "numpy"
            with pytest.raises(
                BackendError, match=f"backend llvm: expected {refused} install foldbatch with"
            ):
                fb.compile(block, "llvm")
    finally:
        compiling.has_sources.cache_clear()


@pytest.mark.llvm
def test_the_old_name_holds_for_a_release() -> None:
    pytest.importorskip("llvmlite", reason="llvmlite is not installed")
    with pytest.warns(DeprecationWarning, match="backend: numba is called llvm now"):
        assert fb.compile(fb.Scalar(), "numba")._runner.engine.name == "llvm"


def test_only_the_reference_takes_one_example_at_a_time() -> None:
    program = fb.compile(fb.Vector(2), "numpy")
    assert load_engine("reference", program.model).one_by_one
    assert not load_engine("numpy", program.model).one_by_one


def test_a_new_engine_is_a_line_in_the_table() -> None:
    """Its module has a `BACKEND`; what it needs is told if it is missing."""
    fake = mock.Mock(spec=["BACKEND"], BACKEND=Backend(mock.Mock()))
    lines = {"fake": ("fake_engine", ""), "lacking": ("fake_engine", "no_such_module")}
    with mock.patch.dict(ENGINES, lines), mock.patch.dict(sys.modules, {"fake_engine": fake}):
        assert choose_engine("fake") == "fake"
        load, wanted = fake.BACKEND.load, EngineSettings(debug=True)
        assert load_engine("fake", "model", wanted) is load.return_value  # type: ignore[arg-type]
        load.assert_called_once_with("model", wanted)
        with pytest.raises(BackendError, match="expected no_such_module to be installed"):
            choose_engine("lacking")


@settings(many, max_examples=10)
@given(programs())
def test_an_engine_of_a_few_lines_is_lawful(program: BlockProgram) -> None:
    engine = fb.compile(program.block, "reference", threads=1, debug=True)
    meanings = [program.meant(example) for example in program.examples]
    assert_meant(engine, program.examples, meanings)
    loss, gradients = gradients_of(engine, program.examples)
    assert_same(np.array(loss), np.array(float(sum(m.loss for m in meanings))))
    _, right = gradients_of(fb.compile(program.block, "numpy", threads=1), program.examples)
    assert gradients.keys() == right.keys()
    for name in gradients:
        assert_same(gradients[name], right[name])


def test_ways_to_launch_are_of_backends_that_have_several(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_launch("auto", "numpy") == "auto"
    assert choose_launch("captured", "cuda-on-cpu") == "captured"
    with pytest.raises(UnknownNameError, match=r"launch: expected one of auto, straight, .*, found 'graph'"):
        choose_launch("graph", "cuda-on-cpu")
    with pytest.raises(BackendError, match="launch: expected auto, the only one of the backend numpy, found"):
        choose_launch("captured", "numpy")
    monkeypatch.setenv("FOLDBATCH_LAUNCH", "captured")
    assert choose_launch("auto", "cuda-on-cpu") == "captured"
    assert choose_launch("straight", "cuda-on-cpu") == "straight"
    assert choose_launch("auto", "numpy") == "auto"
    monkeypatch.setenv("FOLDBATCH_LAUNCH", "all")
    for backend in ("numpy", "cuda-on-cpu"):  # alike on all
        with pytest.raises(UnknownNameError, match="FOLDBATCH_LAUNCH: expected one of"):
            choose_launch("auto", backend)
