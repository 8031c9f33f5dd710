"""The calls of a batch as data: all of them, in the steps in which the program runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import foldbatch as fb
from foldbatch.views.calls import Call, DrawnStep, calls_of
from tests.views.drawn import TREES, WORDS, tree_model, word_tree


def calls_in(program: fb.Program, examples: Sequence[Any]) -> tuple[tuple[Call, ...], tuple[DrawnStep, ...]]:
    """Return the calls of a batch and its steps."""
    return calls_of(program.schedule(program.prepare(examples)), program.model.signatures)


def test_a_call_runs_after_those_that_it_reads_which_are_of_its_example() -> None:
    calls, steps = calls_in(fb.compile(tree_model()), TREES)
    assert [len([call for call in calls if call.example == i]) for i in range(3)] == [5, 3, 1]
    for number, call in enumerate(calls):
        assert call.runs
        assert steps[call.step].cell == call.cell
        for i in call.reads:
            assert i < number
            assert calls[i].step < call.step
            assert calls[i].example == call.example


def test_elements_of_sequences_are_read_too() -> None:
    words = fb.Map(fb.Scalar("int32") >> fb.Embedding(3, 2)) >> fb.RNN(fb.LSTMCell(2)) >> fb.GetItem(0)
    program = fb.compile(words >> fb.Sum())
    calls, steps = calls_in(program, [[0, 1, 0], [0]])
    assert len(calls) == program.describe([[0, 1, 0], [0]]).calls
    assert sum(step.calls for step in steps) == len(calls)
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
    program = fb.compile(word_tree(), share=share, policy=policy)
    report = program.describe(WORDS)
    calls, steps = calls_in(program, WORDS)
    assert sum(call.runs for call in calls) == report.distinct == runs
    for k, cell in enumerate(report.cells):
        assert tuple(step.runs for step in steps if step.cell == k) == cell.rows
    for number, step in enumerate(steps):
        of_step = [call for call in calls if call.step == number]
        assert {call.cell for call in of_step} == {step.cell}
        assert (len(of_step), sum(call.runs for call in of_step)) == (step.calls, step.runs)
    assert all(calls[i].step < call.step for call in calls for i in call.reads if call.runs)


def test_an_empty_batch_has_none() -> None:
    assert calls_in(fb.compile(tree_model()), []) == ((), ())
