"""Drawings that can be read: rails that end where they are last read, words beside their node."""

import numpy as np
import pytest

from foldbatch.views.explanation import Box, as_text, lines


def random_boxes(seed: int, count: int) -> list[Box]:
    """Return boxes that read some earlier ones, with words of all lengths."""
    rng = np.random.default_rng(seed)
    boxes: list[Box] = []
    for i in range(count):
        reads = tuple(f"b{j}" for j in rng.integers(0, i, rng.integers(0, 4))) if i else ()
        kind = str(rng.choice(["feed", "parameter", "step", "result"]))
        boxes.append(Box(f"b{i}", "m" * int(rng.integers(1, 40)), f"float32[{i}]", kind, reads))
    return boxes


@pytest.mark.parametrize("seed", range(5))
def test_a_rail_holds_one_value_from_its_box_to_its_last_reader(seed):
    boxes = random_boxes(seed, 30)
    left = {box.key: sum(box.key in other.reads for other in boxes) for box in boxes}
    held: dict[int, str] = {}
    for line in lines(boxes):
        assert {held[i] for i in line.read} == set(line.box.reads)
        assert line.passing == {i for i, key in held.items() if left[key]} - line.read - {line.rail}
        for key in set(line.box.reads):
            left[key] -= 1
        assert {held[i] for i in line.ending} == {key for key in line.box.reads if not left[key]}
        assert not left.get(held.get(line.rail, ""))
        held[line.rail] = line.box.key


def rails(*names: str) -> list[str]:
    """Draw boxes given as ``name:what,it,reads``, and return the rails without the words."""
    boxes = []
    for text in names:
        key, _, reads = text.partition(":")
        boxes.append(
            Box(key, key, "T", "step" if reads else "operand", tuple(filter(None, reads.split(","))))
        )
    return [line.rsplit("  ", 3 if "step" in line else 2)[0].rstrip() for line in as_text(boxes).split("\n")]


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
    assert as_text(boxes).split("\n") == [
        "○      f0  N float32",
        "│ □    w  1 float32",
        "│ │ ·  2.0  1 float32",
        "●─┴─╯  %0 add  N float32  after",
        "◆      loss 0  N float32",
    ]


@pytest.mark.parametrize("boxes", [[], [Box("a", "a", "T", "operand")]])
def test_nothing_and_a_single_box_can_be_drawn(boxes):
    assert as_text(boxes) == ("○  a  T" if boxes else "")
