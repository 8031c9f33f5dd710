"""Arrays of many lengths: each is a cell, unless their rows are a list."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import NewCellsWarning, WalkError
from foldbatch.functions import cells
from foldbatch.functions.cells import FEW_FORMS
from foldbatch.model import link
from foldbatch.program.variants import TRIES
from foldbatch.static import cell as staging
from tests.backends import needs_llvm

pytestmark = pytest.mark.slow

engines = pytest.mark.parametrize("engine", ["numpy", pytest.param("llvm", marks=needs_llvm)])


ROW, NUMBER = "float32[2]", "float32"


def array(length: int, width: int = 2) -> Any:
    return np.arange(length * width, dtype="float32").reshape(length, width)


def pooled() -> Any:
    """Return a new cell, which takes pairs of arrays, and a static argument."""

    @fb.cell
    def pool(pair, scale, *, op):
        first, second = pair
        both = fb.ops.concat([first, second], 0)
        return op(fb.ops.cast(both, "float32") * fb.ops.cast(scale, "float32"), axis=0)

    return pool


@engines
def test_calls_with_arrays_of_many_shapes_are_told_apart(engine: str) -> None:
    pool = pooled()

    def walk(example: tuple[Any, Any, Any]) -> Any:
        first, second, scale = example
        return pool((first, second), scale, op=fb.ops.sum), pool((first, second), scale, op=fb.ops.max)

    program = fb.compile(walk, engine)
    shapes = [(n, m) for n in range(1, 6) for m in range(1, 6)]
    examples = [(array(n), array(m), scale) for n, m in shapes for scale in (2, 2.0, array(1))]
    examples += [(array(n).astype("float64"), array(2), True) for n in range(1, 12)]
    examples += [(array(n).astype("int32"), array(2).astype("int32"), 3) for n in range(1, 12)]
    for _ in range(2):  # new, and known
        for (first, second, scale), (total, most) in zip(examples, program.run(examples), strict=True):
            both = np.concatenate([first, second]) * scale
            np.testing.assert_array_equal(total, both.sum(0))
            np.testing.assert_array_equal(most, both.max(0))
    assert len(pool.cell.signatures) == 2 * len(examples)
    pool.cell.forget(5)
    np.testing.assert_array_equal(program.run(examples[-1:])[0][1], array(11).max(0) * 3)


def test_a_new_shape_writes_the_code_of_its_own_calls_alone() -> None:
    pool = pooled()
    program = fb.compile(lambda x: pool((x, x), 1.0, op=fb.ops.sum), "numpy")
    program.run([array(n) for n in range(1, FEW_FORMS + 2)])
    with mock.patch.object(cells, "_code", side_effect=cells._code) as written:
        program.run([array(n) for n in range(20, 40)])
    texts = [len(call.args[0]) for call in written.call_args_list]
    assert len(texts) == 20
    assert max(texts) < 2 * min(texts)


@engines
def test_cells_that_get_other_names_keep_their_stages_and_kernels(engine: str) -> None:
    pool = pooled()
    program = fb.compile(lambda x: fb.loss(fb.ops.sum(pool((x, x), 1.0, op=fb.ops.sum))), engine)
    program.value_and_grad([array(n) for n in (1, 20, 300)])
    with mock.patch.object(link, "stage_cell", side_effect=staging.stage_cell) as staged:
        program.value_and_grad([array(10)])  # its name comes before those of others
    assert staged.call_count == 1
    names = [cell.name for cell in program.model.cells if cell.name.startswith("pool")]
    assert len({*names}) == len(names) == 4
    assert all(f" {name} " in program.kernels(name).replace("\n", " ") for name in names)


@engines
@pytest.mark.parametrize(
    "given", [np.asarray, lambda x: x.astype("float64"), lambda x: [fb.tensor(row) for row in x]]
)
def test_an_array_is_the_list_of_its_rows_where_an_annotation_says_so(
    engine: str, given: Callable[[Any], Any]
) -> None:
    readout = fb.Linear(3, name="readout")

    @fb.cell
    def rows(xs: list[ROW]) -> Any:
        return readout(fb.ops.segment_sum(xs))

    @fb.cell
    def scalars(xs: list[NUMBER]) -> Any:
        return fb.ops.segment_sum(xs)

    def walk(x: Any) -> Any:
        y = rows(given(x))
        fb.loss(fb.ops.sum(y))
        x[:] = -1  # what was given is as it was
        return y, scalars(given(x[:, 0]))

    program = fb.compile(walk, engine)
    lengths = [3, 0, 1, 5]
    for _ in range(3):
        results = program.run([array(n) for n in lengths])
        weight, bias = (program.params[f"readout.{name}"] for name in ("weight", "bias"))
        for n, (y, count) in zip(lengths, results, strict=True):
            np.testing.assert_allclose(y, array(n).sum(0) @ weight + bias, rtol=1e-5)
            assert count == -n
    _, gradients = program.value_and_grad([array(n) for n in lengths])
    np.testing.assert_allclose(
        gradients["readout.weight"], np.outer(sum(array(n).sum(0) for n in lengths), np.ones(3))
    )
    assert len([cell for cell in program.model.cells if cell.name in ("rows", "scalars")]) == 2
    np.testing.assert_allclose(program.debug(array(3)).result[0], results[0][0], rtol=1e-5)


def test_rows_are_noted_at_once_in_a_walk_that_reads_no_numbers() -> None:
    @fb.cell
    def rows(xs: list[ROW]) -> Any:
        return fb.ops.segment_sum(xs)

    decided = fb.compile(lambda x: float(rows(x)[0]) + float(rows(x)[1]), "numpy")
    assert decided.run([array(3), array(2)]) == [15.0, 6.0]
    few = fb.compile(lambda x: rows(x), "numpy", options={"max_calls": 10})
    assert few.run([array(9)])[0].tolist() == [72.0, 81.0]
    with pytest.raises(fb.errors.ExampleError, match="walk at example 1: expected fewer calls"):
        few.run([array(2), array(30)])
    with pytest.raises(
        WalkError, match=r"rows\(xs\): expected an array of rows of float32\[2\], as annotated"
    ):
        few.run([array(2, 3)])
    with pytest.raises(
        fb.errors.ExampleError, match=r"^tensor\(x0\) at example 1: expected float32\[2\], found"
    ):
        few.run([array(2), array(2) * 1j])


def test_a_warning_names_the_argument_whose_arrays_have_many_lengths() -> None:
    @fb.cell
    def whole(x: Any) -> Any:
        return fb.ops.mean(x, axis=0)

    walks: dict[str, Callable[[Any], Any]] = {
        r"20 lengths at whole\(x\), .*def whole\(x: list\['float32\[2\]'\]\)": lambda x: whole(x),
        r"20 lengths at fb.tensor, .*\[fb.tensor\(row\) for row in array\]": lambda x: fb.ops.mean(
            fb.tensor(x)
        ),
    }
    for message, walk in walks.items():
        program = fb.compile(walk, "numpy")
        with pytest.warns(NewCellsWarning, match=message):
            for n in range(1, TRIES + 1):
                program.run([array(n)])
