"""Graphs drawn as text."""

from __future__ import annotations

import pytest

from foldbatch.views.drawing import Box
from foldbatch.views.rails import draw_rails


def rails(*names: str) -> list[str]:
    """Draw boxes given as ``name:what,it,reads``, and return the rails without the words."""
    boxes = []
    for text in names:
        key, _, reads = text.partition(":")
        boxes.append(
            Box(key, key, "T", "step" if reads else "operand", tuple(filter(None, reads.split(","))))
        )
    return [
        line.rsplit("  ", 3 if "step" in line else 2)[0].rstrip() for line in draw_rails(boxes).split("\n")
    ]


def test_a_value_runs_down_to_its_last_reader():
    assert rails("a", "b:a", "c:a", "d:b,c") == ["○", "├─●", "● │", "●─╯"]


def test_what_a_line_crosses_it_does_not_read():
    """``c`` reads a and d; the value in the middle passes under the line."""
    assert rails("a", "b:a", "d:a", "c:a,d", "e:b,c") == ["○", "├─●", "├─│─●", "●─│─╯", "●─╯"]


def test_of_what_it_reads_some_ends_and_some_goes_on():
    assert rails("a", "b", "c", "x:a,b,c", "y:b,x", "z:c,y") == [
        "○",
        "│ ○",
        "│ │ ○",
        "●─┼─┤",
        "●─╯ │",
        "●───╯",
    ]
    assert rails("a", "b", "c", "x:a,b,c", "z:a,x")[3] == "├─●─╯"


def test_a_freed_column_is_used_again():
    assert rails("a", "b", "c:a,b", "d", "e:c,d") == ["○", "│ ○", "●─╯", "│ ○", "●─╯"]


def test_a_value_read_twice_by_one_node_is_one_rail():
    assert rails("a", "b:a,a") == ["○", "●"]


def test_sources_stand_above_their_first_reader():
    assert rails("a", "b", "c:a", "d:c,b") == ["○", "●", "│ ○", "●─╯"]


def test_each_kind_has_its_sign_and_stages_are_said():
    boxes = [
        Box("f0", "f0", "N float32", "feed"),
        Box("w", "w", "1 float32", "parameter"),
        Box("c", "2.0", "1 float32", "constant"),
        Box("%0", "%0 add", "N float32", "after", ("f0", "w", "c")),
        Box("r", "loss 0", "N float32", "result", ("%0",)),
    ]
    assert draw_rails(boxes).split("\n") == [
        "○      f0  N float32",
        "│ □    w  1 float32",
        "│ │ ·  2.0  1 float32",
        "●─┴─╯  %0 add  N float32  after",
        "◆      loss 0  N float32",
    ]


@pytest.mark.parametrize("boxes", [[], [Box("a", "a", "T", "operand")]])
def test_nothing_and_a_single_box_can_be_drawn(boxes):
    assert draw_rails(boxes) == ("○  a  T" if boxes else "")
