"""Blocks that refer to themselves and to each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import BlockTypeError, BlockValueError
from tests.blocks.results import yields

ONE = fb.Scalar()
ADD = fb.Function(lambda a, b: a + b)


def is_list(x: Any) -> bool:
    return isinstance(x, list)


def test_a_declaration_may_be_called_before_and_after_it_is_resolved():
    total = fb.ForwardDeclaration(output_type="float32", name="total")
    early = total()
    total.resolve_to(fb.OneOf(is_list, {False: ONE, True: (early, total()) >> ADD}))
    late = total()
    for block in (early, late):
        assert float(block.eval([[1, 2], [3, [4, 5]]])) == 15.0
    assert float(((early, late) >> ADD).eval([1, [2, 3]])) == 6.0


def test_an_output_that_is_void_or_an_object_or_a_sequence_may_be_declared():
    leaves = fb.ForwardDeclaration(output_type=fb.types.SequenceType(fb.types.TensorType(())), name="leaves")
    leaves.resolve_to(fb.OneOf(is_list, {False: fb.AllOf(ONE) >> fb.Map(fb.Identity()), True: fb.Map(ONE)}))
    assert list(map(float, leaves().eval([1, 2]))) == [1.0, 2.0]
    assert list(map(float, leaves().eval(3))) == [3.0]

    last = fb.ForwardDeclaration(output_type=fb.types.OBJECT, name="last")
    last.resolve_to(fb.OneOf(is_list, {False: fb.Identity(), True: fb.GetItem(-1) >> last()}))
    assert last().eval([1, [2, [3, "end"]]]) == "end"

    for output_type, nothing in (
        (None, fb.Void()),
        (fb.types.VOID, fb.Void()),
        ((), fb.Record(())),
        ((None,), fb.AllOf(fb.Void())),
    ):
        visit = fb.ForwardDeclaration(output_type=output_type, name="visit")
        lossy = fb.AllOf(fb.Identity(), ONE >> fb.Loss()) >> fb.GetItem(0) >> nothing
        visited = fb.AllOf(fb.Identity(), fb.Map(visit())) >> fb.GetItem(0) >> nothing
        visit.resolve_to(fb.OneOf(is_list, {False: lossy, True: visited}))
        assert fb.compile(visit()).run([[1, [2, 3]]], losses=True).loss == 6.0


def test_a_function_of_tensors_may_be_declared_and_used_in_several_places():
    norm = fb.ForwardDeclaration(([2], [2]), "float32", "norm")
    norm.resolve_to(fb.Function(lambda a, b: ops.sum(a * b)))
    ones = np.ones(2, "float32")
    block = fb.AllOf(fb.AllOf(fb.Vector(2), fb.Vector(2)) >> norm(), fb.AllOf(ones, fb.Vector(2)) >> norm())
    assert list(map(float, block.eval([3, 4]))) == [25.0, 7.0]
    program = fb.compile(block)
    assert len(program.lowered.tracer.functions) == 2  # built once


@pytest.mark.parametrize("name", ["two words", "2nd", "größe", "def", "row0", "feed0", "x0", "{x}"])
def test_any_string_will_do_as_name(name):
    total = fb.ForwardDeclaration(output_type="float32", name=name)
    total.resolve_to(fb.OneOf(is_list, {False: ONE, True: (total(), total()) >> ADD}))
    assert float(total().eval([1, [2, 3]])) == 6.0


def test_a_declaration_without_end_is_found_when_compiling():
    """Only what a choice or a list guards may recur: anything else would never end."""
    for make in (
        lambda loop: loop(),
        lambda loop: fb.GetItem(0) >> loop(),
        lambda loop: fb.AllOf(loop(), ONE) >> ADD,
    ):
        loop = fb.ForwardDeclaration(output_type="float32", name="loop")
        loop.resolve_to(make(loop))
        with pytest.raises(BlockTypeError, match="loop: expected a definition that ends"):
            fb.compile(loop())
    guarded = fb.ForwardDeclaration(output_type="float32", name="guarded")
    guarded.resolve_to(fb.Map(guarded()) >> fb.Function(ops.segment_sum))
    assert float(guarded().eval([[], [[], []]])) == 0.0


def test_a_declaration_is_resolved_once():
    loop = fb.ForwardDeclaration(output_type="float32", name="loop")
    loop.resolve_to(ONE)
    with pytest.raises(BlockValueError, match="loop.resolve_to"):
        loop.resolve_to(ONE)
    assert float(loop().eval(1)) == 1.0


def test_an_unresolved_declaration_an_undeclared_and_a_wrong_type_are_refused():
    unresolved = fb.ForwardDeclaration(output_type="float32", name="loop")
    with pytest.raises(TypeError, match=r"model loop\(\): expected a resolved declaration"):
        fb.compile(unresolved())
    undeclared = fb.ForwardDeclaration(name="loop")
    undeclared.resolve_to(ONE)
    with pytest.raises(TypeError, match="expected a declared output type"):
        fb.compile(undeclared())
    wrong = fb.ForwardDeclaration(output_type="float64", name="loop")
    wrong.resolve_to(ONE)
    with pytest.raises(TypeError, match="loop: expected the declared float64, found float32"):
        fb.compile(wrong())
    given = fb.ForwardDeclaration("float32", "float32", name="loop")
    given.resolve_to(fb.Identity())
    with pytest.raises(TypeError, match="expected the declared float32, found object"):
        fb.compile(given())


def test_none_declares_that_nothing_is_yielded():
    nothing = fb.ForwardDeclaration(output_type=None, name="nothing")
    assert nothing().output_type == fb.types.VOID
    assert repr(nothing) == "ForwardDeclaration(output_type=None, name='nothing')"
    assert repr(fb.ForwardDeclaration(name="loop")) == "ForwardDeclaration(name='loop')"
    nothing.resolve_to(ONE)
    with pytest.raises(BlockTypeError, match="nothing: expected the declared void, found float32"):
        fb.compile(nothing())
    undeclared = fb.ForwardDeclaration(name="loop")
    undeclared.resolve_to(ONE)
    with pytest.raises(BlockTypeError, match=r"found none; pass output_type=.*, or None for void"):
        fb.compile(undeclared())


def test_a_declaration_and_its_uses_print_without_end():
    loop = fb.ForwardDeclaration(output_type="float32", name="loop")
    loop.resolve_to(fb.OneOf(is_list, {False: ONE, True: (loop(), loop()) >> ADD}))
    assert repr(loop()) == "loop()"
    assert repr(loop) == "ForwardDeclaration(output_type='float32', name='loop')"
    assert repr(loop.block) == (
        "OneOf(is_list, {False: Scalar('float32'), True: Record((loop(), loop())) >> Function(<lambda>)})"
    )


def test_declarations_may_stand_inside_each_others_definitions():
    """A list of trees, and trees whose leaves are lists: one recursion through both."""
    trees = fb.ForwardDeclaration(output_type="float32", name="trees")
    tree = fb.ForwardDeclaration(output_type="float32", name="tree")
    trees.resolve_to(fb.Map(tree()) >> fb.Sum())
    inner = fb.ForwardDeclaration(output_type="float32", name="inner")
    inner.resolve_to(fb.OneOf(is_list, {False: ONE, True: (inner(), trees()) >> ADD}))
    tree.resolve_to(fb.OneOf(is_list, {False: ONE, True: fb.GetItem(slice(0, 2)) >> inner()}))

    def of_trees(x: Any) -> float:
        return sum(map(of_tree, x))

    def of_tree(x: Any) -> float:
        return of_inner(x[:2]) if is_list(x) else float(x)

    def of_inner(x: Any) -> float:
        return of_inner(x[0]) + of_trees(x[1]) if is_list(x) else float(x)

    examples = [[], [1], [1, [2, [3, [4, [5]]]]], [[[6, []], [7, 8]], 9]]
    yields(trees(), *((x, of_trees(x)) for x in examples))


def test_a_declaration_inside_many_sequences_counts_its_own():
    """Python compiles 20 loops inside each other; the rest of 26 stands in a declaration."""
    block: fb.Block = ONE
    for level in range(26):
        block = fb.Map(block) >> fb.Sum()
        if level == 12:
            inner = fb.ForwardDeclaration(output_type="float32", name="inner")
            inner.resolve_to(block)
            block = inner()
    data: Any = 2
    for _ in range(26):
        data = [data]
    assert float(block.eval([data[0], data[0]])) == 4.0


def test_one_type_alone_is_no_input():
    with pytest.raises(
        BlockTypeError, match=r"the type that it yields, found input_type=8 alone; write .*output_type=8"
    ):
        fb.ForwardDeclaration(8)
