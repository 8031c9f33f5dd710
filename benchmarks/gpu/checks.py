"""Whether the engine is right on a card: steps in each precision, in a row, overlapping, short of memory."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.gpu.contenders import MODELS, SST, OurModel
from benchmarks.gpu.race import described
from benchmarks.gpu.record import Check
from benchmarks.inside import device_of
from foldbatch.errors import DeviceMemoryError, DeviceMemoryWarning, FoldbatchError
from foldbatch.params.parameters import SparseRows
from foldbatch.trees import Tree
from foldbatch.types import BackendName

# By dtype and precision, how far loss and gradients may be from the oracle; None: the error is only told.
LIMITS: Mapping[tuple[str, str], float | None] = {
    ("float32", "fp32"): 1e-5,
    ("float64", "fp32"): 1e-12,
    ("float32", "3xtf32"): 1e-5,
    ("float32", "tf32"): None,
    ("float32", "bf16"): None,
    ("float32", "mixed"): 5e-2,
}
OVERLAPPED = 200  # steps whose bits must not depend on whether kernels begin early
SAME = 1e-5  # how far a loss may be from another of the same batch, as a share
SHORT = 1 << 28  # bytes that are left free for a batch that does not fit
TRAINED = 1e-9  # how far parameters may be from NumPy's after training in float64


def accuracy(
    trees: Sequence[Tree],
    hidden: int,
    words: int,
    backend: BackendName,
    oracle: BackendName,
    way: str = "auto",
) -> list[Check]:
    """Return how far a training step of the SST Tree-LSTM is from the oracle's in float64, by precision.

    Args:
        trees: the batch.
        hidden: size of the model.
        words: rows of the embedding.
        backend: that is checked.
        oracle: what is right, such as ``numpy``, which computes in float64.
        way: how it launches; of a captured step, it is a later one, which is a graph.
    """
    exact = OurModel(MODELS[SST], hidden, words, oracle, dtype="float64")
    expected = _step(exact, trees)
    checks = []
    for (dtype, precision), limit in LIMITS.items():
        kind = f"{dtype}, {precision}, against {oracle}{_told(way)}"
        name = f"a step of {len(trees)} trees, hidden {hidden}, {kind}"
        try:
            ours = OurModel(MODELS[SST], hidden, words, backend, precision, dtype, way)
            for parameter in ours.program.params:
                ours.program.params[parameter] = np.asarray(exact.program.params[parameter], dtype)
            if dtype == "float32":  # the oracle computes with the same numbers
                for parameter in exact.program.params:
                    exact.program.params[parameter] = np.asarray(ours.program.params[parameter], np.float64)
                expected = _step(exact, trees)
            if way == "captured":
                ours.program.warm(trees, len(trees))
                for _ in range(2):
                    _step(ours, trees)
            errors = compare(expected, _step(ours, trees))
        except FoldbatchError as error:
            state = "failed" if precision == "fp32" else "skipped"
            checks.append(Check(name, state, described(error)))
        else:
            worst = max(errors, key=errors.__getitem__)
            right = limit is None or errors[worst] <= limit
            found = f"relative error of the loss {errors['loss']:.2g}; at most {errors[worst]:.2g} ({worst})"
            told = found if limit is None else f"{found}; {limit:g} allowed"
            checks.append(Check(name, "passed" if right else "failed", told))
    return checks


def _told(way: str) -> str:
    return "" if way == "auto" else f", {way}"


def _step(ours: OurModel, trees: Sequence[Tree]) -> dict[str, Any]:
    """Return the loss and all gradients of a batch, dense."""
    loss, gradients = ours.program.value_and_grad(trees)
    found = {"loss": np.asarray(float(loss))}
    for name, gradient in gradients.items():
        if isinstance(gradient, SparseRows):
            dense = np.zeros(gradient.shape, np.float64)
            np.add.at(dense, np.asarray(gradient.rows), np.asarray(gradient.values, np.float64))
            found[name] = dense
        else:
            found[name] = np.asarray(gradient, np.float64)
    return found


def compare(expected: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, float]:
    """Return by name the relative error, by the norm of the difference; infinite where there is NaN.

    >>> compare({"w": np.array([3.0, 4.0])}, {"w": np.array([3.0, 4.5])})
    {'w': 0.1}
    """
    errors = {}
    for name, value in expected.items():
        difference = float(np.linalg.norm(found[name] - value) / (np.linalg.norm(value) or 1.0))
        errors[name] = difference if np.isfinite(difference) else float("inf")
    return errors


def training(
    batches: Sequence[Sequence[Tree]], hidden: int, words: int, backend: BackendName, way: str = "auto"
) -> list[Check]:
    """Train for some rounds of batches without looking; compare parameters with NumPy's and a second time's.

    Batches of several sizes follow each other while the device may be behind, so a table that is overwritten
    too early, or memory that is used twice, changes numbers. In float64, to `TRAINED`; the second time to the
    last bit.
    """
    rounds = [*batches] * (2 if way != "captured" else 4)  # classes are learned from eight batches
    exact = _trained(rounds, hidden, words, "numpy", "auto")
    first, second = (_trained(rounds, hidden, words, backend, way) for _ in range(2))
    errors = compare(exact, first)
    worst = max(errors, key=errors.__getitem__)
    name = f"{len(rounds)} training steps without looking, hidden {hidden}, float64{_told(way)}"
    found = f"relative error at most {errors[worst]:.2g} ({worst}); {TRAINED:g} allowed"
    other = [key for key, value in first.items() if value.tobytes() != second[key].tobytes()]
    return [
        Check(f"{name}, against numpy", "passed" if errors[worst] <= TRAINED else "failed", found),
        Check(f"{name}, twice", "failed" if other else "passed", ", ".join(other) or "the same bits"),
    ]


def _trained(
    batches: Sequence[Sequence[Tree]], hidden: int, words: int, backend: BackendName, way: str
) -> dict[str, Any]:
    """Return the parameters after training, and the last loss."""
    ours = OurModel(MODELS[SST], hidden, words, backend, dtype="float64", engine=way)
    for trees in batches:
        loss = ours.step(trees, len(trees))
    return {"loss": np.asarray(float(loss)), **ours.parameters()}


def overlapping(
    batches: Sequence[Sequence[Tree]], hidden: int, words: int, backend: BackendName, way: str
) -> Check:
    """Train with kernels that begin while the one before ends, and with kernels that wait: the same bits.

    No tool sees a kernel that reads before the one that writes has ended, so this is the only look at it.
    """
    name = f"{OVERLAPPED} training steps with and without overlap{_told(way)}"
    ours = [OurModel(MODELS[SST], hidden, words, backend, engine=way) for _ in range(2)]
    driver = device_of(ours[0].program).driver
    if getattr(driver, "overlap", None) is None:
        return Check(name, "skipped", "kernels of this card do not overlap")
    _trained_on(ours[0], batches)
    kept, driver.overlap = driver.overlap, None
    try:
        _trained_on(ours[1], batches)
    finally:
        driver.overlap = kept
    first, second = (model.parameters() for model in ours)
    other = [key for key, value in first.items() if value.tobytes() != second[key].tobytes()]
    return Check(name, "failed" if other else "passed", ", ".join(other) or "the same bits")


def _trained_on(ours: OurModel, batches: Sequence[Sequence[Tree]]) -> None:
    for step in range(OVERLAPPED):
        trees = batches[step % len(batches)]
        ours.step(trees, len(trees))


def short_memory(
    few: Sequence[Tree], many: Sequence[Tree], hidden: int, words: int, backend: BackendName
) -> list[Check]:
    """Return whether a model goes on after the card had no memory left, and runs a batch that does not fit.

    Args:
        few: a batch that runs before and after.
        many: a batch that does not fit into what is left, `SHORT` bytes.
        hidden: size of the model.
        words: rows of the embedding.
        backend: that is checked.
    """
    first, ours = (OurModel(MODELS[SST], hidden, words, backend) for _ in range(2))
    whole, before = first.loss(many), ours.loss(few)
    with _filled(device_of(ours.program).driver) as told:
        asked = Check("memory until there is none", "passed" if told else "failed", told or "it never ended")
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            cut = ours.loss(many)
    parts = [str(each.message) for each in warned if issubclass(each.category, DeviceMemoryWarning)]
    name = f"a batch that does not fit ({parts[0] if parts else 'it did'})"
    again = _same("a batch when there is memory again", ours.loss(few), before)
    return [asked, _same(name, cut, whole), again]


def _same(name: str, found: float, expected: float) -> Check:
    right = abs(found - expected) <= SAME * abs(expected)
    return Check(name, "passed" if right else "failed", f"loss {found:.6g}, {expected:.6g} before")


@contextmanager
def _filled(driver: Any) -> Iterator[str]:
    """Hold all of a card's memory but for `SHORT` bytes; yields what the card said at the end of it."""
    held, size, said = [], 1 << 34, ""
    while size >= SHORT:
        try:
            held.append(driver.allocate(size))
        except DeviceMemoryError as error:
            size, said = size // 2, str(error)
    del held[-1:]
    yield said
