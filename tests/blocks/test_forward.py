"""Recursion: declarations, depth, and mutual reference."""

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import BlockTypeError, BlockValueError

DEEP = 100_000


def total() -> fb.ForwardDeclaration:
    """The sum of a nested list."""
    declared = fb.ForwardDeclaration(output_type="float32", name="total")
    pair = fb.Record((declared(), declared())) >> fb.Function(lambda a, b: a + b)
    declared.resolve_to(fb.OneOf(lambda x: isinstance(x, list), {False: fb.Scalar(), True: pair}))
    return declared


def test_a_declaration_may_be_called_before_and_after_it_is_resolved() -> None:
    """Both stand for the same block."""
    assert float(total()().eval([1, [2, 3]])) == 6


def test_declarations_may_refer_to_each_other() -> None:
    """Levels of addition and multiplication in turn."""
    add = fb.ForwardDeclaration(output_type="float32", name="add")
    times = fb.ForwardDeclaration(output_type="float32", name="times")

    def node(inner: fb.ForwardDeclaration, fn: object) -> fb.Block:
        pair = fb.Record((inner(), inner())) >> fb.Function(fn)
        return fb.OneOf(lambda x: isinstance(x, tuple), {False: fb.Scalar(), True: pair})

    add.resolve_to(node(times, lambda a, b: a + b))
    times.resolve_to(node(add, lambda a, b: a * b))
    program = fb.compile(add(), debug=True)
    assert [float(x) for x in program.run([((2, 3), ((1, 1), 5)), 4])] == [16, 4]


def test_a_chain_of_100_000_runs_and_differentiates() -> None:
    """No recursion in Python anywhere: depth costs memory only."""
    chain = fb.ForwardDeclaration(output_type=[2], name="chain")
    cell = fb.Linear(2, name="cell")
    step = fb.GetItem(0) >> chain() >> fb.Function(lambda h: fb.ops.tanh(cell(h)))
    chain.resolve_to(fb.OneOf(len, {0: np.float32([1, -1]) >> fb.Identity(), 1: step}))
    example: tuple[object, ...] = ()
    for _ in range(DEEP):
        example = (example,)
    loss = fb.Function(fb.ops.sum) >> fb.Loss()
    program = fb.compile(chain() >> loss)
    value, gradients = program.value_and_grad([example])
    assert np.isfinite(value)
    assert np.isfinite(gradients["cell.weight"]).all()
    while example:  # freed one by one, lest Python's own destructor recurse
        (example,) = example


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        (fb.ForwardDeclaration(output_type=3, name="open"), "expected a resolved declaration"),
        (fb.ForwardDeclaration(name="untyped"), "expected a"),
    ],
)
def test_unfinished_declarations_are_refused_when_compiled(declaration: fb.ForwardDeclaration, message: str) -> None:
    """With the declaration's name."""
    with pytest.raises(BlockTypeError) as caught:
        fb.compile(declaration())
    assert message in str(caught.value)
    assert declaration.name in str(caught.value)


def test_a_declaration_is_resolved_once_and_keeps_its_word() -> None:
    """A second block is a ValueError; another type than declared a TypeError."""
    declared = fb.ForwardDeclaration(output_type=3, name="word")
    declared.resolve_to(fb.Vector(2))
    with pytest.raises(BlockValueError, match="expected one definition, found a second one"):
        declared.resolve_to(fb.Vector(3))
    with pytest.raises(ValueError, match="expected one definition, found a second one"):
        declared.resolve_to(fb.Vector(3))
    with pytest.raises(BlockTypeError, match=r"the declared float32\[3\], found float32\[2\]"):
        fb.compile(declared())


def test_tensors_may_be_passed_down() -> None:
    """A declared input type of an object and a tensor: a running product from the root."""
    down = fb.ForwardDeclaration(input_type=(fb.types.ObjectType(), "float32"), output_type="float32", name="down")
    here = fb.AllOf(fb.GetItem(0) >> fb.GetItem("x") >> fb.Scalar(), fb.GetItem(1)) >> fb.Function(lambda x, p: x * p)
    rest = fb.AllOf(fb.GetItem(0) >> fb.GetItem("next"), here) >> down()
    down.resolve_to(fb.OneOf(fb.GetItem(0) >> fb.InputTransform(lambda x: "next" in x), {True: rest, False: here}))
    model = fb.AllOf(fb.Identity(), np.float32(1)) >> down()
    assert float(model.eval({"x": 2, "next": {"x": 3, "next": {"x": 4}}})) == 24
