import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import BlockValueError


def _held():
    w = fb.Parameter([], init=2.0, name="w")
    program = fb.compile(fb.Scalar() >> fb.Function(lambda x: w * x) >> fb.Loss(), "numpy")
    return program, program.hold([1, 2, 3])


def test_a_batch_is_a_list_of_numbers():
    program, held = _held()
    assert (len(held), held.nbytes, repr(held)) == (3, 0, "Held(3 examples)")
    for numbers, loss in (([0, 2], 8), (np.array([1]), 4), (slice(1, None), 10), ([], 0), ([2, 2], 12)):
        assert program.value_and_grad(held[numbers])[0] == loss
    assert program.value_and_grad([held[1]])[0] == 4


@pytest.mark.parametrize("wrong", [3, -1, [0, 3], ["0"], [True], 0.5, "01", [None]])
def test_what_is_no_number_of_an_example_is_refused(wrong):
    _, held = _held()
    with pytest.raises(BlockValueError, match="held: expected numbers of examples, from 0 to 2, found"):
        held[wrong]
