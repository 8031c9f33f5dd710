"""The random programs: that they hold every block there is, and mean the same however they are read."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

import foldbatch as fb
from foldbatch import blocks
from foldbatch.blocks.composition import Wire
from foldbatch.errors import GraphError
from foldbatch.static.graph import input_node
from foldbatch.static.op import CALL, UNBATCHED, ragged
from foldbatch.types import TensorType
from tests.programs import programs
from tests.programs.expressions import STEPS, Expression

TAKEN_APART = fb.Block | fb.ForwardDeclaration | Wire
SHAPES = ((), (1,), (2,), (3,), (1, 2), (2, 2), (2, 3), (3, 2), (2, 2, 2), (2, 3, 2), (1, 2, 2, 2))


def kinds(whole: Any) -> set[str]:
    """Return the names of all classes of blocks in a block."""
    seen: dict[int, Any] = {}
    stack = [whole]
    while stack:
        x = stack.pop()
        if isinstance(x, list | tuple):
            stack += x
        elif isinstance(x, TAKEN_APART) and id(x) not in seen:
            seen[id(x)] = x
            stack += vars(x).values()
    return {type(x).__name__ for x in seen.values()}


def test_every_block_stands_in_random_programs():
    found: set[str] = set()

    @settings(
        max_examples=400,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(programs(dropout=True))
    def look(program):
        found.update(kinds(program.block))

    look()
    assert set(blocks.__all__) - found == {"Block", "Vector"}  # Tensor is what Vector is


@pytest.mark.parametrize("number", range(len(STEPS)))
def test_a_step_is_taken_for_the_types_of_its_operands_alone(number):
    """A parameter is unbatched when compiled, but an input in the oracle: both must leave out the same steps."""
    elements = ragged()
    for shapes, sequences in product(product(SHAPES, repeat=2), product([False, True], repeat=2)):
        found = set()
        for axes in product(*([elements] if sequence else [UNBATCHED, CALL] for sequence in sequences)):
            expression = Expression([], [], TensorType((), "float64"), [])
            a, b = (
                input_node(TensorType(shape, "float64"), axis)
                for shape, axis in zip(shapes, axes, strict=True)
            )
            try:
                found.add(STEPS[number](a, b, expression).shape)
            except GraphError:
                found.add(None)
        assert len(found) == 1, (shapes, sequences, found)
