"""Kernels on trial: a program computes the same with them, straight and in a graph, and names are checked."""

from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from benchmarks.gpu.trees import sst_like_trees
from benchmarks.workload import tree_lstm
from foldbatch.engines.cuda import few_rows
from foldbatch.engines.cuda.trials import TRIALS, VARIABLE
from foldbatch.errors import UnknownNameError
from foldbatch.params.parameters import dense
from foldbatch.trees import Vocabulary
from tests.engines.cuda.emulated import needs_compiler

pytestmark = needs_compiler
TREES = sst_like_trees(40, words=12)  # levels of more than 128 rows, words of more than 32 readers


@pytest.mark.parametrize("trial", TRIALS)
@pytest.mark.parametrize("launch", ["straight", "captured"])
def test_a_step_is_the_same_with_a_trial(monkeypatch: Any, trial: str, launch: Any) -> None:
    vocabulary = Vocabulary([f"w{i}" for i in range(1, 40)], unknown="w0")
    found = []
    for named in ("", trial):
        monkeypatch.setenv(VARIABLE, named)
        program = fb.compile(tree_lstm(12, vocabulary, "float32"), "cuda-on-cpu", launch=launch, seed=1)
        assert program.engine.trials == frozenset({named} - {""})
        if launch == "captured":
            program.warm(TREES, len(TREES))
        loss, gradients = program.value_and_grad(TREES)
        found.append((float(loss), {name: np.asarray(dense(gradients[name])) for name in gradients}))
    (loss, expected), (on_trial, gradients) = found
    assert on_trial == pytest.approx(loss, rel=1e-6)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, expected[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_larger_blocks_run_where_the_trial_is_named(monkeypatch: Any) -> None:
    names = []
    launch_of = few_rows.launch_of

    def noted(*arguments: Any) -> Any:
        launch = launch_of(*arguments)
        names.append(launch[0])
        return launch

    monkeypatch.setattr(few_rows, "launch_of", noted)
    vocabulary = Vocabulary([f"w{i}" for i in range(1, 40)], unknown="w0")
    for named, larger in (("", False), ("rows", True)):
        monkeypatch.setenv(VARIABLE, named)
        program = fb.compile(tree_lstm(12, vocabulary, "float32"), "cuda-on-cpu", launch="straight")
        float(program.value_and_grad(TREES)[0])
        assert any(name in few_rows.TRIAL_NAMES for name in names) is larger, names
        names.clear()


def test_a_trial_that_is_none_is_refused_when_a_program_is_compiled(monkeypatch: Any) -> None:
    monkeypatch.setenv(VARIABLE, "rows, tails")
    with pytest.raises(
        UnknownNameError, match="FOLDBATCH_CUDA_TRIALS: expected some of rows, readers, found 'tails'"
    ):
        fb.compile(fb.Scalar() >> fb.Loss(), "cuda-on-cpu")
