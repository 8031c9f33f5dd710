"""A few new examples of a walk are computed as a round: the same results, and what is new is learnt."""

from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import NewCellsWarning
from foldbatch.functions.rounds import Rounds
from foldbatch.trees import Tree
from tests.backends import LLVM

pytestmark = pytest.mark.skipif(not LLVM, reason="llvmlite is not installed")

embedding, linear = fb.Embedding(9, 4), fb.Linear(4)


@fb.cell
def leaf(word: Any) -> Any:
    return embedding(word)


@fb.cell
def node(children: Any) -> Any:
    return fb.ops.tanh(linear(fb.ops.segment_sum(children)))


@fb.cell
def other(state: Any) -> Any:
    return state * 2.0


def walk(example: Any) -> Any:
    if isinstance(example, list):
        state = node([walk(part) for part in example])
        fb.loss(fb.ops.sum(state))
        return state
    return other(leaf(-example)) if example < 0 else leaf(example)


def rounds(run: Any) -> int:
    """Return how many batches ran as a round, from their notes."""
    ran, run_small = list[bool](), Rounds.run_small

    def watched(self: Rounds, *arguments: Any) -> bool:
        ran.append(run_small(self, *arguments))
        return ran[-1]

    with mock.patch.object(Rounds, "run_small", watched):
        run()
    return sum(ran)


def test_few_examples_are_a_round_with_the_results_of_any_batch() -> None:
    program, plain = fb.compile(walk, "llvm"), fb.compile(walk, "llvm")
    examples = [[1, [2, 3]], 4, [[5], [6, 7], 8]]
    assert rounds(lambda: program.run(examples)) == 0, "the first batch is learnt from"
    assert rounds(lambda: program.run(examples)) == 1
    assert rounds(lambda: program.run(examples, losses=True)) == 0
    assert rounds(lambda: program.run(examples * 50)) == 0
    expected = plain.run(examples * 50)[:3]
    assert [x.tobytes() for x in program.run(examples)] == [x.tobytes() for x in expected]
    assert program.run([]) == []


def test_what_few_examples_bring_is_learnt_as_of_any_batch() -> None:
    program = fb.compile(walk, "llvm")
    for _ in range(3):
        program.run([[1, 2]])
    tracer: Any = program.lowered
    version = tracer.learnt.version
    expected = fb.compile(walk, "llvm").run([[1, -2]])
    assert rounds(lambda: np.testing.assert_array_equal(program.run([[1, -2]]), expected)) == 0
    assert tracer.learnt.version > version
    assert [cell.name for cell in tracer.learnt.cells][-1] == "other"
    assert rounds(lambda: program.run([[1, -2]])) == 0, (
        "the next batch looks whether the walk goes on to grow"
    )
    assert rounds(lambda: program.run([[1, -2]])) == 1


def test_a_walk_that_goes_on_to_grow_is_told_of() -> None:
    program = fb.compile(lambda x: fb.Linear(2)(fb.tensor([x])), "llvm")
    with pytest.warns(NewCellsWarning):
        for x in range(20):
            program.run([float(x)])


def test_a_tree_that_comes_again_is_traced_once() -> None:
    walked = list[str]()

    def over(tree: Any) -> Any:
        walked.append(tree.label)
        return node([over(child) for child in tree]) if len(tree) else leaf(len(tree.token))

    program, new = fb.compile(over, "llvm"), lambda: Tree.from_nested(("S", ("A", "one"), ("B", "two")))
    program.run([new()])
    program.run([new()])
    tree = new()
    walked.clear()
    assert rounds(partial(program.run, [tree])) == 1
    first = program.run([tree])
    assert walked == ["S", "A", "B"] * 2
    for _ in range(3):
        np.testing.assert_array_equal(program.run([tree]), first)
    assert walked == ["S", "A", "B"] * 2
    ran = program._variants.for_run([tree], frozenset()).ready.traces._ran
    assert ran
    del tree
    assert not [entry for entry in ran.values() if entry() is not None]


def test_schedules_of_rounds_are_kept_while_what_was_noted_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large examples that never come again must not stay in memory, however few they are."""

    def reads(count: int) -> Any:
        state = leaf(1)
        for _ in range(count):
            state = other(state)
        return other(state) if float(fb.ops.sum(state)) > 1e9 else state

    program, plain = fb.compile(reads, "numpy"), fb.compile(reads, "numpy")
    monkeypatch.setattr("foldbatch.functions.rounds.KEPT_BYTES", 2000)
    for count in (60, 5, 61, 300, 6, 62):  # of integers of 8 bytes, two a call
        assert program.run([count])[0].tobytes() == plain.run([count])[0].tobytes()
        kept = sum([len(key[-1]) for key in program._deciding.rounds._tables])
        assert kept <= 2000
    assert len(program._deciding.rounds._tables) == 2


def test_few_large_examples_are_any_batch() -> None:
    program = fb.compile(lambda n: fb.ops.stack([leaf(k % 9) for k in range(n)][-2:]), "llvm")
    for n in (2, 3):
        program.run([n])
    assert rounds(lambda: [program.run([n]) for n in (2, 3_000, 4, 4)]) == 3


def test_an_iterator_is_read_once_though_the_walk_asks_for_a_number_at_last() -> None:
    program = fb.compile(
        lambda x: [leaf(w) if w < 8 else leaf(int(fb.ops.sum(leaf(w)) > 0)) for w in x], "llvm"
    )
    for _ in range(2):
        program.run([[1, 2]])
    np.testing.assert_array_equal(program.run([iter([1, 8])])[0], program.run([[1, 8]])[0])
