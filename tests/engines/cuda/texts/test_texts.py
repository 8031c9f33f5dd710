"""Kernels of many models compile for GPUs, without a warning, and take no more than a GPU has.

NVRTC needs no GPU. Where FOLDBATCH_BACKEND is cuda-on-cpu there are more: kernels that infer,
all architectures, the recipes of the cookbook.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from foldbatch.engines.cuda.kernels import SUMMED, Kernel
from foldbatch.engines.cuda.texts.sums import PARTS
from foldbatch.errors import BackendError
from foldbatch.model.model import Model
from tests.engines.cuda.nvrtc import compiled, nvrtc
from tests.engines.cuda.resource_table import (
    ARCHITECTURES,
    OWN,
    examples,
    kernels,
    main_models,
    model_of,
    recipes,
)
from tests.engines.cuda.resources import resources
from tests.engines.cuda.walking import MANY
from tests.programs import drawn

REGISTERS = 65_536  # of a multiprocessor: the threads of a block must not exceed them
MOST, SUMS = 128, 64  # registers of a thread, and of one that adds up rows, with 1023 others
STACK = 40  # bytes, for sines and cosines alone
EVERYWHERE = ("SST Tree-LSTM 300", "RNTN")
SMALL = 100  # calls of random choices: a program of a few cells
PROGRAMS = 24 if MANY else 6


def has_nvrtc() -> bool:
    try:
        return bool(nvrtc())
    except BackendError:
        return False


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed: pip install nvidia-cuda-nvrtc"),
]


def assert_fits(made: Sequence[Kernel], architecture: str) -> None:
    """Fail where kernels give warnings, spill registers, or need more than a GPU has."""
    tasks = [task for kernel in made for task in kernel.tasks if task.name]
    text = "\n".join(kernel.text for kernel in made)
    if not tasks:
        return
    assert "warning" not in compiled(text, architecture).log
    taken = resources(text, architecture)
    assert sorted(taken) == sorted(task.name for task in tasks)
    stack = STACK if "sin" in text or "cos" in text else 0
    wrong = [
        (task.name, task.threads, of)
        for task in tasks
        for of in [taken[task.name]]
        if of.spilled
        or of.registers > (SUMS if task.threads == SUMMED else MOST)
        or of.registers * task.threads[0] * task.threads[1] > REGISTERS
        or of.shared > 8 * PARTS
        or of.stack > stack
    ]
    assert wrong == []


def assert_all_fit(model: Model, architecture: str) -> None:
    assert_fits(kernels(model, training=True), architecture)
    if MANY and architecture == "sm_90":
        assert_fits(kernels(model, training=False), architecture)


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        (name, architecture)
        for name in main_models()
        for architecture in ARCHITECTURES
        if MANY or name in EVERYWHERE or architecture == "sm_90"
    ],
)
def test_kernels_of_main_models_fit_a_gpu(name: str, architecture: str) -> None:
    assert_all_fit(model_of(main_models()[name]), architecture)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_of_every_program_fit_a_gpu(architecture: str) -> None:
    assert "warning" not in compiled(OWN, architecture).log
    assert all(of.registers <= MOST and not of.spilled for of in resources(OWN, architecture).values())


@pytest.mark.parametrize("name", examples())
def test_kernels_of_examples_fit_a_gpu(name: str) -> None:
    assert_all_fit(model_of(examples()[name]), "sm_90")


@pytest.mark.skipif(not MANY, reason="FOLDBATCH_BACKEND is not cuda-on-cpu")
@pytest.mark.parametrize("title", recipes())
def test_kernels_of_recipes_fit_a_gpu(title: str) -> None:
    assert_all_fit(model_of(recipes()[title]), "sm_90")


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_kernels_of_random_programs_fit_a_gpu(seed: int) -> None:
    """A float64 program each, for one architecture after the other."""
    model = model_of(drawn(seed, SMALL).block)
    assert_all_fit(model, ARCHITECTURES[seed % len(ARCHITECTURES)])
