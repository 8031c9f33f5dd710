"""Products on tensor cores: as exact as of float32, for rows that there are, and the same bits beside any rows."""

import re
from contextlib import ExitStack
from typing import Any
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines.cuda import few_rows, matrices, tensor_products
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.driver import MatrixProduct
from foldbatch.engines.cuda.tensor_products import NAMES, TEXTS, is_tensor_product, launch_of
from tests.engines.cuda.emulator import Emulator
from tests.engines.cuda.launches.test_nvrtc import needs_nvrtc
from tests.engines.cuda.nvrtc import compiled
from tests.engines.cuda.on_cpu import always_captured
from tests.engines.cuda.resources import resources
from tests.ptx.driver import PtxDriver, ptx_of
from tests.ptx.needed import needs_ptx

LAYOUTS = list(NAMES)
WRONG = 2.0**-22  # of the sum of |a| |b|; a tensor core rounds three sums of a term towards zero
EXTENTS = [(5, 3, 9), (130, 140, 50), (257, 131, 300), (1, 129, 17)]
GAP = 3  # numbers between rows, which nobody may read


def drawn(m: int, n: int, k: int, a_across: bool, b_across: bool, seed: int = 0) -> list[Any]:
    """Return A and B as they lie, with gaps of NaN between rows, and C."""
    rng = np.random.default_rng(seed)
    shapes = (k, m) if a_across else (m, k), (n, k) if b_across else (k, n)
    wide = [np.full((rows, columns + GAP), np.nan, np.float32) for rows, columns in shapes]
    for matrix in wide:
        matrix[:, :-GAP] = rng.standard_normal(matrix[:, :-GAP].shape)
        matrix[:, :-GAP] *= 10.0 ** rng.integers(-3, 4, matrix[:, :-GAP].shape)
    return [*wide, rng.standard_normal((m, n + GAP)).astype(np.float32)]


def multiplied(
    device: Device,
    arrays: list[Any],
    k: int,
    layout: tuple[bool, bool],
    adds: bool,
    calls: int = -1,
    each: int = 0,
) -> Any:
    """Return C with its gaps after a product; where there are `calls`, a record tells how many, of `each` rows."""
    a, b, c, told = (device.put(array) for array in (*arrays, np.array([calls])))
    m, n = arrays[2].shape[0], arrays[2].shape[1] - GAP
    places: list[Any] = [
        a.pointer,
        b.pointer,
        c.pointer,
        *(array.shape[1] for array in arrays),
        *layout,
        adds,
    ]
    product = MatrixProduct("float32", m, n, k, *places)
    name, blocks, threads, values = launch_of(product, told.pointer if each else 0, each)
    device.launch(device.kernel(TEXTS[name], name), blocks, threads, values)
    return device.read(c)


def checked(found: Any, arrays: list[Any], layout: tuple[bool, bool], adds: bool) -> float:
    """Check a product and the gaps beside it; return the largest error by the sum of ``|a| |b|``, in `WRONG`."""
    a, b = (matrix[:, :-GAP].astype(np.float64) for matrix in arrays[:2])
    a, b = a.T if layout[0] else a, b.T if layout[1] else b
    before = arrays[2][:, :-GAP].astype(np.float64) * adds
    np.testing.assert_array_equal(found[:, -GAP:], arrays[2][:, -GAP:])
    error = np.abs(found[:, :-GAP] - (a @ b + before))
    worst = float((error / (np.abs(a) @ np.abs(b) + np.abs(before))).max())
    assert worst < 4 * WRONG
    return worst / WRONG


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_product_is_as_exact_as_of_float32(layout: tuple[bool, bool], adds: bool) -> None:
    device = Device(Emulator())
    for m, n, k in EXTENTS:
        arrays = drawn(m, n, k, *layout)
        checked(multiplied(device, arrays, k, layout, adds), arrays, layout, adds)


@needs_ptx
@pytest.mark.parametrize("architecture", ["compute_80", "compute_90", "compute_75"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_tensor_cores_compute_it(layout: tuple[bool, bool], architecture: str) -> None:
    """By what PTX says of their instructions; before ``sm_80`` by plain arithmetic."""
    m, n, k = 133, 131, 37
    text = ptx_of(TEXTS[NAMES[layout]], architecture)
    assert bool(re.search(r"mma\.sync\S+tf32", text)) == (architecture != "compute_75")
    device = Device(PtxDriver(architecture))
    for adds in (False, True):
        arrays = drawn(m, n, k, *layout)
        checked(multiplied(device, arrays, k, layout, adds), arrays, layout, adds)


@pytest.mark.parametrize("make", [Emulator, pytest.param(PtxDriver, marks=needs_ptx)])
@pytest.mark.parametrize("b_across", [False, True])
def test_a_row_has_the_same_bits_beside_any_rows_and_others_stay(make: Any, b_across: bool) -> None:
    device, layout, k = Device(make()), (False, b_across), 41
    a, b, c = drawn(140, 130, k, *layout)
    all_rows = multiplied(device, [a, b, c], k, layout, True)
    some = multiplied(device, [a, b, c], k, layout, True, calls=45, each=3)
    np.testing.assert_array_equal(some[:135], all_rows[:135])
    np.testing.assert_array_equal(some[135:], c[135:])
    np.testing.assert_array_equal(multiplied(device, [a, b, c], k, layout, True, calls=0, each=3), c)
    last = multiplied(device, [a[131:132], b, c[131:132]], k, layout, True)
    np.testing.assert_array_equal(last[0], all_rows[131])


def test_a_factor_that_is_infinite_makes_no_number() -> None:
    a, b, c = drawn(2, 3, 9, False, False)
    a[1, 4] = np.inf
    found = multiplied(Device(Emulator()), [a, b, c], 9, (False, False), False)
    assert np.isfinite(found[0, :-GAP]).all() and np.isnan(found[1, :-GAP]).all()


@needs_nvrtc
@pytest.mark.parametrize("where", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_kernels_compile_without_a_warning_and_fit(where: str) -> None:
    for name, text in TEXTS.items():
        assert "warning" not in compiled(text, where).log
        taken = resources(text, where)[name]
        assert taken.shared <= 48 << 10
        assert taken.spilled <= (0 if where in ("sm_80", "sm_90") else 64)


def test_only_large_products_of_float32_are_taken() -> None:
    sizes: dict[str, Any] = {"m": 1 << 13, "n": 128, "k": 256}
    lying: dict[str, Any] = {"a": 0, "b": 0, "c": 0, "a_lead": 256, "b_lead": 128, "c_lead": 128}
    assert is_tensor_product(MatrixProduct("float32", **sizes, **lying))
    for other in ({"m": (1 << 13) - 1}, {"n": 127}, {"k": 255}, {"count": 2}, {"m": 1 << 30}):
        assert not is_tensor_product(MatrixProduct("float32", **{**sizes, **lying, **other})), other
    assert not is_tensor_product(MatrixProduct("float64", **sizes, **lying))


def sums_of_trees() -> fb.Block:
    """Return a block of float32 whose recursion multiplies by weights at each level."""
    tree = fb.ForwardDeclaration(output_type=9, name="tree")
    join, word = fb.Linear(9, name="join"), fb.GetItem(0) >> fb.Vector(11)
    state = fb.Function(lambda x, kids: ops.tanh(join(ops.concat([x, ops.segment_sum(kids)]))))
    tree.resolve_to(fb.AllOf(word, fb.GetItem(1) >> fb.Map(tree())) >> state)
    return tree() >> fb.Function(lambda h: ops.sum(h * h)) >> fb.Loss()


def a_tree(rng: np.random.Generator, depth: int) -> Any:
    kids = [a_tree(rng, depth - 1) for _ in range(rng.integers(0, 4))] if depth else []
    return rng.standard_normal(11).astype(np.float32), kids


def program_of(precision: Any, launch: Any) -> fb.Program:
    backend: Any = "cuda-on-cpu"
    return fb.compile(sums_of_trees(), backend, launch=launch, seed=1, options={"precision": precision})


@pytest.mark.parametrize("launch", ["straight", "captured"])
def test_a_program_takes_them_forward_and_backward(launch: str) -> None:
    rng = np.random.default_rng(3)
    examples = [a_tree(rng, 4) for _ in range(6)]
    asked: list[str] = []

    def launched(*arguments: Any) -> Any:
        launch = launch_of(*arguments)
        asked.append(launch[0])
        return launch

    found = {}
    with ExitStack() as stack:
        for module, name, value in (
            (matrices, "SMALL_WEIGHT", 0),
            (few_rows, "is_small_product", lambda *product: False),
            *((tensor_products, f"LEAST_{name}", 1) for name in ("COLUMNS", "TERMS", "RESULTS")),
            (tensor_products, "launch_of", launched),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        if launch == "captured":
            stack.enter_context(always_captured())
        for precision in ("fp32", "3xtf32"):
            program = program_of(precision, launch)
            loss, gradients = program.value_and_grad(examples)
            again, _ = program.value_and_grad(examples)
            assert float(loss) == float(again)
            found[precision] = [
                np.asarray(loss),
                *(np.asarray(gradients[name]) for name in sorted(gradients)),
            ]
            assert bool(asked) == (precision == "3xtf32")
    assert {*asked} >= {NAMES[False, True], NAMES[True, False]}, asked  # by a weight, and gradients of one
    for right, ours in zip(found["fp32"], found["3xtf32"], strict=True):
        np.testing.assert_allclose(ours, right, rtol=2e-6, atol=2e-6 * np.abs(right).max())
    different = [(a != b).any() for a, b in zip(found["fp32"], found["3xtf32"], strict=True)]
    assert any(different)
