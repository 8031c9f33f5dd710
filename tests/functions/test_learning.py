"""What was staged of a walk's cells is kept when it is linked again, as far as nothing that decides it has changed."""

import copy
import enum
import gc
import math
import sys
import weakref
from collections import deque
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import errors, ops
from foldbatch.engines.numpy import TARGET
from foldbatch.engines.numpy.kernel import load
from foldbatch.functions import cells
from foldbatch.functions.cells import GLOBALS
from foldbatch.params.parameters import dense
from foldbatch.static.routines import routine_of

ORDER = ["first", "second", "third"]


def program() -> fb.Program:
    """A walk that calls cells in the order that an example names."""
    layers = {name: fb.Linear(2, name=name) for name in ORDER}

    def made(name: str) -> Any:
        def cell(x: Any) -> Any:
            return fb.ops.tanh(layers[name](x))

        cell.__name__ = name
        return fb.cell(cell)

    cells = {name: made(name) for name in ORDER}

    def walk(names: list[str]) -> Any:
        x = fb.tensor([0.5, -1.0])
        for name in names:
            x = cells[name](x)
        fb.loss(fb.ops.sum(x))
        return x

    return fb.compile(walk, "numpy")


def staged(one: fb.Program) -> dict[str, Any]:
    return {cell.name: cell for cell in one.model.cells}


def test_a_new_wire_stages_only_what_it_changes() -> None:
    learns = program()
    learns.warm([["first", "second"], ["third"]])
    before = staged(learns)
    learns.warm([["first", "third"]])
    after = staged(learns)
    assert after["second"] is before["second"]
    assert after["third"] is not before["third"]  # what it reads has a gradient now
    learns.warm([["second", "second"]])  # which is a recursion now
    assert staged(learns)["second"] is not before["second"]
    assert staged(learns)["third"] is after["third"]


def test_kernels_of_what_is_kept_are_kept() -> None:
    """And the same stage has the same routine, of which engines make kernels once."""

    def kernels(one: fb.Program) -> list[Any]:
        second = staged(one)["second"].training
        stages = [*second.forward.values(), *second.backward.values()]
        return [load(routine_of(stage, TARGET)) for stage in stages]

    learns = program()
    learns.warm([["first", "second"], ["third"]])
    before = kernels(learns)
    learns.warm([["first", "third"]])
    after = kernels(learns)
    assert before
    assert all(new is old for new, old in zip(after, before, strict=True))


def test_what_is_kept_computes_as_what_is_staged_anew() -> None:
    batches = [
        [["first"]],
        [["first", "second"], ["third"]],
        [["third", "third", "first"], ["second", "first"]],
    ]
    learns = program()
    for batch in batches:
        learns.value_and_grad(batch)
    fresh = program()
    fresh.warm([example for batch in batches for example in batch])
    for name, value in learns.params.items():
        fresh.params[name] = value
    for batch in batches:
        (loss, gradients), (right, wanted) = learns.value_and_grad(batch), fresh.value_and_grad(batch)
        assert loss == right
        for name, gradient in gradients.items():
            np.testing.assert_array_equal(gradient, wanted[name])


def test_a_walk_that_is_gone_leaves_no_layer_and_no_cell_behind():
    def held() -> list[weakref.ref[Any]]:
        layer, own = fb.Linear(2), fb.cell(lambda x: ops.tanh(x))
        block = fb.Vector(2) >> fb.Function(lambda x: x * 2)
        w, b = fb.Parameter([2, 2], name="w"), fb.Parameter([2], name="b")

        def walk(x: Any) -> None:
            y = ops.concat([w[0], b])[:2] + fb.tensor(w)[1] + fb.tensor(x) @ w * b  # each op a cell
            fb.loss(ops.sum(own(layer(y)) + block(x)))

        compiled = fb.compile(walk, "numpy")
        compiled.value_and_grad([[1.0, 2.0]])
        names.extend(f"F{cell.number}_0" for cell in compiled.lowered.learnt.cells if cell.feeds)
        assert {*names} <= GLOBALS.keys()
        assert "_called" not in copy.deepcopy(layer).__dict__  # its cells would be those of the first
        assert w.cells and not copy.deepcopy(w).cells
        return [weakref.ref(x) for x in (layer, own, block, w, b, *layer.parameters.values())]

    names: list[str] = []
    found = held()
    while gc.collect():  # what ends ends more
        pass
    assert [x() for x in found] == [None] * len(found)
    assert len({*names} & GLOBALS.keys()) == 1  # the cell that brings numbers in is everybody's


def test_an_annotation_says_the_elements_of_an_empty_list_also_of_tuples() -> None:
    @fb.cell
    def node(children: list[("float32[2]", "float32")]):  # noqa: F821
        return fb.ops.segment_sum(children[0]) + 1.0

    program = fb.compile(lambda n: node([(fb.tensor([1.0, 2.0]), fb.tensor(0.5))] * n), "numpy")
    results = program.run([0, 2])
    assert [x.tolist() for x in results] == [[1, 1], [3, 5]]
    assert [cell.name for cell in program.model.cells] == ["node", "tensor(float32)", "tensor(float32[2])"]


def test_variants_of_a_cell_are_written_once_each_and_told_apart_by_value_and_type() -> None:
    @fb.cell
    def shown(x: Any, *, name: Any, by: float = 1.0) -> Any:
        return x * by + float(ORDINALS[repr(name)])

    names = [1, 1.0, True, 0.0, -0.0, math.nan, "a", (1, True), (1, 1), (math.nan,), *range(2, 40)]
    ORDINALS = {repr(name): place for place, name in enumerate(names)}

    def walk(given: Any) -> Any:
        return [shown(fb.tensor(1.0), name=name) for name in given]

    halved = fb.cell(partial(lambda x, *, by: x * by, by=0.5))
    assert fb.compile(lambda x: halved(fb.tensor(x)), "numpy").run([3.0]) == [1.5]
    program, right = fb.compile(walk, "numpy"), [place + 1.0 for place in range(len(names))]
    with mock.patch.object(cells, "_code", side_effect=cells._code) as written:
        assert program.run([names])[0] == right
        assert written.call_count < 4 * len(names)  # and not all of them for each
    others = [float("nan") if name is math.nan else name for name in names]  # another NaN
    assert program.run([others[::-1]])[0] == right[::-1]
    assert program.debug(names).result == right
    own = shown.cell
    assert len(own.signatures) == len(names)
    with pytest.raises(fb.errors.WalkError, match="a static argument that can be hashed"):
        program.run([[[]]])
    own.forget(7)
    assert program.run([others])[0] == right


STATE_LATER = """
import foldbatch as fb

@fb.cell
def total(xs: list[State], other: Nowhere = None) -> Nothing:
    return fb.ops.sum(fb.ops.segment_sum(xs))

State = fb.types.TensorType((2,), "float32")
"""


@pytest.mark.parametrize("how", ["as text", "when asked"])
def test_annotations_may_name_what_is_defined_after_the_cell(how: str) -> None:
    if how == "when asked" and sys.version_info < (3, 14):
        pytest.skip("Python evaluates annotations at once")
    scope: dict[str, Any] = {"__name__": "later"}
    exec(("from __future__ import annotations\n" if how == "as text" else "") + STATE_LATER, scope)
    program = fb.compile(lambda xs: scope["total"]([fb.tensor(x) for x in xs]), "numpy")
    assert program.run([[], [[1.0, 2.0], [3.0, 4.0]]]) == [0.0, 10.0]


class Shared:
    """Numbers of a class of the user's: an array that is handed out, and written to."""

    shape, dtype = (2,), np.dtype(float)

    def __init__(self) -> None:
        self.held = np.array([1.0, 2.0])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.held

    def __getitem__(self, i: int) -> Any:
        return self.held[i]

    def __setitem__(self, i: int, value: Any) -> None:
        self.held[i] = value


def given(kind: str) -> Any:
    if kind == "shared":
        return Shared()
    if kind == "tensor":
        return pytest.importorskip("torch").tensor([1.0, 2.0])
    if kind == "buffer":
        return memoryview(np.array([1.0, 2.0]))
    return {"list": list, "array": np.array, "window": deque, "masked": np.ma.array}[kind]([1.0, 2.0])


@fb.cell
def annotated(x: "float32[2]") -> Any:  # noqa: F821 - a type of a tensor
    return x * 1.0


@pytest.mark.parametrize("kind", ["array", "list", "tensor", "window", "buffer", "masked", "shared"])
@pytest.mark.parametrize("called", [annotated, fb.tensor, fb.Vector(2)], ids=["cell", "tensor", "block"])
def test_what_a_walk_notes_is_what_data_are_then(called: Any, kind: str) -> None:
    """A simulator writes each observation into the same array."""

    def walk(times: int) -> list[Any]:
        seen, found = given(kind), []
        for _ in range(times):
            found.append(called(seen))
            for i in range(2):
                seen[i] += 10
        return found

    program = fb.compile(walk, "numpy")
    for _ in range(2):
        assert np.array(program.run([2])).tolist() == [[[1, 2], [11, 12]]]


def test_arrays_in_a_list_are_noted_as_they_are() -> None:
    def walk(_: int) -> Any:
        seen = [np.array(1.0), np.array(2.0)]
        found = annotated(seen)
        seen[0][...] = 9
        return found

    assert np.array(fb.compile(walk, "numpy").run([0])).tolist() == [[1, 2]]


class Colour(enum.IntEnum):
    RED = 1
    BLUE = 2


class Metres(float):
    """A number of a class of the user's."""


def test_numbers_of_other_classes_are_numbers() -> None:
    double = fb.cell(lambda x: x * 2)
    program = fb.compile(lambda x: (double(x), double(Metres(0.5))), "numpy")
    for _ in range(2):
        assert program.run([Colour.RED, 2, Colour.BLUE]) == [(2, 1), (4, 1), (4, 1)]


def test_a_parameter_is_given_to_cells_layers_and_ops_like_a_value() -> None:
    start, table = fb.Parameter([2], init=[1.0, -2.0], name="start"), fb.Parameter([50, 2], name="table")
    layer, block = fb.Linear(2, name="layer"), fb.Linear(2, name="block") >> fb.Function(fb.ops.tanh)

    @fb.cell
    def joined(pair, several: list):
        return pair[0] * pair[1] + fb.ops.segment_sum(several)

    def walk(ids: list[int], begin: Any, row: Any) -> Any:
        x = layer(begin) + block(begin) + joined((begin, fb.tensor(1.0)), [begin, layer(begin)])
        for i in ids:
            x = x + row(i) * start
        fb.loss(fb.ops.sum(x) + fb.ops.sum(fb.ops.concat([begin, x])))
        return x

    examples = [[3, 4], [], [7, np.int64(3), 49]]
    short = fb.compile(partial(walk, begin=start, row=lambda i: table[i]), "numpy")
    constant = fb.cell(lambda: start)
    embed = fb.Embedding(50, 2, init=table.value, name="embed")
    long = fb.compile(lambda x: walk(x, constant(), lambda i: embed(int(i))), "numpy")
    (loss, found), (same, expected) = short.value_and_grad(examples), long.value_and_grad(examples)
    expected["table"] = expected.pop("embed.weight")
    assert loss == same and found.keys() == expected.keys()
    for name, gradient in found.items():
        np.testing.assert_allclose(dense(gradient), dense(expected[name]), rtol=1e-6)
    np.testing.assert_array_equal(short.run(examples), long.run(examples))
    np.testing.assert_allclose(short.debug(examples[0]).result, short.run(examples)[0], rtol=1e-6)
    assert sum("gather" in cell.name for cell in short.model.cells) == 1  # one for all rows


def test_ops_of_data_alone_are_values_and_one_cell_whatever_the_data() -> None:
    def walk(x: int) -> Any:
        with_numbers = (
            ops.one_hot(x, 30),
            ops.exp(0.5 * x),
            ops.stack([1.0, float(x)]),
            ops.where(x > 3, 1.0, 2.0),
        )
        return (
            with_numbers,
            ops.einsum("i,i->", np.ones(3), np.full(3, float(x))),
            [ops.random((2,)) for _ in "ab"],
        )

    program = fb.compile(walk, "numpy")
    program.run([0, 1])
    known = len(program.model.cells)
    found = program.run(list(range(30)), step=1)
    assert len(program.model.cells) == known
    (one_hot, grown, stacked, chosen), product, _ = found[7]
    assert one_hot.argmax() == 7 and np.isclose(grown, np.exp(3.5)) and stacked.tolist() == [1, 7]
    assert chosen == 1 and product == 21
    every = np.concatenate([np.concatenate(example[-1]) for example in found])
    assert len(set(every.tolist())) == 120 and (0 <= every).all() and (every < 1).all()
    assert repr(program.run(list(range(30)), step=1)) == repr(found)
    with pytest.raises(errors.GraphError, match="x\\[0\\] = ...; make another one, as ops.where"):
        fb.compile(lambda x: fb.tensor([1.0]).__setitem__(0, x), "numpy").run([2.0])
