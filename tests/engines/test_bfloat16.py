"""Products of factors that are rounded to bfloat16: the same on all backends that have them, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb
from benchmarks.workload import random_trees, tree_lstm
from benchmarks.zoo_models import MODELS
from foldbatch.engines.numpy.spelling import rounded
from foldbatch.errors import BackendError
from foldbatch.params.parameters import dense
from foldbatch.types import TensorType
from tests.backends import lacking_bf16

needs_it = pytest.mark.skipif(bool(lacking_bf16()), reason=lacking_bf16())
BACKENDS = ["numpy", pytest.param("llvm", marks=[pytest.mark.llvm, needs_it])]
WORDS = fb.trees.Vocabulary([f"w{i}" for i in range(40)])
TREES = random_trees(48, seed=1, words=40)
ZOO: dict[str, Any] = {"SST Tree-LSTM": (lambda: tree_lstm(64, WORDS), lambda tree: tree)} | {
    name: (lambda model=model: model.block(model.size or 24, WORDS), model.example)
    for name, model in MODELS.items()
}


def found(name: str, backend: str, precision: str) -> list[np.ndarray]:
    """Return results, one after the other, and the gradient of each parameter."""
    block, example = ZOO[name]
    program = fb.compile(block(), backend, seed=3, options={"precision": precision})
    examples = [example(tree) for tree in TREES]
    results = np.concatenate([np.ravel(x) for result in program.run(examples) for x in _arrays(result)])
    _, gradients = program.value_and_grad(examples)
    return [results, *(np.asarray(dense(g)) for g in gradients.values())]


def _arrays(result: Any) -> Any:
    if isinstance(result, (list, tuple)):
        for part in result:
            yield from _arrays(part)
    else:
        yield np.asarray(result)


@pytest.mark.llvm
@needs_it
@pytest.mark.parametrize("name", ZOO)
def test_models_of_the_zoo_are_on_llvm_what_they_are_on_numpy(name: str) -> None:
    """Engines differ by less than rounding changes: by cotangents that one of them adds up before."""
    from foldbatch.engines.llvm import known  # noqa: PLC0415 - it needs llvmlite

    with mock.patch.multiple(known, FEWEST=1, MIN_SHARE=0.0):  # products of rows that are known, too
        exact, right, on_llvm = (
            found(name, *way) for way in (("numpy", "fp32"), ("numpy", "bf16"), ("llvm", "bf16"))
        )
    apart = [np.linalg.norm(x - y) for x, y in zip(exact, right, strict=True)]
    assert 2**-11 < apart[0] / np.linalg.norm(exact[0]) < 2**-6
    for number, (x, y) in enumerate(zip(right, on_llvm, strict=True)):
        assert np.linalg.norm(x - y) <= apart[number] / (2 if number else 16)


@pytest.mark.llvm
@needs_it
def test_all_products_of_float32_are_asked_for_in_pairs() -> None:
    """Those that levels make, and those that are made before and after."""
    from foldbatch.engines.llvm import products, tiles  # noqa: PLC0415 - they need llvmlite

    with mock.patch.object(products, "compiled", wraps=products.compiled) as asked:
        found("SST Tree-LSTM", "llvm", "bf16")
    forms = {call.args[0].__name__: call.args[2] for call in asked.mock_calls}
    names = ("native_text", "rows_text", "outer_text", "sum_outer_text")  # the last, of rows side by side
    assert forms == dict.fromkeys(names, tiles.PAIRS)


@pytest.mark.llvm
@needs_it
def test_random_programs_are_on_llvm_what_they_are_on_numpy() -> None:
    """In a process of its own: the dtype of random programs is one for all."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.programs.rounded", "0", "6"]
    done = subprocess.run(
        command, env={**os.environ, "FOLDBATCH_FLOAT": "float32"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_rounded_are_the_factors_of_products(backend: str) -> None:
    """Forward, and both gradients of a product; nothing else, and nothing of float64."""
    rng = np.random.default_rng(0)
    for dtype, factor in (("float32", rounded), ("float64", np.asarray)):
        x, w, g = (rng.standard_normal(shape).astype(dtype) for shape in ((5, 33), (33, 20), (5, 20)))
        weight = fb.Parameter(TensorType((33, 20), dtype), name="w")
        block = fb.Vector(33, dtype) >> fb.Function(lambda x, w=weight: x @ w)
        program = fb.compile(block, backend, options={"precision": "bf16"})
        program.params["w"] = w
        pulled = program.vjp(list(x), list(g), inputs=True)
        (of_inputs,) = pulled.inputs.values()
        pairs = {
            "values": (np.array(program.run(list(x))), factor(x), factor(w)),
            "inputs": (of_inputs.values, factor(g), factor(w).T),
            "weight": (pulled.gradients["w"], factor(x).T, factor(g)),
        }
        for name, (value, left, right) in pairs.items():
            assert value.dtype == dtype
            expected = left.astype("float64") @ right
            np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.llvm
def test_a_processor_without_the_instruction_refuses_it() -> None:
    pytest.importorskip("llvmlite")
    told = (
        r"^precision: expected a processor that has AVX-512 BF16 for bf16, found znver3; "
        "leave precision out, or take the backend numpy$"
    )
    with (
        mock.patch("foldbatch.loops.machine.processor", lambda: ("znver3", "+avx2,-avx512bf16")),
        pytest.raises(BackendError, match=told),
    ):
        fb.compile(fb.Vector(2), "llvm", options={"precision": "bf16"})
