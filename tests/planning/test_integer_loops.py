"""Loops take as many arguments as their signatures say; see `test_oracle` for what they compute."""

import inspect

import numpy as np

from foldbatch.planning import integer_loops
from foldbatch.planning.compiled import PLAIN, SIGNATURES


def test_every_loop_has_a_signature_of_as_many_arguments() -> None:
    assert {*PLAIN._fields} == {*SIGNATURES}
    for name, signature in SIGNATURES.items():
        assert len(inspect.signature(getattr(PLAIN, name)).parameters) == len(signature.split()), name


def test_lengths_of_sequences_do_not_move_with_value_numbers() -> None:
    """Rows of two kinds of numbers: a first value, one argument, and a length of 3 or 5."""
    packed = np.zeros(2 + 6 + 2, np.int32)
    heads = np.zeros((2, 2), np.int32)
    blocks = np.array([4, 1, 1, 0, 3, 7, 9, 1, 2, 1, 5, 7], np.int32)
    cursors = np.zeros(2, np.int64)
    sections = np.array([1, 1]), np.array([3, 1]), np.array([2, 0])
    assert integer_loops.join(blocks, *sections, cursors, packed, heads)
    assert packed.tolist() == [13, 2, 1, 0, 3, 2 + 4, 1 + 4, 5, 7, 7]
    assert heads.tolist() == [[4, 1], [9, 1]]
