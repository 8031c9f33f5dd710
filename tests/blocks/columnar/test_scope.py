"""Scopes: variables of lanes, links, and what branches and loops leave."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.blocks.columnar.clock import Frame
from foldbatch.blocks.columnar.kinds import ListColumn, Refused
from foldbatch.blocks.columnar.scope import MOST, CallLog, Scope


def test_links_are_followed_to_their_ends():
    run = CallLog(0, 1)
    first, second = run.new_links(2), run.new_links(2)
    run.link(second, np.array([7, 8]))
    run.link(first[::-1], second)
    assert run.follow().tolist() == [8, 7, 7, 8]


def test_what_all_branches_assign_is_theirs_afterwards():
    scope = Scope(CallLog(0, 1), Frame(3), None, 3)
    scope.names["x"] = np.array([1, 2, 3])
    left, right = scope.among(np.array([1])), scope.among(np.array([0, 2]))
    left.names["y"], right.names["y"], right.names["z"] = left.read("x"), -right.read("x"), right.read("x")
    scope.gather([left, right])
    assert scope.read("y").tolist() == [-1, 2, -3]
    assert not scope.has("z")


def test_a_variable_that_changes_in_some_cases_only_is_refused():
    scope = Scope(CallLog(0, 1), Frame(2), None, 2)
    scope.names["x"] = np.array([1, 2])
    branch = scope.among(np.array([1]))
    branch.names["x"] = np.array([3])
    with pytest.raises(Refused, match="some cases only"):
        scope.gather([branch, scope.among(np.array([0]))])


def test_a_list_that_changes_from_turn_to_turn_is_refused():
    scope = Scope(CallLog(0, 1), Frame(1), None, 1)
    scope.names["x"] = ListColumn(np.array([1]), (np.array([5]),))
    with pytest.raises(Refused, match="tensors only"), scope.loop(np.array([2]), {"x"}):
        pass


def test_a_variable_is_passed_from_turn_to_turn():
    run = CallLog(0, 1)
    scope = Scope(run, Frame(3), None, 3)
    scope.names["x"] = np.array([5, 6, 7])
    with scope.loop(np.array([2, 0, 1]), {"x"}) as inside:
        assert inside.values("x")[[0, 2]].tolist() == [5, 7]
        inside.names["x"] = np.array([50, 51, 52])
    links = run.follow()
    assert [x if x >= 0 else links[~x] for x in scope.values("x").tolist()] == [51, 6, 52]


def test_more_values_than_numbers_are_refused():
    run = CallLog(0, 1)
    run.calls = MOST
    with pytest.raises(Refused, match="too many calls"):
        Scope(run, Frame(1), None, 1).make_calls()
