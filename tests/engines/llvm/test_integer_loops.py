"""Loops mirror arithmetic; that they do the same, run as plain Python too, is tested in `test_arithmetic`."""

import inspect
from dataclasses import fields

import numpy as np

from foldbatch.engines.llvm import integer_loops, table_loops, tables
from foldbatch.engines.llvm.integers import SIGNATURES, arithmetic_of
from foldbatch.scheduler import turns
from foldbatch.scheduler.arithmetic import NUMPY, Arithmetic

ALL_SIGNATURES = {**SIGNATURES, **tables.SIGNATURES}
MODULES = turns, integer_loops, table_loops
LOOPS = {name: {k: v for m in MODULES for k, v in vars(m).items()}[name] for name in ALL_SIGNATURES}
PLAIN = arithmetic_of(LOOPS)


def test_every_function_has_a_mirror_and_a_signature() -> None:
    """Of as many arguments."""
    names = sorted({field.name for field in fields(Arithmetic)} - {"costs", "built", "noted"})
    assert {*names, "weigh", "noted", "write_tables", "write_launches"} == set(ALL_SIGNATURES)
    assert all(inspect.isfunction(getattr(NUMPY, name)) for name in names)
    for name, signature in ALL_SIGNATURES.items():
        assert len(inspect.signature(LOOPS[name]).parameters) == len(signature.split()), name


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
