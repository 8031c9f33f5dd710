"""Functions of tensors inside blocks."""

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import BlockTypeError

PAIR = fb.AllOf(fb.Vector(2), fb.Vector(2) >> fb.Function(lambda x: x * 10))


def test_a_tuple_is_spread_over_the_arguments_and_nested_ones_arrive_as_tuples() -> None:
    """fn(a, b), and fn(a, (b, c))."""
    np.testing.assert_array_equal((PAIR >> fb.Function(lambda a, b: a + b)).eval([1, 2]), [11, 22])
    nested = fb.AllOf(fb.Vector(2), PAIR) >> fb.Function(lambda a, bc: a + bc[0] + bc[1])
    np.testing.assert_array_equal(nested.eval([1, 2]), [12, 24])


def test_results_may_be_nested_and_may_be_constants_or_parameters() -> None:
    """Lists become tuples; what is the same for all examples is repeated for each."""
    weight = fb.Parameter([2], 3.0)
    block = fb.Vector(2) >> fb.Function(lambda x: [x, (np.float32(2.5), weight)])
    first, (number, vector) = fb.compile(block).run([[1, 2], [3, 4]])[1]
    assert first.tolist() == [3, 4]
    assert number == 2.5
    assert vector.tolist() == [3, 3]


def test_layers_and_parameters_work_inside() -> None:
    """Parameters used in a function are the program's."""
    layer, weight = fb.Linear(2, init="ones"), fb.Parameter([2, 2], 2.0, "mix")
    program = fb.compile(fb.Vector(2) >> fb.Function(lambda x: layer(x) @ weight + 1))
    assert program.run([[1, 2]])[0].tolist() == [13, 13]
    assert set(program.params) == {"linear.weight", "linear.bias", "mix"}


def test_a_sequence_arrives_as_its_elements() -> None:
    """Along a ragged axis, to be summed; empty ones are zero."""
    total = fb.Map(fb.Vector(2)) >> fb.Function(ops.segment_sum)
    assert [x.tolist() for x in fb.compile(total).run([[[1, 2], [3, 4]], []])] == [[4, 6], [0, 0]]


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (fb.Function(lambda x: x), "expected tensors, found object; read the object as a tensor first"),
        (fb.Scalar() >> fb.Function(lambda x: "a"), "expected a tensor, or a tuple or list of tensors, as result, found str"),
        (fb.Vector(2) >> fb.Function(lambda x: x @ np.ones((3, 1), "float32")), "ops.matmul"),
        (PAIR >> fb.Function(lambda a, b: a + ops.reshape(b, (2, 1)) @ ops.reshape(a, (1, 2)) + ops.concat([a, b])), "ops.add"),
        (fb.Scalar("int32") >> fb.Function(ops.tanh), "expected a float tensor"),
        (fb.Map(fb.Vector(2)) >> fb.Function(lambda x: x), "segment_sum"),
        (fb.Scalar() >> fb.Concat(), "expected a tuple of tensors"),
        (fb.Record(()) >> fb.Concat(), "expected at least one tensor"),
        (fb.AllOf(fb.Vector(2), PAIR) >> fb.Concat(), "pass flatten=True"),
        (fb.AllOf(fb.Vector(2), fb.Scalar("int32")) >> fb.Concat(), "ops.concat"),
        (fb.AllOf(fb.Vector(2), fb.Identity()) >> fb.Concat(), "expected tensors, found object"),
    ],
)
def test_ill_typed_functions_are_refused_when_compiled(block: fb.Block, message: str) -> None:
    """With path, expected and found."""
    with pytest.raises(BlockTypeError) as caught:
        fb.compile(block)
    assert message in str(caught.value)
    assert str(caught.value).startswith("model")


def test_function_must_be_callable() -> None:
    """At once."""
    with pytest.raises(BlockTypeError, match="a function of tensors"):
        fb.Function(3)


def test_concat_joins_scalars_and_flattens() -> None:
    """Scalars count as vectors of one; other axes join too."""
    block = fb.AllOf(fb.GetItem(0) >> fb.Scalar(), fb.AllOf(fb.GetItem(1) >> fb.Vector(2)))
    assert (block >> fb.Concat(flatten=True)).eval([1, [2, 3]]).tolist() == [1, 2, 3]
    rows = fb.AllOf(fb.Tensor([2, 1]), fb.Tensor([2, 1])) >> fb.Concat(axis=1)
    assert rows.eval([[1], [2]]).tolist() == [[1, 1], [2, 2]]


def test_neighbours_become_one_cell() -> None:
    """Ten functions in a row are one call."""
    block: fb.Block = fb.Vector(3)
    for _ in range(10):
        block = block >> fb.Function(lambda x: ops.tanh(x + 1))
    report = fb.compile(block).describe([[1, 2, 3]])
    assert (report.calls, report.steps, report.calls_forward) == (1, 1, 1)
