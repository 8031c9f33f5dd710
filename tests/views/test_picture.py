"""The picture of a schedule: every call once, where it can be seen, in the colour of its step."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree as ET

import pytest

import foldbatch as fb
from foldbatch.errors import ExampleError
from foldbatch.views.picture import colour, draw_schedule, picture

SVG = "{http://www.w3.org/2000/svg}"


def tree_model() -> fb.Block:
    tree = fb.ForwardDeclaration(output_type=2, name="tree")
    leaf, node = fb.Vector(2) >> fb.Linear(2), fb.Record((tree(), tree())) >> fb.Concat() >> fb.Linear(2)
    tree.resolve_to(fb.OneOf(lambda t: isinstance(t[0], list), (leaf, node)))
    return tree()


A, B = [1.0, 2.0], [[1.0, 2.0], [3.0, 4.0]]
TREES = [[[A, A], A], B, A]


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
    for i, a in enumerate(drawn.calls):
        assert 0 < a.x < drawn.size[0]
        assert 0 < a.y < drawn.size[1]
        for b in drawn.calls[:i]:
            assert (a.x - b.x) ** 2 + (a.y - b.y) ** 2 > 18**2
        assert all(drawn.calls[j].y > a.y and drawn.calls[j].example == a.example for j in a.reads)


def test_steps_follow_what_is_read_and_examples_stand_side_by_side():
    drawn = picture(fb.compile(tree_model()), TREES)
    assert all(drawn.calls[j].step < call.step for call in drawn.calls for j in call.reads)
    places = [[c.x for c in drawn.calls if c.example == e] for e in range(3)]
    assert max(places[0]) < min(places[1]) <= max(places[1]) < min(places[2])


def test_shared_calls_and_sequences_are_drawn_too():
    words = fb.Map(fb.Scalar("int32") >> fb.Embedding(3, 2)) >> fb.RNN(fb.LSTMCell(2)) >> fb.GetItem(0)
    model = words >> fb.Sum()
    drawn = picture(fb.compile(model), [[0, 1, 0], [0]])
    program = fb.compile(model)
    assert len(drawn.calls) == program.describe([[0, 1, 0], [0]]).calls
    assert sum(step.calls for step in drawn.steps) == len(drawn.calls)
    assert max(len(call.reads) for call in drawn.calls) == 3  # the sum reads all outputs


def word_tree() -> fb.Block:
    """Sums over pairs of words, which are numbers: trees whose parts can repeat."""
    tree = fb.ForwardDeclaration(output_type=[2], name="tree")
    word, pair = fb.Scalar("int32") >> fb.Embedding(9, 2), fb.Record((tree(), tree())) >> fb.Concat()
    tree.resolve_to(fb.OneOf(lambda x: isinstance(x, tuple), {True: pair >> fb.Linear(2), False: word}))
    return tree()


WORDS = [((1, 2), ((1, 2), 3)), (1, 2), ((3, 1), (1, 2))]


@pytest.mark.parametrize(
    ("share", "policy", "runs"),
    [
        (None, "by_component", 19),
        ("leaves", "by_component", 11),
        ("subtrees", "by_component", 8),
        ("subtrees", "by_agenda", 8),
    ],
)
def test_what_is_drawn_is_what_the_program_runs(share, policy, runs):
    """Rings for what is shared; each in the step in which its like runs."""
    program = fb.compile(word_tree(), share=share, policy=policy)
    report, drawn = program.describe(WORDS), picture(program, WORDS)
    assert sum(call.runs for call in drawn.calls) == report.distinct == runs
    for k, cell in enumerate(report.cells):
        assert tuple(step.runs for step in drawn.steps if step.cell == k) == cell.rows
    for number, step in enumerate(drawn.steps):
        of_step = [call for call in drawn.calls if call.step == number]
        assert {call.cell for call in of_step} == {step.cell}
        assert (len(of_step), sum(call.runs for call in of_step)) == (step.calls, step.runs)
    assert all(drawn.calls[i].step < call.step for call in drawn.calls for i in call.reads if call.runs)
    root = ET.fromstring(draw_schedule(program, WORDS))
    circles = root.findall(f"{SVG}circle")
    assert sum(circle.attrib["fill"] == "#ffffff" for circle in circles) == report.calls - runs
    legend = [text.text for text in root.findall(f"{SVG}text")]
    assert sum(" run" in line for line in legend) == sum(step.runs < step.calls for step in drawn.steps)


def test_it_is_written_and_runs_as_a_page(tmp_path):
    page = draw_schedule(fb.compile(tree_model()), TREES, tmp_path / "batch.html", animate=True)
    assert (tmp_path / "batch.html").read_text(encoding="utf-8") == page
    names = json.loads(re.search(r"const names = (\[.*?\]),", page)[1])
    assert len(names) == len(picture(fb.compile(tree_model()), TREES).steps)
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")  # self-contained


def test_an_empty_batch_is_an_empty_picture():
    ET.fromstring(draw_schedule(fb.compile(tree_model()), []))


def test_too_much_to_draw_is_refused():
    model = fb.Map(fb.Scalar()) >> fb.Fold(fb.Function(lambda a, b: a + b), fb.Zeros([]))
    with pytest.raises(ExampleError, match="draw_schedule: expected up to 2000 calls"):
        draw_schedule(fb.compile(model), [range(3000)])


def test_a_block_is_compiled_first():
    assert draw_schedule(tree_model(), TREES) == draw_schedule(fb.compile(tree_model()), TREES)
