"""A model is written as plain data and read back, exactly; what cannot be written is named."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import foldbatch as fb
from foldbatch.errors import ModelError
from foldbatch.model.plain import from_plain, to_plain
from foldbatch.program import Program
from tests.programs import programs

some = settings(
    max_examples=18, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def reread(program: Program) -> Program:
    """Return a program of the same model, written as JSON and read back; parameters have the same values."""
    model = from_plain(json.loads(json.dumps(to_plain(program.model))))
    copy = Program(replace(program.lowered, model=model), program.options, program.seed)
    for name in program.params:
        copy.params[name] = program.params[name]
    return copy


@some
@given(programs(dropout=True))
def test_what_is_read_back_is_the_same_to_the_bit(program):
    first = fb.compile(program.block, "numpy")
    for parameter in first.model.parameters:
        parameter.init = parameter.value  # random programs draw theirs with functions
    copy = reread(first)
    plain = to_plain(first.model)
    assert to_plain(from_plain(plain)) == plain
    assert list(copy.params) == list(first.params)
    prepared, traces = first.prepare(program.examples), copy.prepare(program.examples)
    left, right = (p.run(x, losses=True, metrics=True) for p, x in ((first, prepared), (copy, traces)))
    assert left.loss == right.loss
    assert repr(list(left)) == repr(list(right))
    left_loss, left_gradients = first.value_and_grad(prepared, step=3)
    right_loss, right_gradients = copy.value_and_grad(traces, step=3)
    assert left_loss == right_loss
    for name, gradient in left_gradients.items():
        dense = [g.dense() if isinstance(g, fb.SparseRows) else g for g in (gradient, right_gradients[name])]
        np.testing.assert_array_equal(*dense)


def test_an_initialiser_without_a_name_is_named():
    layer = fb.Linear(2, init=lambda rng, shape: np.ones(shape), name="mine")
    model = fb.compile(fb.Vector(3) >> layer, "numpy").model
    with pytest.raises(
        ModelError, match=r"mine\.weight: expected an initialiser that has a name, found a Python"
    ):
        to_plain(model)


def test_other_data_are_refused():
    plain = to_plain(fb.compile(fb.Scalar() >> fb.Function(lambda x: x * x), "numpy").model)
    with pytest.raises(ModelError, match="expected version 1, found version 2"):
        from_plain(plain | {"version": 2})
    with pytest.raises(ModelError, match="plain data of format 'foldbatch model'"):
        from_plain({"a": 1})
    with pytest.raises(ModelError, match="parts that do not fit together"):
        from_plain(plain | {"nodes": plain["nodes"][:1]})
    other_type = [plain["nodes"][0], [*plain["nodes"][1][:3], {"tensor": [2], "dtype": "float32"}, 1]]
    with pytest.raises(ModelError, match=r"multiply yields float32"):
        from_plain(plain | {"nodes": other_type})


def test_a_parameter_that_passes_drop_is_written_and_not_read():
    """Graphs are written as they were before passes, which find that nothing depends on it."""
    lost, used = fb.Parameter([2], 1.0, name="lost"), fb.Parameter([2], 2.0, name="used")
    block = fb.Vector(2) >> fb.Function(lambda x: fb.ops.concat([x * used, x * lost])[:2])
    model = fb.compile(block, "numpy").model
    assert [p.name for p in from_plain(to_plain(model)).parameters] == [p.name for p in model.parameters]
