"""Steps are applied to their lanes, or refuse what they do not know."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.blocks.columnar.clock import Frame
from foldbatch.blocks.columnar.kinds import Data, Refused
from foldbatch.blocks.columnar.scope import Run, Scope
from tests.blocks.columnar.test_statements import parsed


def applied(body, **names):
    scope = Scope(Run(1, 1, {}), Frame(3), None, 3)
    scope.names.update(names)
    body.apply(scope)
    return scope


BRANCHES = ["if x is not None:", "    y = f(x)", "else:", "    y = f(z)"]


def test_branches_are_applied_to_their_lanes():
    column = Data(np.array([0, 1, 0]), ("a", None))
    scope = applied(parsed(*BRANCHES, f=str), x=column, z=Data(np.array([0, 0, 0]), ("z",)))
    made = scope.read("y")
    assert [made.objects[code] for code in made.codes] == ["a", "z", "a"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("case1 = table.get(x, 2)", "may change"),
        ("case1 = table.get(n, 2)", "chooses by a node"),
        ("refuse_1(x)", "refuses"),
        ("refuse_rest(x, 0)", "refuses"),
        ("a, b = x", "unpacks"),
        ("list1.append(x)", "another loop"),
        ("row0((n, x,))", "passes an object"),
        ("a = b", "no column: b"),
        ("a = x + 1", "tensors only"),
    ],
)
def test_what_cannot_be_applied_is_refused(line, reason):
    with pytest.raises(Refused, match=reason):
        applied(parsed(line, table={}), x=Data(np.zeros(3, int), ([1],)), n=np.zeros(3, np.int32))
