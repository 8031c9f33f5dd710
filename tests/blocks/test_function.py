"""Functions of tensors: what arrives in them, what may come out, and Concat."""

from __future__ import annotations

import functools

import numpy as np

import foldbatch as fb
from foldbatch import ops
from foldbatch.types import TensorType

V = fb.Vector(2)


def test_arrays_parameters_numbers_and_layers_may_be_used_inside():
    weight = fb.Parameter(TensorType((2,)), [3.0, 4.0], "w")
    layer = fb.Linear(1, init="ones")
    block = V >> fb.Function(lambda x: layer((x + 1) * weight - np.float32([1, 2])))
    assert block.eval([1, 2]).tolist() == [2 * 3 - 1 + 3 * 4 - 2]
    assert list(fb.compile(block).params) == ["w", "linear.weight", "linear.bias"]


def test_functions_of_any_kind_will_do():
    assert (fb.AllOf(V, V) >> fb.Function(ops.add)).eval([1, 2]).tolist() == [2.0, 4.0]
    scale = functools.partial(ops.multiply, 3.0)
    assert (V >> fb.Function(scale)).eval([1, 2]).tolist() == [3.0, 6.0]
    assert repr(fb.Function(scale)) == "Function(partial)"

    class Scale:
        def __call__(self, x, by=4.0):
            return x * by

    assert (V >> fb.Function(Scale())).eval([1, 2]).tolist() == [4.0, 8.0]
    assert (fb.AllOf(V, V, V) >> fb.Function(lambda *xs: ops.add(*xs))).eval([1, 2]).tolist() == [3.0, 6.0]


def test_a_function_is_called_once_to_learn_its_type_and_once_for_each_place_and_program():
    calls = []
    block = V >> fb.Function(lambda x: calls.append(x) or x)
    pair = {"a": fb.AllOf(block, block)} >> fb.Identity()
    assert len(calls) == 1
    fb.compile(pair).run([{"a": [1, 2]}] * 5)
    assert len(calls) == 3


def test_concat_flattens_nested_tuples_when_asked():
    block = fb.Record((V, (fb.Scalar(), (V,)))) >> fb.Concat(flatten=True)
    assert block.eval([[1, 2], [3, [[4, 5]]]]).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
