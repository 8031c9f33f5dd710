"""The picture of a schedule: every call once, where it can be seen, in the colour of its step."""

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import foldbatch as fb
from foldbatch.errors import ExampleError
from foldbatch.views.picture import DrawnCall, calls_of, colour, draw_schedule, picture
from tests.views.drawn import TREES, WORDS, tree_model, word_tree

SVG = "{http://www.w3.org/2000/svg}"


def test_every_call_is_a_circle_in_the_colour_of_its_step_and_every_step_a_line_of_the_legend():
    program = fb.compile(tree_model())
    root = ET.fromstring(draw_schedule(program, TREES))
    circles = root.findall(f"{SVG}circle")
    report = program.describe(TREES)
    assert len(circles) == report.calls == 9
    for circle in circles:
        step = int(circle.attrib["class"].removeprefix("step"))
        assert circle.attrib["fill"] == colour(step, report.steps)
        assert f"step {step + 1}: " in circle[0].text
    legend = [text.text for text in root.findall(f"{SVG}text")]
    assert len(legend) == report.steps
    assert legend[0].endswith("6 calls")


def test_no_two_circles_overlap_and_what_is_read_lies_below():
    drawn = picture(fb.compile(tree_model()), TREES)
    width, height = drawn.size
    for i, (call, (x, y)) in enumerate(zip(drawn.calls, drawn.places, strict=True)):
        assert 0 < x < width
        assert 0 < y < height
        for x_other, y_other in drawn.places[:i]:
            assert (x - x_other) ** 2 + (y - y_other) ** 2 > 18**2
        assert all(drawn.places[j][1] > y for j in call.reads)


def test_examples_stand_side_by_side():
    drawn = picture(fb.compile(tree_model()), TREES)
    placed = list(zip(drawn.calls, drawn.places, strict=True))
    across = [[x for call, (x, _) in placed if call.example == example] for example in range(3)]
    assert max(across[0]) < min(across[1]) <= max(across[1]) < min(across[2])


def test_calls_that_do_not_run_are_rings_and_the_legend_counts_them():
    program = fb.compile(word_tree(), options={"share": "subtrees"})
    report = program.describe(WORDS)
    root = ET.fromstring(draw_schedule(program, WORDS))
    circles = root.findall(f"{SVG}circle")
    rings = [circle for circle in circles if circle.attrib["fill"] == "#ffffff"]
    assert len(rings) == report.calls - report.distinct > 0
    assert all("identical call" in ring[0].text for ring in rings)
    legend = [text.text for text in root.findall(f"{SVG}text")]
    assert sum(" run" in line for line in legend) > 0


def test_an_empty_batch_is_an_empty_picture():
    ET.fromstring(draw_schedule(fb.compile(tree_model()), []))


def test_too_much_to_draw_is_refused():
    model = fb.Map(fb.Scalar()) >> fb.Fold(fb.Function(lambda a, b: a + b), fb.Zeros([]))
    with pytest.raises(ExampleError, match="draw_schedule: expected up to 2000 calls"):
        draw_schedule(fb.compile(model), [range(3000)])


def calls_in(program: fb.Program, examples: Sequence[Any]) -> tuple[DrawnCall, ...]:
    return calls_of(fb.program.schedule(program, program.prepare(examples)), program.model.signatures)


def test_elements_of_sequences_are_read_too() -> None:
    words = fb.Map(fb.Scalar("int32") >> fb.Embedding(3, 2)) >> fb.RNN(fb.LSTMCell(2)) >> fb.GetItem(0)
    program = fb.compile(words >> fb.Sum())
    calls = calls_in(program, [[0, 1, 0], [0]])
    assert len(calls) == program.describe([[0, 1, 0], [0]]).calls
    assert max(len(call.reads) for call in calls) == 3  # the sum reads all outputs


@pytest.mark.parametrize(
    ("share", "policy", "runs"),
    [
        (None, "by_component", 19),
        ("leaves", "by_component", 11),
        ("subtrees", "by_component", 8),
        ("subtrees", "by_agenda", 8),
    ],
)
def test_they_are_those_that_the_program_runs(share: str | None, policy: str, runs: int) -> None:
    """One that does not run is in the step in which its like runs."""
    program = fb.compile(word_tree(), options={"share": share, "policy": policy})
    report = program.describe(WORDS)
    calls = calls_in(program, WORDS)
    assert sum(call.runs for call in calls) == report.distinct == runs
    rows: dict[int, list[int]] = {}
    for number in range(report.steps):
        of_step = [call for call in calls if call.step == number]
        (cell,) = {call.cell for call in of_step}
        rows.setdefault(cell, []).append(sum(call.runs for call in of_step))
    assert [rows.get(k, []) for k in range(len(report.cells))] == [list(cell.rows) for cell in report.cells]
    assert all(calls[i].step < call.step for call in calls for i in call.reads if call.runs)
