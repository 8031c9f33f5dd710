"""A block alone, without a program: `eval`, `max_depth`, `load_parameters`."""

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import ExampleError, UnknownNameError, UnusedBackendWarning

ROW = fb.Record((fb.Tensor([3, 2]), fb.Scalar("int32")))


def halvings(x):
    """Halve a number until it is below 1; return how often, which decides how many cells are called."""
    steps = fb.tensor(0.0)
    while float(x) >= 1:
        x, steps = x * 0.5, steps + 1.0
    return steps


def test_a_program_of_the_block_gives_the_same():
    words = fb.Map(fb.Scalar("int32") >> fb.Embedding(5, 3, name="words"))
    block = words >> fb.RNN(fb.LSTMCell(4)) >> fb.GetItem(0)
    example = [1, 2, 3, 1]
    found = block.eval(example)
    np.testing.assert_allclose(found, fb.compile(block, "numpy").run([example])[0], rtol=1e-5, atol=1e-6)
    assert found[0].dtype == np.float32


def test_it_draws_what_a_first_run_draws():
    block = fb.Scalar() >> fb.Function(lambda x: x + ops.random(()))
    assert block.eval(1.0) == fb.compile(block, "numpy").run([1.0])[0]


def test_backends_choose_the_precision_or_are_warned_of():
    block = fb.Vector(2) >> fb.Function(lambda x: x / 3)
    assert [block.eval([1, 2], backend).dtype for backend in ("auto", "numpy", "reference")] == [
        np.float32,
        np.float32,
        np.float64,
    ]
    with pytest.warns(
        UnusedBackendWarning, match=r'eval backend: .*found .llvm.; .*fb.compile\(block, "llvm"\)'
    ):
        assert block.eval([3, 6], "llvm").tolist() == [1, 2]
    with pytest.raises(UnknownNameError, match="backend: expected one of auto, .*found 'numpi'"):
        block.eval([1, 2], "numpi")


def test_results_are_the_callers():
    """Whoever writes to them changes nothing of the block."""
    numbers = fb.FromTensor(np.array([1, 2]))
    block = fb.AllOf(numbers, numbers >> fb.Metric("numbers")) >> fb.GetItem(0)
    result, metrics = block.eval(None)
    result += 1
    metrics["numbers"][0][...] = 9
    result, metrics = block.eval(None)
    assert result.tolist() == metrics["numbers"][0].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("block", "example"),
    [
        (ROW >> fb.Function(lambda x, i: ops.gather(x, i + 1)), (np.ones((3, 2)), 2)),
        (
            fb.Record((fb.Map(fb.Vector(2)), fb.Scalar("int32")))
            >> fb.Function(lambda xs, i: ops.gather(xs, i)),
            ([], 0),
        ),
    ],
    ids=["a table", "a list"],
)
def test_ids_out_of_range_are_refused_as_a_program_does(block, example):
    with pytest.raises(ExampleError) as wanted:
        fb.compile(block, "numpy").run([example])
    with pytest.raises(ExampleError) as found:
        block.eval(example)
    assert str(found.value) == str(wanted.value)


def test_blocks_with_walks_decide():
    """Their numbers are computed op by op, so no program is needed."""
    block = fb.Map(fb.functions.Walk(lambda x: halvings(fb.tensor(x)), "float32")) >> fb.Sum()
    assert block.eval([0.5, 5.0, 2.0]) == 5
    shallow, deep = (block.max_depth([x]) for x in (2.0, 64.0))
    assert shallow < deep
    table = fb.Parameter([2, 1], init=[[1.0], [2.0]])
    wrong = fb.functions.Walk(lambda x: float(ops.gather(table, fb.tensor(x))[0]) * fb.tensor(1.0), "float32")
    with pytest.raises(ExampleError, match="gather.* at example 0: expected ids from 0 to 1, found 7"):
        (fb.Identity() >> wrong).eval(7)


def test_parameters_of_a_walk_are_drawn_as_by_a_program():
    def twin():
        layer = fb.Linear(2, name="layer")
        return (
            fb.Map(fb.functions.Walk(lambda x: halvings(fb.tensor(x)) * layer(fb.tensor([x])), 2)) >> fb.Sum()
        )

    found = twin().eval([1.0, 3.0])
    np.testing.assert_allclose(found, fb.compile(twin(), "numpy").run([[1.0, 3.0]])[0], rtol=1e-5, atol=1e-6)
