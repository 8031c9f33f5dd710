"""What of launches is fixed when a model is loaded: kernels, buffers, and where facts of a schedule stand."""

from __future__ import annotations

import numpy as np

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines import numpy as numpy_engine
from foldbatch.engines.bindings import ConstantKey, bind
from foldbatch.engines.facts import fact_names
from foldbatch.engines.launch import BASE, INDEX, SPARE, STORES, binding
from foldbatch.model.model import Model


def a_model() -> Model:
    """Two cells: leaves, and what is made of them."""
    double = fb.Function(lambda x: ops.tanh(ops.exp(x) * 2.0))
    cut = fb.OneOf(len, {2: fb.Vector(2) >> fb.Linear(2) >> double})
    return fb.compile(cut >> fb.Linear(2) >> double >> fb.Function(ops.sum) >> fb.Loss(), "numpy").model


def test_scratch_is_shared_by_all_kernels() -> None:
    """By type and number; kept buffers are each cell's own."""
    model = a_model()
    assert len(model.cells) > 1
    bound = bind(model, numpy_engine.TARGET, training=True)
    scratch = [name for name in bound.buffers if name[0] == "scratch"]
    users = {
        name: {
            key.cell
            for key, routine in zip(bound.keys, bound.routines, strict=True)
            for slot in routine.slots
            if slot.binding.kind == "scratch" and ("scratch", slot.type, slot.binding.key) == name
        }
        for name in scratch
    }
    assert any(len(cells) > 1 for cells in users.values())
    assert {name[1] for name in bound.buffers if name[0] == "kept"} == {0, 1}


def test_an_array_is_one_constant_however_often_it_is_read() -> None:
    """Two of the same numbers are two: they are told apart by identity, as parameters are."""
    one, same = np.ones(3), np.ones(3)
    assert ConstantKey(one) == ConstantKey(one) != ConstantKey(same)
    assert len({ConstantKey(one), ConstantKey(one), ConstantKey(same)}) == 2
    assert ConstantKey(one) != one.tolist()


def test_facts_stand_where_schedules_differ() -> None:
    """Index arrays, first rows and whether to store; a buffer's number is always the same."""
    model = a_model()
    bound = bind(model, numpy_engine.TARGET, training=True)
    parameters = len(bound.summed)
    names = [*fact_names(model.signatures, len(model.arenas)), *["stores"] * parameters]
    for number, routine in enumerate(bound.routines):
        bindings = [slot.binding for slot in routine.slots] + [r.binding for r in routine.results]
        for i, what in enumerate(bindings):
            places = binding(bound.places[number], i)
            facts = {at: place for at, place in enumerate(places) if place < len(names)}
            assert not {BASE, SPARE} & facts.keys()
            if what.kind == "operand":
                assert names[facts[INDEX]] == ("rows", bound.keys[number].cell, what.key)
            if what.kind == "gradient":
                assert facts[STORES] == len(names) - parameters + bound.summed.index(what.key)
            if what.kind in ("scratch", "parameter", "kept"):
                assert facts == {}
                assert bound.fixed[places[BASE] - len(names)] in bound.buffers.values()
