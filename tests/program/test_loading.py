"""Programs are saved, and loaded."""

import json
import os
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.errors import (
    FoldbatchError,
    ModelError,
    NotWholeWarning,
    ParameterError,
    ReadError,
    UnknownNameError,
)
from foldbatch.params.parameters import dense
from foldbatch.params.saved import KIND
from foldbatch.program import read_notes
from foldbatch.system import files
from tests import kept
from tests.backends import TESTED
from tests.knobs import knobs
from tests.programs import drawn

SEEDS = range(2)


def plainly(x: Any) -> Any:
    """Return results as what JSON holds, to the bit."""
    if isinstance(x, list | tuple):
        return [plainly(part) for part in x]
    return [str(x.dtype), x.shape, x.tobytes().hex()] if isinstance(x, np.ndarray) else repr(x)


def outcome(program: fb.Program, examples: list[Any]) -> Any:
    """Return all that a step yields."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step = program.step(examples, step=3)
    gradients = {name: plainly(dense(gradient)) for name, gradient in step.gradients.items()}
    metrics = {name: plainly(metric.values) for name, metric in step.metrics.items()}
    losses = {name: repr(float(loss)) for name, loss in step.losses.items()}
    return json.loads(json.dumps([plainly(list(step.results)), losses, gradients, metrics]))


def saved(block: Any, folder: Path, **options: Any) -> Path:
    fb.compile(block, "numpy", **knobs(options)).save(folder / "model.safetensors")
    return folder / "model.safetensors"


@pytest.mark.slow
def test_random_programs_compute_the_same_here_and_in_another_process(tmp_path):
    """Every block stands in random programs; results, losses, metrics and gradients, and the file itself."""
    expected = {}
    for seed in SEEDS:
        random = drawn(seed, 500, dropout=True)
        program = fb.compile(random.block, "numpy", threads=1)
        program.save(tmp_path / str(seed))
        twin = fb.load(tmp_path / str(seed), "numpy", trust=["tests"], threads=1)
        twin.save(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == (tmp_path / str(seed)).read_bytes()
        expected[str(seed)] = outcome(program, random.examples)
        assert outcome(twin, random.examples) == expected[str(seed)]
    code = (
        "import json, sys; from tests.program.test_loading import *\n"
        "print(json.dumps({seed: outcome(fb.load(f'{sys.argv[1]}/{seed}', 'numpy', trust=['tests'], threads=1),"
        " drawn(seed, 500, dropout=True).examples) for seed in SEEDS}))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert json.loads(done.stdout) == expected


def test_a_declarative_model_needs_no_script_and_another_one_says_how_to_trust_it(tmp_path):
    """A process that imports foldbatch alone predicts, with the vocabulary of the file."""
    words = fb.trees.Vocabulary(["good", "bad"])
    ids = fb.Map(fb.InputTransform(words) >> fb.Scalar("int32") >> fb.Embedding(3, 2)) >> fb.Sum()
    whole, other = tmp_path / "whole", tmp_path / "other"
    fb.compile(ids >> fb.Function(fb.ops.tanh), "numpy").save(whole)
    fb.compile(fb.Scalar() >> fb.Function(kept.squared), "numpy").save(other)
    code = (
        "import foldbatch as fb, sys; print(fb.load(sys.argv[1], 'numpy').run([['bad', 'x']])[0].tolist())\n"
        "print(*fb.load(sys.argv[2], 'numpy', trust=['tests.kept']).run([2]))\n"
        "fb.load(sys.argv[2])"
    )
    command = [sys.executable, "-c", code, str(whole), str(other)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    first, second = done.stdout.splitlines()
    assert json.loads(first) == fb.load(whole, "numpy").run([["bad", "x"]])[0].tolist()
    assert second == "4.0"
    line = done.stderr.splitlines()[-1]
    assert line.startswith(
        f"foldbatch.errors.ReadError: {other}: object 1 (Function): tests.kept:squared: exp"
    )
    assert line.endswith('pass trust=("tests",), or --trust tests, if you know where the file comes from')
    assert done.stderr.count("Traceback") == 1


@pytest.mark.parametrize("backend", [TESTED])
def test_a_loaded_program_trains_on_as_the_saved_one(tmp_path, backend):
    """With dropout drawn from the step that comes next, and a frozen table."""
    program = fb.compile(kept.tree_model(), backend, threads=1, seed=5)
    frozen = program.params["embedding.weight"].copy()

    def train(trained: fb.Program, steps: int) -> None:
        optimizer = fb.SGD(0.1)
        for _ in range(steps):
            optimizer.update(trained.params, trained.value_and_grad(kept.trees())[1])

    train(program, 2)
    program.save(tmp_path / "a")
    twin = fb.load(tmp_path / "a", backend, trust=[kept], threads=1)
    for trained in (program, twin):
        train(trained, 2)
    for name in program.params:
        np.testing.assert_array_equal(twin.params[name], program.params[name])
    assert not twin.params.parameters["embedding.weight"].trainable
    np.testing.assert_array_equal(twin.params["embedding.weight"], frozen)
    twin.save(tmp_path / "b")
    program.save(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_options_are_those_it_was_saved_with_unless_others_are_given(tmp_path):
    options = {"policy": "by_depth", "layout": "producer", "share": None, "max_calls": 50}
    path = saved(kept.tree_model(), tmp_path, batched=False, seed=9, **options)
    program = fb.load(path, "numpy", trust=[kept])
    own = program.options
    assert (own.policy, own.layout, own.share, own.batched) == ("by_depth", "producer", None, False)
    assert program.seed == 9
    assert program.lowered.max_calls == 50
    other = fb.load(path, "numpy", trust=[kept], policy="by_agenda", seed=1, threads=1, debug=True)
    own = other.options
    assert (own.policy, own.threads, own.debug, other.seed) == ("by_agenda", 1, True, 1)
    with pytest.raises(UnknownNameError, match="^load: expected options of fb.compile: .*found colour"):
        fb.load(path, trust=[kept], colour=1)
    with pytest.raises(UnknownNameError, match="policy"):
        fb.load(path, "numpy", trust=[kept], policy="none")


def test_a_precision_that_the_backend_lacks_is_asked_for_only_by_name(tmp_path):
    path = saved(fb.Vector(2) >> fb.Linear(1), tmp_path)
    arrays, header = files.read(path, KIND, "")
    header["options"]["precision"] = "tf32"
    files.write(path, KIND, arrays, header)
    assert fb.load(path, "numpy").options.precision == "fp32"
    with pytest.raises(fb.errors.BackendError):
        fb.load(path, "numpy", precision="tf32")


def scripted(size: int = 2, name: str = "out") -> fb.Block:
    return fb.Vector(3) >> fb.Linear(size, name=name) >> fb.Function(lambda x: x * 2)


@pytest.mark.filterwarnings("ignore::foldbatch.errors.NotWholeWarning")
def test_a_block_of_a_script_is_filled(tmp_path):
    program = fb.compile(scripted(), "numpy", seed=1)
    program.save(tmp_path / "a")
    with pytest.raises(ReadError) as caught:
        fb.load(tmp_path / "a")
    text = str(caught.value)
    assert text.startswith(
        f"{tmp_path / 'a'}: expected a model that a file can hold whole, found a lambda (test_load"
    )
    assert "of Function(<lambda>); " in text
    assert text.endswith("block.load_parameters(path)")
    block = scripted()
    before = fb.compile(block, "numpy", seed=2)
    block.load_parameters(tmp_path / "a")
    for twin in (before, fb.compile(block, "numpy")):
        np.testing.assert_array_equal(twin.run([[1, 2, 3]]), program.run([[1, 2, 3]]))


@pytest.mark.filterwarnings("ignore::foldbatch.errors.NotWholeWarning")
@pytest.mark.parametrize(
    ("other", "error", "found"),
    [
        (scripted(name="outs"), UnknownNameError, "2 missing: .*'out.weight' \\(did you mean 'outs.weight'"),
        (scripted(3), ParameterError, r"^out.bias: expected float32\[3\], found float32\[2\]"),
        (scripted() >> fb.Linear(1), UnknownNameError, "2 missing: linear.weight, linear.bias; nothing was"),
        (fb.Scalar(), UnknownNameError, "2 unknown"),
    ],
)
def test_another_models_file_changes_nothing(tmp_path, other, error, found):
    fb.compile(scripted(), "numpy").save(tmp_path / "a")
    with pytest.raises(error, match=found):
        other.load_parameters(tmp_path / "a")
    undrawn = fb.compile(other, "numpy", seed=3)
    drawn_anew = fb.compile(scripted(3), "numpy", seed=3)
    if error is ParameterError:
        np.testing.assert_array_equal(undrawn.params["out.weight"], drawn_anew.params["out.weight"])


def test_parameters_alone_are_read_of_a_whole_model_too(tmp_path):
    path = saved(kept.tree_model(), tmp_path, seed=4)
    block = kept.tree_model()
    with pytest.warns(fb.errors.NumberedNamesWarning):
        block.load_parameters(path)
    with pytest.warns(fb.errors.UnusedSeedWarning):
        program = fb.compile(block, "numpy", seed=8)
    assert (
        outcome(program, kept.trees())[1:]
        == outcome(fb.load(path, "numpy", trust=[kept], seed=8), kept.trees())[1:]
    )


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"colour": 1}, "unknown field `colour`"),
        ({"origin": 5}, "Expected `object | null`"),
        ({"options": {}}, "missing required field"),
        ({"step": -1}, ">= 0"),
        ({"notes": 5}, "Expected `object`"),
        ({"version": "x"}, "Expected `int`"),
    ],
)
def test_a_header_that_does_not_fit_is_one_error(tmp_path, change, found):
    path = saved(fb.Scalar(), tmp_path)
    arrays, header = files.read(path, KIND, "")
    files.write(path, KIND, arrays, header | change)
    with pytest.raises(ReadError, match="found a header that does not fit") as caught:
        fb.load(path)
    assert found in str(caught.value)


def test_a_file_without_a_model_or_a_header_is_one_error(tmp_path):
    path = saved(fb.Scalar(), tmp_path)
    arrays, header = files.read(path, KIND, "")
    for wrong, found in ((header | {"origin": None}, "file without a model"), ([1], "file that is damaged")):
        files.write(path, KIND, arrays, wrong)
        with pytest.raises(ReadError, match=f"found a {found}"):
            fb.load(path)


def test_no_parameter_is_larger_than_its_array(tmp_path):
    """A layer of any size costs nothing before it is known that the file has its parameters."""
    path = saved(fb.Vector(2) >> fb.Linear(3), tmp_path)
    arrays, header = files.read(path, KIND, "")
    things = header["origin"]["objects"]
    linear = next(thing for thing in things if thing["kind"] == "Linear")
    linear["settings"]["size"] = 10**11
    files.write(path, KIND, arrays, header)
    with pytest.raises(FoldbatchError, match="100000000000"):
        fb.load(path, "numpy")
    del linear["state"]
    files.write(path, KIND, arrays, header)
    with pytest.raises(ReadError, match="other parameters than the file"):
        fb.load(path, "numpy")


@pytest.mark.parametrize("path", ["os:system", "builtins:eval", "subprocess:Popen", "numpy:load"])
def test_a_function_that_does_harm_is_refused(tmp_path, path):
    file = saved(fb.InputTransform(len), tmp_path)
    arrays, header = files.read(file, KIND, "")
    text = json.dumps(header).replace("builtins:len", path)
    files.write(file, KIND, arrays, json.loads(text))
    with pytest.raises(
        ReadError, match=f"{path}: expected a function of foldbatch or one that the caller trusts"
    ):
        fb.load(file)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """What some files hold."""
    folder = tmp_path_factory.mktemp("models")
    blocks = [
        kept.tree_model(),
        drawn(3, 60).block,
        fb.Map(fb.GetItem((1, "x"), default=[None]) >> fb.NGrams(2)),
    ]
    return [files.read(saved(block, folder), KIND, "") for block in blocks]


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32))
def test_spoilt_data_with_a_digest_that_is_right_are_ordinary_errors(tmp_path_factory, models, seed):
    rng = Random(seed)
    arrays, header = rng.choice(models)
    path = tmp_path_factory.mktemp("spoilt") / "a"
    files.write(path, KIND, arrays, kept.spoilt(header, rng))
    try:
        fb.load(path, "numpy", trust=[kept])
    except FoldbatchError as error:
        assert str(error)


def test_the_same_program_makes_the_same_file(tmp_path):
    program = fb.compile(kept.tree_model(), "numpy")
    program.save(tmp_path / "a")
    program.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_parameters_are_stored_by_full_name_and_functions_by_path(tmp_path):
    program = fb.compile(kept.tree_model(), "numpy")
    program.save(tmp_path / "a")
    arrays, header = files.read(tmp_path / "a", KIND, "")
    assert arrays.keys() == {*program.params, *header["constants"]}
    assert "tests.kept:squared" in (tmp_path / "a").read_bytes().decode("latin-1")


def test_a_lambda_leaves_the_parameters_and_its_name_and_a_warning(tmp_path):
    program = fb.compile(fb.Vector(2) >> fb.Linear(2) >> fb.Function(lambda x: x * 2), "numpy")
    with pytest.warns(NotWholeWarning, match=r"found a lambda \(test_loading.py:\d+\) of Function") as told:
        program.save(tmp_path / "a", {"classes": ["x"]})
    assert told[0].filename == __file__
    arrays, header = files.read(tmp_path / "a", KIND, "")
    assert arrays.keys() == {"linear.weight", "linear.bias"}
    assert header["origin"] is None
    assert header["lost"][0].startswith("a lambda (test_loading.py:")
    assert read_notes(tmp_path / "a") == {"classes": ["x"]}


def test_a_layer_that_a_function_reads_is_missed_at_once(tmp_path):
    program = fb.compile(fb.Vector(2) >> fb.Function(kept.through_a_layer), "numpy")
    with pytest.warns(NotWholeWarning, match="the parameter 'beside.weight', which only a function reads"):
        program.save(tmp_path / "a")
    with pytest.raises(ReadError, match="make its layer a block of the model"):
        fb.load(tmp_path / "a", trust=["tests"])
    given = fb.compile(fb.Vector(2) >> fb.Function(partial(kept.through, kept.BESIDE)), "numpy")
    given.save(tmp_path / "a")
    assert (
        fb.load(tmp_path / "a", "numpy", trust=["tests"]).run([[1, 2]])[0] == given.run([[1, 2]])[0]
    ).all()


@pytest.mark.parametrize(
    "notes", [[1], "x", {1: 2}, {"a": (1,)}, {"a": object()}, {"a": float("nan")}, {"a": {1}}]
)
def test_notes_that_would_come_back_otherwise_are_refused(tmp_path, notes):
    with pytest.raises(ModelError, match="^notes: expected JSON data"):
        fb.compile(fb.Scalar(), "numpy").save(tmp_path / "a", notes)
    assert not list(tmp_path.iterdir())


def test_a_parameter_that_is_nan_does_not_replace_a_good_file(tmp_path):
    program = fb.compile(fb.Vector(2) >> fb.Linear(1), "numpy")
    program.save(tmp_path / "a")
    before = (tmp_path / "a").read_bytes()
    program.params["linear.bias"][0] = float("nan")
    with pytest.raises(ParameterError, match="^linear.bias: expected finite numbers, found nan"):
        program.save(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == before


def test_a_file_that_cannot_be_written_leaves_the_former_one(tmp_path, monkeypatch):
    program = fb.compile(fb.Vector(2) >> fb.Linear(1), "numpy")
    program.save(tmp_path / "a")
    before = (tmp_path / "a").read_bytes()

    def full(_: int) -> None:
        raise OSError("no space left")

    program.params["linear.bias"] = [1.0]
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        program.save(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]
