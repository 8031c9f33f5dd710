"""Lowering: what is named, what is checked, what is refused, and that it is the same every time."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops

V = fb.Vector(2)
ADD = fb.Function(lambda a, b: ops.tanh(a + b))


def is_list(x: object) -> bool:
    return isinstance(x, list)


def a_tree(leaf: fb.Block, join: fb.Block, of: object = 2) -> fb.ForwardDeclaration:
    tree = fb.ForwardDeclaration(output_type=of, name="tree")
    tree.resolve_to(fb.OneOf(is_list, {False: leaf, True: fb.Record((tree(), tree())) >> join}))
    return tree


def test_parameters_are_listed_once_in_the_order_of_the_blocks():
    a, b = fb.Linear(2, name="a"), fb.Linear(2, name="b")
    layers = V >> b >> a >> fb.AllOf(b, fb.Linear(2)) >> fb.GetItem(1)
    program = fb.compile(layers)
    assert list(program.params) == [
        "b.weight",
        "b.bias",
        "a.weight",
        "a.bias",
        "linear.weight",
        "linear.bias",
    ]


def test_a_layer_that_nothing_comes_of_is_no_part_of_the_program():
    program = fb.compile(V >> fb.AllOf(fb.Linear(3) >> fb.Void(), fb.Linear(2, name="used")) >> fb.GetItem(1))
    assert list(program.params) == ["used.weight", "used.bias"]


def test_ids_are_bounded_by_the_smallest_table_that_they_index():
    tables = fb.AllOf(fb.Embedding(5, 2), fb.Embedding(3, 2)) >> fb.Concat()
    program = fb.compile(fb.Scalar("int32") >> tables)
    assert program.model.bounds == [[3]]
    weight = np.zeros((4, 2), "float32")
    shifted = fb.Scalar("int32") >> fb.Function(lambda i: ops.gather(weight, i + 1))
    assert fb.compile(shifted).model.bounds == [[None]]  # checked when it is computed
    with pytest.raises(fb.errors.ExampleError, match="at example 1: expected ids from 0 to 3, found 4"):
        fb.compile(shifted).run([2, 3])


def test_a_block_compiles_to_the_same_program_every_time():
    tree = a_tree(fb.GetItem("x") >> V >> fb.Linear(2), ADD)
    model = fb.AllOf(tree() >> fb.Linear(3), fb.Identity() >> tree())
    first, second = fb.compile(model), fb.compile(model)
    assert first.kernels() == second.kernels()
    assert repr(first.model.signatures) == repr(second.model.signatures)


def test_a_lowered_block_is_a_model_and_a_tracer_for_it():
    block = V >> fb.Linear(2)
    lowered = fb.compile(block, "numpy").lowered
    assert lowered.block is block
    trace = lowered.tracer.trace([1, 2], 0)
    assert [len(rows) for rows in trace.calls] == [1] * len(lowered.model.cells)
    assert lowered.tracer.form == lowered.model.form
