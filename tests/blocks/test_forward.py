"""Blocks that refer to themselves and to each other."""

from typing import Any

import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import BlockTypeError

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
