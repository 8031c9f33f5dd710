"""The first op that makes a NaN or an infinity is found, and only where something that is asked for is not finite."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines.nonfinite import NotFinite
from foldbatch.errors import NotFiniteWarning
from tests.backends import BACKENDS, TESTED
from tests.programs import programs

INF = np.float32(np.inf)


def _loss(function: Any, read: fb.Block | None = None) -> Any:
    return (read or fb.Vector(2)) >> fb.Function(function) >> fb.Loss()


def _found(block: Any, examples: list[Any], backend: str = TESTED, **options: Any) -> NotFinite | None:
    return fb.compile(block, backend).find_nan(examples, **options)


def _brief(found: NotFinite | None) -> tuple[Any, ...] | None:
    return found and (found.example, found.place, found.op, found.direction, found.reached)


def _ratios() -> fb.Block:
    """Return a model of nested pairs, each node the left one divided by the right one."""
    tree = fb.ForwardDeclaration(output_type="float32", name="tree")
    pair = fb.Record((tree(), tree())) >> fb.Function(ops.divide)
    tree.resolve_to(fb.OneOf(lambda node: isinstance(node, tuple), {True: pair, False: fb.Scalar()}))
    return tree() >> fb.Loss()


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_first_division_by_zero_is_found_with_its_place(backend: str) -> None:
    """Not those that read its result, nor that of a later example; with all there is to say."""
    found = _found(_ratios(), [(1, 2), (((1, 0), 4), ((1, 0), 5)), (1, 0)], backend)
    kind = "float64" if backend == "reference" else "float32"
    assert repr(found) == (
        f"tree[True].divide at example 1 [0][0]: divide (forward) yields {kind} inf\n"
        f"  of {kind} 1.\n"
        f"  of {kind} 0.\n"
        "  so that the loss is not finite"
    )
    assert found.call == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_first_place_is_that_of_the_present_parameters_and_the_programs_precision(backend: str) -> None:
    w = fb.Parameter([2], 1.0, "w")
    program = fb.compile(_loss(lambda x: ops.sum(ops.exp(x * w))), backend)
    examples = [[1, 2], [3, 100]]
    exact = backend == "reference"  # in float64 the exponential of 100 is finite
    assert _brief(program.find_nan(examples)) == (None if exact else (1, "", "exp", "forward", "the loss"))
    assert math.isfinite(
        fb.compile(_loss(lambda x: ops.sum(ops.exp(x * w))), "reference").run(examples, losses=True).loss
    )
    program.params["w"] = [1, -1]
    assert program.find_nan(examples) is None
    program.params["w"][0] = np.nan
    assert _brief(program.find_nan(examples)) == (0, "", "parameter w", "forward", "the loss")


BACKWARD = fb.Parameter([], 0.0, "z")
CASES: dict[str, tuple[Any, list[Any], tuple[Any, ...] | None]] = {
    "data": (fb.Map(_loss(ops.sum)), [[[1, 2], [1, np.nan]]], (0, "[1]", "data", "forward", "the loss")),
    "of a sequence": (
        _loss(lambda xs: ops.sum(ops.segment_sum(ops.log(xs))), fb.Map(fb.Vector(2))),
        [[], [[1, 1], [1, -1]]],
        (1, "", "log", "forward", "the loss"),
    ),
    "of a softmax of nothing but a mask": (
        _loss(lambda x: ops.sum(ops.softmax(ops.where(x > 0, x, -INF)))),
        [[1, 0], [0, 0]],
        (1, "", "softmax", "forward", "the loss"),
    ),
    "masks": (_loss(lambda x: ops.sum(ops.softmax(ops.where(x > 0, x, -INF)))), [[1, 0]], None),
    "a constant loss": (_loss(lambda x: ops.sum(x * 0) + INF), [[1, 0]], (0, "", "add", "forward", "the loss")),
    "what is not chosen": (_loss(lambda x: ops.sum(ops.where(x > 0, ops.log(x), 0.0))), [[1, 0]], None),
    "a gradient": (
        _loss(lambda x: ops.sum(x) + ops.sqrt(BACKWARD)),
        [[1, 0]],
        (0, "", "divide", "backward", "the gradient of z"),
    ),
    "a cause forward of a gradient": (
        _loss(lambda x: ops.sum(ops.where(x > 0, 0.0, ops.exp(x * BACKWARD + 100)))),
        [[1, 2]],
        (0, "", "exp", "forward", "the gradient of z"),
    ),
    "forward before backward": (
        _loss(lambda x: ops.log(ops.sum(x)) + ops.sqrt(BACKWARD)),
        [[1, 0], [0, 0]],
        (1, "", "log", "forward", "the loss"),
    ),
    "a sum of gradients over examples": (
        _loss(lambda x: ops.sum(x * BACKWARD)),
        [[1, 0], [3e38, 0], [3e38, 0]],
        (2, "", "add", "backward", "the gradient of z"),
    ),
    "a metric": (
        fb.AllOf(_loss(ops.sum), fb.Vector(2) >> fb.Function(ops.log) >> fb.Metric("m")),
        [[1, 2], [1, 0]],
        (1, "", "log", "forward", "a metric"),
    ),
    "a result": (fb.Map(fb.Scalar() >> fb.Function(ops.log)), [[1], [1, 2, 0]], (1, "[2]", "log", "forward", "the result")),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_found(name: str) -> None:
    block, examples, expected = CASES[name]
    assert _brief(_found(block, examples)) == expected


def test_gradients_pass_through_recursions_and_sequences() -> None:
    """A cotangent that is not finite has an origin, near the root; its readers have none of their own."""
    w = fb.Parameter([], 2.0, "w")
    tree = fb.ForwardDeclaration(output_type="float32", name="tree")
    kids = fb.Map(tree()) >> fb.Function(lambda xs: ops.segment_sum(xs) * w)
    tree.resolve_to(fb.OneOf(lambda node: isinstance(node, list), {True: kids, False: fb.Scalar()}))
    block = tree() >> fb.Function(ops.sqrt) >> fb.Loss()
    found = _found(block, [[[4, [4]], 1], [[0, [0]], 0]])
    assert _brief(found) == (1, "", "divide", "backward", "the gradient of w")
    assert found.where == "sqrt"


@settings(max_examples=5)
@given(programs(dropout=True))
def test_a_parameter_that_is_not_finite_is_found_in_random_programs(program: Any) -> None:
    """Where the loss depends on it; before, there is nothing to find."""
    compiled = fb.compile(program.block, TESTED)
    compiled.value_and_grad(program.examples)
    assert compiled.find_nan(program.examples) is None
    for name in list(compiled.params)[:1]:
        compiled.params[name][...] = np.nan
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotFiniteWarning)
            loss = float(compiled.value_and_grad(program.examples)[0])  # the warning comes when it is read
        found = compiled.find_nan(program.examples)
        assert math.isfinite(loss) or (found.op, found.reached) == (f"parameter {name}", "the loss")


def test_examples_traced_before_have_no_place() -> None:
    program = fb.compile(fb.Map(_loss(lambda x: ops.sum(ops.log(x)))), TESTED)
    examples = [[[1, 1]], [[1, 1], [0, 1]]]
    found = program.find_nan(examples)
    assert found.place == "[1]"
    for traced in (program.prepare(examples), program.plan(examples)):
        assert program.find_nan(traced) == NotFinite(
            **{**{k: getattr(found, k) for k in found.__slots__}, "place": ""}
        )
    assert program.find_nan(iter(examples)) == found
