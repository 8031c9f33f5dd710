"""A few examples of blocks run as they were noted, and make what any batch makes, errors too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines.runner import Runner
from foldbatch.errors import ExampleError
from foldbatch.trees import Tree

pytest.importorskip("llvmlite")
ID = fb.Scalar("int32")
WORD = ID >> fb.Embedding(9, 4)


def tree() -> fb.Block:
    of = fb.ForwardDeclaration(output_type=(4, 4), name="tree")
    cell = fb.ChildSumTreeLSTM(4)
    of.resolve_to(fb.AllOf(fb.GetItem(0) >> WORD, fb.GetItem(1) >> fb.Map(of())) >> cell)
    return of()


def of_tree() -> fb.Block:
    of = fb.ForwardDeclaration(output_type=4, name="tree")
    leaf = fb.GetItem("token") >> fb.InputTransform(int) >> WORD
    pair = fb.Record((of(), of())) >> fb.Function(lambda a, b: fb.ops.tanh(a) - b)
    of.resolve_to(fb.OneOf(lambda t: t.is_leaf, {True: leaf, False: pair}))
    return of() >> fb.Linear(3)


PAIRS = [(1, []), (2, [(3, []), (4, [(5, [])])]), (6, [(7, [])] * 3)]
MODELS: dict[str, tuple[fb.Block, list[Any]]] = {
    "lists of pairs": (tree(), PAIRS),
    "trees": (of_tree(), [Tree([2, 2, -1], [0] * 3, ["1", "2", None]), Tree([-1], [0], ["3"])]),
    "ids": (fb.Map(WORD) >> fb.Sum(), [[1, 2], [], [3, 3, 8]]),
    "numbers and vectors": (
        fb.Map(fb.Record((fb.Scalar("float64"), fb.Vector(2), ID))),
        [[(1, [1.5, 2], 7)], [(-0.5, (3, 4), 2**31 - 1), (2.5, [0, 0], 0)]],
    ),
    "negative numbers": (fb.Map(ID >> fb.Function(lambda x: x * 2)), [[1, -2], [3]]),
    "objects": (
        fb.AllOf(fb.Identity(), fb.GetItem(0) >> fb.Scalar(), fb.Map(fb.Scalar())),
        [[1.0, 2.0], [3]],
    ),
    "numbers of NumPy": (fb.Map(WORD) >> fb.Sum(), [np.arange(4), [np.int64(2)]]),
    "nothing to compute": (fb.Identity(), ["a", 1]),
    "many": (fb.Map(WORD) >> fb.Sum(), [[1, 2] * 700, [3, 4] * 700]),
}


def programs(block: fb.Block) -> tuple[fb.Program, fb.Program]:
    one, other = (fb.compile(block, "llvm") for _ in range(2))
    other._deciding.run_small = lambda *_: None
    return one, other


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(alike, a, b))
    return a is b or np.array_equal(a, b)


@pytest.mark.parametrize("name", MODELS)
def test_results_are_those_of_any_batch(name: str) -> None:
    block, examples = MODELS[name]
    one, other = programs(block)
    for batch in (examples[:1], examples, examples[1:] * 3, examples[:1]):
        assert alike([*one.run(batch)], [*other.run(batch)])


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each batch of few examples, whether it ran as it was noted."""
    found, run_small = list[bool](), Runner.run_small

    def watched(runner: Runner, *arguments: Any) -> Any:
        result = run_small(runner, *arguments)
        found.append(result is not None)
        return result

    monkeypatch.setattr(Runner, "run_small", watched)
    return found


def test_plain_data_run_as_they_were_noted(ran: list[bool]) -> None:
    for name in ("lists of pairs", "trees", "ids", "numbers and vectors", "objects"):
        block, examples = MODELS[name]
        fb.compile(block, "llvm").run(examples)
    assert ran == [True] * 5


def test_a_tree_is_traced_when_it_is_met_again(ran: list[bool]) -> None:
    block, trees = MODELS["trees"]
    program = fb.compile(block, "llvm")
    for _ in range(3):
        program.run(trees)
    assert ran == [True]


def test_what_is_known_or_was_recorded_before_is_among_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    block, (known, new) = MODELS["trees"]
    for program in fb.compile(block, "llvm"), fb.compile(lambda t: fb.tensor(t.labels[0]), "llvm"):
        program.plan([known])
        assert len(program.run([known, new])) == len(program.run([new, known, new])) - 1 == 2
    monkeypatch.setattr("foldbatch.blocks.recorder.FULL_RECORD", 8)
    one, other = programs(MODELS["ids"][0])
    assert alike([*one.run(many := [[1, 2] * 10, [1, 2], [3]])], [*other.run(many)])


def test_an_iterator_is_read_once() -> None:
    one, _ = programs(fb.Map(WORD) >> fb.Sum())
    for ids in ([1, 2], [np.int64(1), 2]):  # of which the second is no plain number
        assert alike(one.run([iter(ids)])[0], one.run([[1, 2]])[0])


@pytest.mark.parametrize("bad", [9, -1, 2**40, 1.5, "a", None])
def test_errors_are_those_of_any_batch(bad: Any) -> None:
    said = []
    for program in programs(fb.Map(WORD) >> fb.Sum()):
        with pytest.raises(ExampleError) as refused:
            program.run([[1], [2, bad]])
        said.append(str(refused.value))
        assert alike(program.run([[1, 2]])[0], program.run([[1, 2]] * 2)[1])
    assert said[0] == said[1]


def test_numbers_of_parameters_are_the_present_ones() -> None:
    weight = fb.Parameter([], init=3.0, name="w")
    program = fb.compile(fb.Scalar() >> fb.Function(lambda x: weight * x), "llvm")
    assert program.run([2.0])[0] == 6
    program.params["w"] = 5.0
    assert program.run([2.0])[0] == 10
