"""The random programs: that they hold every block there is."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, given, settings

import foldbatch as fb
from foldbatch import blocks
from foldbatch.blocks.composition import Wire
from tests.programs import programs

TAKEN_APART = fb.Block | fb.ForwardDeclaration | Wire


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
