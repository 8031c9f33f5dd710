"""Tables of loose cells and of names have a bound: what gives way is found again while a program knows it."""

import gc
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.functions import cells, loose, rounds

SMALL = 3  # entries of each table, in place of thousands
TABLES = [loose._cells.newest, loose._places, loose._quick, loose._of_data, loose._of_arrays]


@pytest.fixture
def _small() -> Iterator[None]:
    with mock.patch.object(rounds._EARLIER.newest, "size", 1):
        for table in TABLES:
            table.size = SMALL  # type: ignore[attr-defined]
            while len(table) > SMALL:  # of other tests
                del table[next(iter(table))]  # type: ignore[attr-defined]
        yield
        for table in TABLES:
            table.size = loose.MAX_KEPT  # type: ignore[attr-defined]


def walk(example: tuple[list[float], list[np.ndarray]]) -> Any:
    """Use some twenty loose cells: data of several forms, indices, functions of numbers, losses."""
    numbers, arrays = example
    total = fb.tensor(0.0)
    for n in numbers:
        total = fb.ops.maximum(total * 2.0 + n, n) - 1.0
    for width, array in enumerate(arrays, 1):
        x = fb.tensor(array)
        for i in range(width):
            total = total + x[i] * fb.ops.tanh(x)[width - 1 - i]
        total = total + fb.ops.sum(fb.ops.stack([total, total * 0.5]))
    fb.loss(total, "kept", weight=0.5)
    return total


def meant(example: tuple[list[float], list[np.ndarray]]) -> float:
    numbers, arrays = example
    total = 0.0
    for n in numbers:
        total = max(total * 2 + n, n) - 1
    for x in arrays:
        total += float(np.sum(x * np.tanh(x)[::-1]))
        total += 1.5 * total
    return total


def examples(seed: int) -> list[tuple[list[float], list[np.ndarray]]]:
    rng = np.random.default_rng(seed)
    arrays = [[rng.normal(size=n) for n in range(1, 5)] for _ in range(3)]
    return [(rng.normal(size=3).tolist(), parts) for parts in arrays]


@pytest.mark.usefixtures("_small")
def test_cells_beyond_the_bound_are_those_that_the_program_knows() -> None:
    program = fb.compile(walk, "numpy")
    found = program.run(examples(0), losses=True)
    np.testing.assert_allclose(list(found), [meant(x) for x in examples(0)], rtol=1e-5)
    assert all(len(table) <= SMALL for table in TABLES)
    model = program.model
    for seed in (1, 2):
        gc.collect()  # nothing but the program holds most cells now
        found = program.run(examples(seed), losses=True)
        np.testing.assert_allclose(list(found), [meant(x) for x in examples(seed)], rtol=1e-5)
        assert found.losses["kept"] == pytest.approx(0.5 * sum(map(meant, examples(seed))), rel=1e-5)
    assert program.model is model, "a cell that the program knows was made once more"


@pytest.mark.usefixtures("_small")
def test_cells_that_nobody_knows_go() -> None:
    gc.collect()  # cells of other tests, some of which may be used here
    before = len(cells.all_cells())
    program = fb.compile(walk, "numpy")
    program.run(examples(0))
    count = len(cells.all_cells())
    del program
    gc.collect()
    assert len(cells.all_cells()) <= before < count


def decide(numbers: list[float]) -> Any:
    """Read numbers of several types, so that rounds import them."""
    total, count = fb.tensor(0.0), fb.tensor(0)
    vector = fb.tensor(np.zeros(2, "float32"))
    for n in numbers:
        total = total + n
        if float(total) > 1:
            count = count + 1
            vector = vector + total
        if int(count) > 1:
            total = total - fb.ops.sum(vector)
    return total, count, vector


@pytest.mark.usefixtures("_small")
def test_import_cells_of_rounds_are_those_that_the_rounds_know() -> None:
    program = fb.compile(decide, "numpy")
    numbers = [[0.5, 1.0, 0.25, 2.0], [2.0, -0.5, 1.5]]
    before = [tuple(map(np.asarray, result)) for result in program.run(numbers)]
    assert len(rounds._EARLIER.newest) == 1
    gc.collect()
    after = [tuple(map(np.asarray, result)) for result in program.run([list(x) for x in numbers])]
    for first, second in zip(before, after, strict=True):
        for x, y in zip(first, second, strict=True):
            np.testing.assert_array_equal(x, y)
    assert [float(total) for total, _, _ in before] == [-9.25, -11.0]


def test_names_of_values_go_with_the_last_cell_that_has_code_of_them() -> None:
    gc.collect()
    before, names = {*cells.GLOBALS}, len(cells._shared_names)

    def run(scale: float) -> list[Any]:
        @fb.cell
        def scaled(x: "float32", *, by: str) -> Any:  # noqa: F821
            return x * float(by)

        def walk(x: float) -> Any:
            return scaled(x, by=str(scale))

        return list(fb.compile(walk, "numpy").run([1.0, 2.0]))

    for scale in range(20):
        assert run(scale + 0.25) == [scale + 0.25, 2 * (scale + 0.25)]
    gc.collect()
    assert len(cells._shared_names) <= names + 2
    assert len({*cells.GLOBALS} - before) <= 12
