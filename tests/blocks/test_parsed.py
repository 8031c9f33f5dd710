"""Lines are taken apart into statements under headers, and call what is left of cells."""

from __future__ import annotations

import ast

from foldbatch.blocks.drafts import Line, Procedure
from foldbatch.blocks.parsed import Renamed, take_apart
from foldbatch.model.drafts import Draft
from foldbatch.model.needed import PrunedDraft
from foldbatch.types import OBJECT

DRAFTS = [Draft("gone", 0, "v1"), Draft("left", 1, "v2", keys=[2])]
KEPT = {1: PrunedDraft(Draft("left", 0, "v2", keys=[1]), (1, 2), {1: 0, 3: 1}, {1: 0, 2: 1}, {0: 0})}


def parsed(*lines: str) -> list[str]:
    """Return the statements, a line each, with the number of the header that each stands under."""
    function = Procedure("f", "f", OBJECT, OBJECT, [], [], [Line(f"    {line}", "") for line in lines])
    rows = take_apart(function, Renamed(DRAFTS, KEPT))
    atoms = [atom for row in rows for atom in row.atoms]
    return [
        ast.unparse(ast.fix_missing_locations(atom.node)).splitlines()[0]
        + (f" under {atoms.index(atom.around)}" if atom.around else "")
        for atom in atoms
    ]


def test_calls_are_of_what_is_left():
    assert parsed("v2 = call(); row1((v2, a, b, len(c),))") == ["v2 = call()", "row0((v2, b, len(c)))"]
    assert parsed("v1 = call(); row0((v1, v2 + 1,))", "feed0_0(x)") == ["v1 = call()"]
    assert parsed("feed1_0(x)", "feed1_1(x)", "elements1_0(c)") == ["feed0_0(x)", "elements0_0(c)"]
    assert parsed("label1_0(v1)") == ["label0_0(None)"]


def test_outputs_have_new_numbers_or_none():
    assert parsed("x.append((v2, v2 + 1, v2 + 3, v1, y + 1))") == [
        "x.append((None, v2, v2 + 1, None, y + 1))"
    ]
    assert parsed("feed1_1(v2)", "feed1_2(v2)") == [
        "feed0_0(None)",
        "feed0_1(v2)",
    ]  # a key is the call's number


def test_statements_know_their_headers():
    lines = (
        "for i, x in enumerate(y):",
        "    if a:",
        "        b = 1",
        "    elif c:",
        "        pass",
        "    else:",
    )
    assert parsed(*lines, "        d = 2", "e, f = 1, 2", "g, h = z") == [
        "for i, x in enumerate(y):",
        "if a: under 0",
        "b = 1 under 1",
        "if c: under 1",
        "pass under 1",
        "d = 2 under 1",
        "e = 1",
        "f = 2",
        "g, h = z",
    ]
