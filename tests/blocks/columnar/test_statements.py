"""Statements of the tracing program that columns do not know are refused where they are parsed."""

from __future__ import annotations

import pytest

from foldbatch.blocks.columnar.kinds import Refused
from foldbatch.blocks.columnar.statements import Parser
from foldbatch.blocks.drafts import Line, Procedure
from foldbatch.types import OBJECT, VOID


def parsed(*lines, **names):
    texts = [Line(f"    {line}", f"block {number}") for number, line in enumerate(lines)]
    return Parser(names, frozenset({"run"}), lambda *_: []).parse(
        Procedure("run", "", OBJECT, VOID, [], [], texts)
    )


@pytest.mark.parametrize(
    "line",
    ["while len(x) > 1: pass", "x = y ** 2", "x, y = z.w", "x = y[z + 1]", "if x > y: pass", "x.y = 1"],
)
def test_lines_of_other_kinds_are_refused_with_their_block(line):
    with pytest.raises(Refused) as caught:
        parsed("pass", line)
    assert caught.value.where == "block 1"
