"""What is measured is what was asked for, on the same examples at every size; no time is ever asserted."""

import json

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import BlockValueError, ExampleError
from foldbatch.gain import INFER, TRAIN, Batches, BatchFigures, Outcome, Seconds, glance
from tests.knobs import knobs

LISTS = [[1.0] * (1 + i % 3) for i in range(10)]
TREES = [fb.trees.Tree.from_nested((1, (2,), (3,))), fb.trees.Tree.from_nested((4,))] * 2


def summed(weight: fb.Parameter | None = None) -> fb.Block:
    step = fb.Function(lambda a, b: a + b if weight is None else a + b * weight)
    return fb.Map(fb.Scalar()) >> fb.Fold(step, fb.Zeros([]))


def with_loss() -> fb.Block:
    return summed(fb.Parameter([], init=2.0, name="w")) >> fb.Loss()


def test_every_size_runs_the_same_examples() -> None:
    """Whole batches; what they are made of is what `describe` says."""
    outcome = fb.bench(summed(), LISTS, [4, 2], repeats=2, backend="numpy", threads=1)
    assert [(b.size, b.batches, b.examples) for b in outcome.batches] == [(1, 4, 4), (2, 2, 4), (4, 1, 4)]
    assert outcome.tasks == ("inference",)
    report = fb.compile(summed(), "numpy").describe([LISTS[i] for i in (0, 2, 5, 7)])
    largest = outcome.batches[-1]
    assert (largest.calls, largest.steps, largest.lower_bound) == (
        report.calls,
        report.steps,
        report.lower_bound,
    )
    assert largest.kernel_calls == report.calls_forward
    assert {b.calls for b in outcome.batches} == {report.calls}
    assert outcome.batches[0].steps > largest.steps
    assert (outcome.backend, outcome.threads, outcome.repeats) == ("numpy", 1, 2)


def test_training_and_inference_have_their_phases() -> None:
    both = fb.bench(with_loss(), LISTS, [2], repeats=1, backend="numpy")
    assert both.tasks == ("training", "inference")
    phases = ["trace", "merge", "tables", "ready", "forward", "backward", "update"]
    assert list(both.batches[0].phases) == phases
    infer = fb.bench(with_loss(), LISTS, [2], repeats=1, backend="numpy", train=False)
    assert infer.tasks == ("inference",)
    assert list(infer.batches[0].phases) == phases[:5]
    assert both.batches[0].kernel_calls > infer.batches[0].kernel_calls
    assert fb.bench(with_loss(), LISTS, [2], repeats=1, backend="numpy", train=True).tasks == ("training",)


def test_parameters_are_afterwards_what_they_were() -> None:
    """Though training steps were measured; and when measuring fails."""
    program = fb.compile(with_loss(), "numpy")
    before = {name: value.copy() for name, value in program.params.items()}
    fb.bench(program, LISTS, [2], repeats=1)
    with pytest.raises(ExampleError):
        fb.bench(program, [[1.0], ["x"]], [2], repeats=1)
    for name, value in before.items():
        np.testing.assert_array_equal(program.params[name], value)


def test_new_trees_are_copies() -> None:
    """A program knows the trees that it has seen, and these must be traced in the run."""
    traced: list[fb.trees.Tree] = []
    block = fb.InputTransform(lambda tree: traced.append(tree) or tree.size) >> fb.Scalar()
    fb.bench(block, TREES, [2], repeats=3, backend="numpy")
    turns, sizes, of_each = 1 + 3, 2, 2  # one run on new ones, one phase by phase
    new = [tree for tree in traced if not any(tree is given for given in TREES)]
    assert len(new) == 2 * (turns * sizes * of_each + 1)  # once more for the advice


def test_a_program_has_its_own_backend_and_traces_examples_itself() -> None:
    program = fb.compile(summed(), "numpy")
    with pytest.raises(BlockValueError, match="backend: expected none beside a program, .*, found 'llvm'"):
        fb.bench(program, LISTS, backend="llvm")
    with pytest.raises(BlockValueError, match="threads: expected none beside a program"):
        fb.bench(program, LISTS, threads=1)
    with pytest.raises(ExampleError, match="expected examples, found prepared ones; give the examples"):
        fb.bench(program, program.prepare(LISTS))


def words_of(**options) -> fb.Program:
    word = fb.Scalar("int32") >> fb.Embedding(9, 3)
    block = fb.Map(word) >> fb.Sum() >> fb.Function(lambda x: fb.ops.sum(x * x)) >> fb.Loss()
    return fb.compile(block, "numpy", **knobs(options))


SENTENCES = [[n % 9] * (1 + n % 40) for n in range(80)]


def test_ratios_are_of_medians_of_seconds_an_example(monkeypatch):
    """A turn: 16 examples alone, known and new, then the batch of 40. The first turn does not count."""
    seconds = iter([9, 9, 9, 9] + [1.6, 3.2, 1.0, 4.0] * 6 + [50.0] * 4)
    ran: list[tuple[int, int]] = []

    def train(self, batches):
        ran.append((self.size, len(batches)))
        return next(seconds)

    monkeypatch.setattr(Batches, "train", train)
    gain = "4.0x as many examples a second as one by one (new examples: 2.0x), in training steps of 40"
    assert glance(words_of(), SENTENCES, 40) == f"batching: {gain}"
    assert ran == [(1, 16), (1, 16), (40, 1), (40, 1)] * 8


def test_parameters_stay_and_the_gain_is_a_number():
    measured = words_of()
    before = {name: value.copy() for name, value in measured.params.items()}
    drawn = measured.steps_drawn
    assert glance(measured, SENTENCES, 8).endswith("x), in training steps of 8")
    assert all(np.array_equal(measured.params[name], value) for name, value in before.items())
    assert measured.steps_drawn == drawn


def _batch(size: int, seconds: float) -> BatchFigures:
    known = {
        TRAIN: Seconds(seconds, seconds / 2, 2 * seconds),
        INFER: Seconds(seconds / 4, seconds / 4, seconds),
    }
    new = {task: Seconds(1 / 8 + each.median, each.low, each.high) for task, each in known.items()}
    phases = {"trace": seconds, "forward": 2 * seconds, "backward": seconds}
    return BatchFigures(size, 8 // size, 8, known, new, phases, 80, 40 // size, 5, 99)


OUTCOME = Outcome("numpy", 2, 3, (TRAIN, INFER), (_batch(1, 0.5), _batch(8, 0.125)), ("tree.node: a reason",))


def test_gain_is_over_one_at_a_time() -> None:
    first, last = OUTCOME.batches
    assert (OUTCOME.gain(first, TRAIN), OUTCOME.gain(last, TRAIN), OUTCOME.gain(last, INFER)) == (1, 4, 4)
    assert OUTCOME.gain(last, TRAIN, new=True) == 2.5
    assert last.known[TRAIN].rate == 8


def test_text_has_a_row_for_each_size() -> None:
    rows = [line.split() for line in str(OUTCOME).splitlines()]
    assert ["8", "8", "4.0x", "4", "to", "16", "4", "2.5x"] in rows
    assert ["8", "125000.0", "25%", "250000.0", "50%", "125000.0", "25%", "500000.0"] in rows
    assert "in batches of 8 5 steps, of which 5 must be" in str(OUTCOME)
    assert str(OUTCOME).endswith("What to try\n- tree.node: a reason")
    assert repr(OUTCOME) == "Outcome(batches of 1, 8, backend numpy; print it to read it)"


def test_all_of_it_is_plain_data() -> None:
    """What follows from other figures is written, too."""
    data = json.loads(OUTCOME.to_json())
    assert data == OUTCOME.as_dict() | {
        key: json.loads(json.dumps(value)) for key, value in OUTCOME.as_dict().items()
    }
    assert data["batches"][1]["gain"] == {TRAIN: 4, INFER: 4}
    assert data["batches"][1]["gain_of_new"][TRAIN] == 2.5
    assert data["batches"][1]["examples_per_second"] == {TRAIN: 8, INFER: 32}
    assert data["advice"] == ["tree.node: a reason"]
