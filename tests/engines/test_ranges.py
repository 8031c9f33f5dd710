"""The error of an id out of range: it says which, and is filled in on its way up."""

from __future__ import annotations

import pickle
from functools import partial

import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines.ranges import OutOfRangeError
from foldbatch.errors import ExampleError


def test_it_says_which_call_which_id_and_which_size() -> None:
    error = OutOfRangeError(3, -1, 5)
    assert (error.rank, error.id, error.size, error.launch, error.cell) == (3, -1, 5, -1, -1)
    again = pickle.loads(pickle.dumps(OutOfRangeError(3, -1, 5, 7, 2)))
    assert (again.rank, again.id, again.size, again.launch, again.cell) == (3, -1, 5, 7, 2)
    assert isinstance(error, IndexError)


@pytest.mark.parametrize("policy", ["by_component", "by_depth"])
@pytest.mark.parametrize("method", ["run", "value_and_grad"])
def test_users_read_the_example_and_the_cell(policy: str, method: str) -> None:
    """Whichever level the call ran in, and whichever part of the batch it was in."""
    table = fb.Parameter([4], [1.0, 2.0, 3.0, 4.0], "table")
    chain = fb.ForwardDeclaration(output_type=fb.types.TensorType((), "int32"), name="chain")
    again = (
        fb.GetItem(0) >> chain() >> fb.Function(lambda i: i + ops.cast(ops.gather(table, i), "int32") * 0 + 1)
    )
    chain.resolve_to(fb.OneOf(lambda x: isinstance(x, tuple), {True: again, False: fb.Scalar("int32")}))
    loss = fb.Function(lambda i: ops.gather(table, i)) >> fb.Loss()
    program = fb.compile(chain() >> loss, "numpy", options={"policy": policy}, threads=1)

    def nested(depth: int) -> object:
        return (nested(depth - 1),) if depth else 0

    call = partial(program.run, losses=True) if method == "run" else program.value_and_grad
    call([nested(3)])
    with pytest.raises(ExampleError, match=r"at example 2: expected ids from 0 to 3, found 4"):
        call([nested(3), 1, nested(4), 2])
