"""The law of rounds: a batch of walks that read numbers is each of them alone, decisions, values and gradients."""

import gc
import os
import traceback
import warnings
import weakref
from typing import Any
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines.arrays import ArrayRun
from foldbatch.functions import deciding, suspended
from foldbatch.functions.eager import run
from foldbatch.functions.rounds import Rounds
from tests.backends import lacking, lawful, running
from tests.functions.choices import ChoiceProgram, choice_program

PROGRAMS = int(os.environ.get("FOLDBATCH_CHOICES") or 12)
LOT = 3  # programs a test
each = pytest.mark.parametrize("engine", [e for e in ("numpy", "llvm") if not lacking(e)])
CLOSE = 1e-3  # a decision closer than this may fall otherwise in float32


@pytest.fixture(autouse=True)
def mirrored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rounds that are computed at once be planned as any batch, too."""
    at_once = Rounds._at_once

    def both(self: Rounds, given: Any, *asides: Any, **options: Any) -> list[Any] | None:
        used = self.store.table.copy()
        done = at_once(self, given, *asides, **options)
        if done is not None and given.first < 2_000:
            used = np.append(used, self.store.table[len(used) :] * 0, axis=0)
            try:
                found = self._scheduled(given)[1]
            except fb.errors.WalkError as error:
                raise AssertionError("it was computed at once") from error
            assert_alike(self, given.computing, found, used)
        return done

    monkeypatch.setattr(Rounds, "_at_once", both)


def assert_alike(rounds: Any, computing: Any, found: Any, used: np.ndarray) -> None:
    """Check that a round that was computed at once is what it is when planned as any batch."""
    from foldbatch.engines.llvm import table_loops  # noqa: PLC0415 - it needs llvmlite

    deciding = computing._deciding
    engine = deciding._engine
    runner = (engine.training if computing.training and deciding.phased else engine.inference).small
    store, (ready, _, counts, values, numbers, sizes) = rounds.store, found
    memory, *_, tables, bound, numbered, launches = runner._arrays
    ahead, length = numbered[table_loops.Launches.forward], bound[table_loops.Routines.length]
    assert memory[: len(counts)].tolist() == counts
    schedule = ready.ready.batch.schedule
    keys, table = ready.ready.kernels.bound.keys, ready.ready.tables.forward
    begins = np.repeat([used[store.number(kind), 0] for _, kind in rounds._value_arenas], sizes)
    assert store.place.take(numbers).tolist() == (begins + schedule.row_of.take(values)).tolist()
    others = [keys[kernel].cell not in rounds._imports.values() for kernel in table.launches[:, 0]]
    rows, (heights, levels) = launches[: ahead * length].reshape(-1, length), numbered[4:6]
    assert rows.tolist() == table.launches[others].tolist()
    assert numbered[levels:][: table.bounds.size].tolist() == table.bounds.ravel().tolist()
    assert numbered[heights:levels].tolist() == table.heights.tolist()
    assert tables[tables[table_loops.Tables.index] :][: len(table.index)].tolist() == table.index.tolist()


def assert_close(found: Any, right: Any) -> None:
    """Check that two results are of one structure, and close in float32."""
    if isinstance(right, tuple | list):
        assert type(found) is type(right)
        assert len(found) == len(right)
        for a, b in zip(found, right, strict=True):
            assert_close(a, b)
    elif isinstance(right, np.ndarray):
        assert found.shape == right.shape
        np.testing.assert_allclose(np.asarray(found), right, rtol=1e-3, atol=2e-4)
    else:
        assert found == right


def dense(gradients: Any) -> dict[str, np.ndarray]:
    return {
        n: g.dense() if isinstance(g, fb.params.SparseRows) else np.array(g) for n, g in gradients.items()
    }


def check(program: ChoiceProgram, engine: str) -> None:
    """Check a batch against eager mode in float64, and against the program with the path given."""
    compiled = fb.compile(program.walk, engine)
    examples = program.examples
    compiled.run([e.fresh() for e in examples], losses=True)  # which makes all parameters
    seen = []
    for example in examples:  # which gives them their decisions
        example.path.taken.clear()
        seen.append(run(program.walk, example, "float64"))
    far = [i for i, e in enumerate(examples) if e.path.margin > CLOSE]
    batch = [examples[i].fresh() for i in far]
    results = compiled.run(batch, losses=True, metrics=True)
    right = [seen[i] for i in far]
    assert [e.path.taken.keys() for e in batch] == [examples[i].path.taken.keys() for i in far]
    assert_close(list(results), [one.result for one in right])
    assert results.loss == pytest.approx(sum(one.loss for one in right), rel=1e-4, abs=1e-4)
    assert_close(list(compiled.run([e.fresh() for e in batch])), [one.result for one in right])
    if batch:
        differentiated(program, compiled, batch, engine)


def differentiated(program: ChoiceProgram, compiled: fb.Program, batch: list[Any], engine: str) -> None:
    """Check gradients against the program with the path given, and that against a difference of losses."""
    loss, gradients = compiled.value_and_grad(fresh := [e.fresh() for e in batch], step=3)
    given = fb.compile(program.walk, engine)
    paths = [e.again() for e in fresh]
    right, known = given.value_and_grad(paths, step=3)
    assert not given.lowered.decides
    found, known = dense(gradients), dense(known)
    # wires of other paths, taken before, may change orders of sums
    exact = not program.forks and compiled.lowered.learnt.wires == given.lowered.learnt.wires
    assert loss == right if exact else loss == pytest.approx(right, rel=1e-5)
    for name, gradient in found.items():
        np.testing.assert_allclose(
            gradient, known[name], rtol=0 if exact else 1e-3, atol=0 if exact else 1e-4
        )
    if program.drops:
        return
    draw = np.random.default_rng(program.seed)
    along = {name: draw.normal(size=gradient.shape) for name, gradient in found.items()}
    origin = {name: compiled.params[name].copy() for name in along}

    def at(distance: float) -> float:
        for name, direction in along.items():
            compiled.params[name] = origin[name] + distance * direction
        return float(sum(run(program.walk, e.again(), "float64").loss for e in fresh))

    step = 5e-3
    difference = (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)
    slope = sum(float(np.vdot(gradient, along[name])) for name, gradient in found.items())
    assert slope == pytest.approx(difference, rel=2e-3, abs=2e-3 * max(1.0, abs(loss)))


@pytest.mark.parametrize("first", range(0, PROGRAMS, LOT))
@lawful
def test_a_batch_that_decides_is_its_examples_one_by_one(engine: str, first: int) -> None:
    for seed in range(first, min(first + LOT, PROGRAMS)):
        with warnings.catch_warnings(), running(engine, seed) as backend:
            warnings.simplefilter("ignore", fb.errors.FoldbatchWarning)
            try:
                check(choice_program(seed), backend)
            except Exception as error:
                error.add_note(f"choice_program({seed}) on {engine}")
                raise


def halving(number: float) -> Any:
    """Halve a number until it is below 1: how often, and what is left."""
    x, times = fb.tensor(number), 0
    while float(x) >= 1:
        x, times = x * 0.5, times + 1
    return x, times


def test_results_are_those_of_the_rounds_and_of_the_complete_traces() -> None:
    program = fb.compile(halving, "numpy")
    first, then = program.run([0.25, 5.0, 3.0]), program.run([0.25, 5.0, 3.0])
    asked = program.run([0.25, 5.0, 3.0], losses=True)
    assert list(first) == list(then) == list(asked) == [(0.25, 0), (0.625, 3), (0.75, 2)]
    assert program.run([]) == []


def test_launches_are_those_of_the_longest_example() -> None:
    program = fb.compile(halving, "numpy")
    numbers = [float(2**i) for i in range(12)]
    program.run(numbers)
    launches = []
    for batch in (numbers[-1:], numbers * 5):
        with mock.patch.object(ArrayRun, "forward", autospec=True, side_effect=ArrayRun.forward) as forward:
            program.run(batch)
        launches.append(sum(call.args[0].launches for call in forward.call_args_list))
    assert launches[1] <= 1.3 * launches[0]


def test_an_exception_names_its_example_and_can_leave_others_alone() -> None:
    def walk(number: float) -> Any:
        return 1 / int(fb.tensor(number)), fb.tensor(number) * 2

    program = fb.compile(walk, "numpy")
    with pytest.raises(ZeroDivisionError) as caught:
        program.run([1.0, 0.0])
    assert caught.value.__notes__ == ["foldbatch: in the walk of example 1"]
    one, failed, two = program.run([1.0, 0.0, 4.0], return_exceptions=True)
    assert (one, two) == ((1.0, 2.0), (0.25, 8.0))
    assert isinstance(failed, ZeroDivisionError)
    _, failed = program.run([1.0, "no number"], return_exceptions=True)
    assert isinstance(failed, fb.errors.WalkError)
    for other in (fb.compile(fb.Scalar(), "numpy"), program):
        with pytest.raises(fb.errors.BlockTypeError, match="expected results alone of a plain function"):
            other.run([1.0], return_exceptions=True, losses=True)


@each
def test_each_example_of_a_batch_may_take_as_many_calls_as_one_alone(engine: str) -> None:
    twice = fb.Function(lambda x: x * 2.0)
    words = fb.Map(fb.Scalar() >> twice) >> fb.Sum()

    def walk(x: float) -> int:
        value, times = fb.tensor(x), 0
        while float(value) >= 1:
            value, times = value * 0.5 + words([0.0] * 3) * 0.0, times + 1
        return times

    program = fb.compile(walk, engine, options={"max_calls": 80})
    for _ in range(2):
        assert program.run([2.0**5, 2.0**3, 1.0, 2.0**6, 2.0**6]) == [6, 4, 1, 7, 7]
    examples = [2.0**5, 2.0**20, 2.0**6]
    with pytest.raises(fb.errors.ExampleError, match="walk at example 1: .*max_calls"):
        program.run(examples)
    first, error, last = program.run(examples, return_exceptions=True)
    assert (first, type(error), last) == (6, fb.errors.ExampleError, 7)


@each
def test_an_endless_walk_is_stopped_at_its_line(engine: str) -> None:
    def endless(calls: int) -> None:
        x = fb.tensor(1.0)
        while float(x) > 0:
            for _ in range(calls):
                x = x + 1.0

    with pytest.raises(fb.errors.ExampleError, match="walk at example 1: .*max_calls") as caught:
        fb.compile(endless, engine, options={"max_calls": 50}).run([1, 3])
    assert "x = x + 1.0" in "".join(traceback.format_exception(caught.value))


@each
def test_values_of_other_examples_are_refused(engine: str) -> None:
    kept: dict[float, Any] = {}
    ways = {
        "reads": float,
        "calls": lambda x: x + 1.0,
        "returns": lambda x: x,
        "pending": lambda x: float(x + 1.0),
    }

    def walk(number: float, way: str) -> Any:
        kept[number] = fb.tensor(number)
        if way != "pending":
            float(kept[number])
        return ways[way](kept[1.0])

    for way in ways:
        for runs in ([[1.0]], []):  # where it has decided before, run leaves it at the rounds
            program = fb.compile(lambda number, way=way: walk(number, way), engine)
            for batch in runs:
                program.run(batch)
            kept.clear()
            with pytest.raises(fb.errors.WalkError, match="at example 1: expected (a )?values?"):
                program.run([1.0, 2.0])


class Example:
    def __init__(self, number: float) -> None:
        self.number = number


def test_greenlets_go_on_to_the_next_walk_and_hold_nothing_of_the_one_before() -> None:
    def walk(example: Example) -> float:
        return 1 / float(fb.tensor(example.number))

    program = fb.compile(walk, "numpy")
    program.run([Example(1.0)])
    before = [*suspended._idle.greenlets]
    assert before
    examples = [Example(2.0), Example(4.0)]
    held = [weakref.ref(example) for example in examples]
    assert program.run(examples) == [0.5, 0.25]
    del examples
    gc.collect()
    assert [ref() for ref in held] == [None, None]
    assert before[-1] in suspended._idle.greenlets
    with pytest.raises(ZeroDivisionError):
        program.run([Example(1.0), Example(0.0), Example(1.0)])
    assert program.run([Example(2.0)] * 3) == [0.5] * 3


def test_nothing_waits_for_a_batch_that_has_failed() -> None:
    """Also parts of forks, walks that hold on at their end, and those that have not begun."""
    ended: list[float] = []

    def read(number: float) -> float:
        try:
            return float(fb.tensor(number) * 2.0)
        finally:
            ended.append(number)

    def walk(example: Example) -> Any:
        if example.number == 3:
            try:
                return [read(9.0), float(fb.tensor(1.0) * 2.0)]
            finally:
                float(fb.tensor(1.0) * 3.0)
        if not example.number:
            return 1 / (read(5.0) - 10)
        return fb.together(lambda: read(1.0), lambda: [read(2.0), read(3.0), read(4.0)])

    program = fb.compile(walk, "numpy")
    program.run([Example(1.0)])
    ended.clear()
    examples = [Example(number) for number in (1.0, 0.0, 3.0, 1.0)]
    held = [weakref.ref(example) for example in (*examples[:2], examples[3])]
    with pytest.raises(ZeroDivisionError):
        program.run(examples)
    assert sorted(ended) == [1, 1, 2, 2, 5, 9]
    del examples
    gc.collect()
    assert [ref() for ref in held] == [None] * 3
    assert program.run([Example(1.0)]) == [(2, [4, 6, 8])]


@each
def test_what_was_right_in_a_round_is_looked_at_in_the_next_one_like_it(engine: str) -> None:
    total = fb.cell(lambda xs: fb.ops.segment_sum(xs))
    kept: dict[str, Any] = {}

    def walk(way: str) -> Any:
        short, long = fb.tensor([1.0, 2.0]), fb.tensor([1.0, 2.0, 3.0])
        float(fb.ops.sum(short) + fb.ops.sum(long))
        kept.setdefault(way, short)
        other = {"own": short, "type": long, "example": kept["own"]}[way]
        return total([short, other])

    program = fb.compile(walk, engine)
    for wrong, found in (("type", r"float32\[3\]"), ("example", "one kept from another example")):
        for _ in range(2):
            kept.clear()
            assert [x.tolist() for x in program.run(["own", "own"])] == [[2.0, 4.0]] * 2
        kept.clear()
        with pytest.raises(fb.errors.WalkError, match=found):
            program.run(["own", wrong])


@each
def test_bad_data_are_refused_at_the_call_that_reads_them(engine: str) -> None:
    table = fb.Embedding(3, 2, name="table")
    look = fb.cell(lambda word: fb.ops.sum(table(word)))

    def walk(words: list[int]) -> int:
        return sum(float(look(word)) > 0 for word in words)

    program = fb.compile(walk, engine)
    program.run([[0, 1], [2]])
    for method in (program.run, program.step):
        with pytest.raises(fb.errors.ExampleError, match="at example 1: .* from 0 to 2, found int 7"):
            method([[0, 1], [2, 7]])


@each
def test_data_of_all_kinds_go_to_their_calls(engine: str) -> None:
    @fb.cell
    def folded(x: Any, weight: "float32", number: "int64") -> Any:  # noqa: F821
        return x * 0.5 + weight, number

    def walk(numbers: list[Any]) -> list[Any]:
        found = []
        for last in range(len(numbers)):
            x = fb.tensor(0.0)
            for k, number in enumerate(numbers[: last + 1]):
                x, kept = folded(x, -1.5 if k == 1 else k, number)
            found += float(x), int(kept)
        return found

    numbers = [3, -1, 2**40 + 5, 2**62 + 1, np.int64(7), np.int8(-3), 2**30, 0]
    program = fb.compile(walk, engine)
    for _ in range(2):  # the first time, all is new
        assert program.run([[5], [2**40 + 5]]) == [[0.0, 5], [0.0, 2**40 + 5]]
    found = program.run([numbers[k:] + numbers[:k] for k in range(8)])
    weights, known = [0.0], [0, -1.5, 2, 3, 4, 5, 6, 7]
    for weight in known:
        weights.append(weights[-1] * 0.5 + weight)
    for k, one in enumerate(found):
        assert one[::2] == weights[1:]
        assert one[1::2] == numbers[k:] + numbers[:k]
    assert program.run([numbers[:1], [True, 2]]) == [[0.0, 3], [0.0, 1, -1.5, 2]]


@each
def test_what_only_losses_read_is_left_out_of_rounds(engine: str) -> None:
    @fb.cell
    def both(x: Any, y: Any, xs: list["float32[2]"], ys: list["float32[2]"]) -> Any:  # noqa: F821
        fb.loss(fb.ops.sum(y) + fb.ops.sum(fb.ops.segment_sum(xs)))
        return x * 0.5 + fb.ops.segment_sum(ys), y + 1.0

    def walk(numbers: list[float]) -> Any:
        x, seen = fb.tensor(numbers), list[Any]()
        y = x
        while len(seen) < 4 and float(fb.ops.sum(x)) > 1:
            seen.append(x)
            x, y = both(x, y, seen[:], seen[: len(seen) % 3])
        return len(seen), x, y

    program, examples = fb.compile(walk, engine), [[0.0, 0.5], [1.0, 0.5], [2.0, 3.0]]
    for _ in range(2):
        found = program.run(examples)
        for numbers, one in zip(examples, found, strict=True):
            x, seen = np.array(numbers, np.float32), list[Any]()
            while len(seen) < 4 and x.sum() > 1:
                seen.append(x)
                x = x * np.float32(0.5) + sum(seen[: len(seen) % 3])
            assert one[0] == len(seen)
            assert one[1].tolist() == x.tolist()
            assert one[2].tolist() == (np.array(numbers) + len(seen)).tolist()


def test_ties_are_decided_alike_in_every_batch() -> None:
    def walk(scores: list[float]) -> int:
        return int(fb.ops.argmax(fb.tensor(scores) * 2.0))

    program = fb.compile(walk, "numpy")
    assert list(program.run([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [0.0, 1.0, 1.0]] * 20)) == [1, 0, 1] * 20
    assert [program.run([x])[0] for x in ([1.0, 3.0, 3.0], [2.0, 2.0, 2.0])] == [1, 0]


def test_company_and_order_change_nothing() -> None:
    for seed in (1, 5, 7, 11):
        program = choice_program(seed)
        examples = [e.fresh() for e in program.examples * 2]
        compiled = fb.compile(program.walk, "reference")
        compiled.run([e.fresh() for e in examples], losses=True)
        order = np.random.default_rng(seed).permutation(len(examples))
        together = compiled.run([e.fresh() for e in examples])
        shuffled = compiled.run([examples[i].fresh() for i in order])
        for i, place in enumerate(order):
            alone = compiled.run([examples[place].fresh()])[0]
            for found in (shuffled[i], alone):
                np.testing.assert_allclose(found[0], together[place][0], rtol=1e-9, atol=1e-9)
        loss, gradients = compiled.value_and_grad([e.fresh() for e in examples], step=1)
        parts = [compiled.value_and_grad([examples[i].fresh()], step=1, numbers=[i]) for i in order]
        assert sum(part[0] for part in parts) == pytest.approx(loss, rel=1e-9)
        for name, gradient in dense(gradients).items():
            summed = sum(dense(part[1])[name] for part in parts)
            np.testing.assert_allclose(summed, gradient, rtol=1e-9, atol=1e-9)


async def growing(number: float) -> Any:
    x = fb.tensor(number)
    if float(await x) < 1:
        return 1
    left, right = await fb.together(shrunk(x, 0.5), shrunk(x, 0.25))
    return left + right


async def shrunk(x: Any, by: float) -> int:
    y = x * by
    if float(await y) < 1:
        return 1
    return sum(await fb.together(shrunk(y, 0.5), lambda: shrunk(y, 0.25)))


def test_coroutines_need_no_greenlets() -> None:
    def leaves(x: float) -> int:
        return 1 if x < 1 else leaves(x * 0.5) + leaves(x * 0.25)

    numbers, none = [0.5, 3.0, 40.0], lambda: None
    with mock.patch.object(suspended, "greenlets", none), mock.patch.object(deciding, "greenlets", none):
        program = fb.compile(growing, "numpy")
        assert program.run(numbers) == program.run(numbers) == [leaves(x) for x in numbers]
        assert [program.debug(x).result for x in numbers] == [leaves(x) for x in numbers]
        with pytest.raises(fb.errors.WalkError, match=r"\[decide\]"):
            fb.compile(halving, "numpy").run([1.0])

    async def forgets(number: float) -> float:
        return float(fb.tensor(number))

    with pytest.raises(fb.errors.WalkError, match="expected a value that was awaited"):
        fb.compile(forgets, "numpy").run([1.0])


def test_coroutines_that_an_error_leaves_are_none_that_nobody_awaited() -> None:
    async def deep(n: int) -> Any:
        return await deep(n - 1) * 0.5 if n else await (fb.tensor(1.0) * 2.0)

    async def walk(n: int) -> Any:  # Python warns of the others when they are forgotten
        return await fb.together(*map(deep, (1 // n, n, n)))

    program = fb.compile(walk, "numpy")
    with pytest.raises(ZeroDivisionError):
        program.run([1, 0, 1])
    assert len(program.run([1, 2_000, 1])) == 3  # it begins anew


def test_awaited_parts_come_in_a_tuple_and_may_differ() -> None:
    async def part(x: list[float]) -> Any:
        return x, await fb.ops.sum(fb.tensor(x))

    async def walk(_: None) -> Any:
        return await fb.together(part([1.0]), shrunk(fb.tensor(1.0), 0.25), part([2.0]))

    program = fb.compile(walk, "numpy")
    for result in (program.run([None])[0], program.debug(None).result):
        assert result == (([1.0], 1.0), 1, ([2.0], 2.0))


def test_coroutines_that_an_interrupt_leaves_are_none_that_nobody_awaited() -> None:
    async def walk(number: float) -> Any:
        return await fb.together(shrunk(fb.tensor(number), 0.5), lambda: shrunk(fb.tensor(number), 0.25))

    program = fb.compile(walk, "numpy")
    program.run([3.0, 4.0])
    begin, begun = deciding.UnderWay._begin, []
    for last in range(12):

        def interrupted(batch: Any, fiber: Any, last: int = last) -> None:
            begun.append(fiber)
            if len(begun) > last:
                raise KeyboardInterrupt
            begin(batch, fiber)

        with mock.patch.object(deciding.UnderWay, "_begin", interrupted), pytest.raises(KeyboardInterrupt):
            program.run([3.0, 4.0])
        begun.clear()
        gc.collect()


def test_an_error_in_a_part_is_raised_where_the_parts_meet() -> None:
    def walk(number: float) -> Any:
        try:
            return fb.together(*[lambda x=x: 1 / float(fb.tensor(x)) for x in (1.0, number)])
        except ZeroDivisionError:
            return (0.0, 0.0)

    assert fb.compile(walk, "numpy").run([2.0, 0.0]) == [(1.0, 0.5), (0.0, 0.0)]


def test_a_part_that_asks_for_a_number_at_its_end_does_not_wait_where_another_has_failed() -> None:
    ended = []

    def endless(x: Any) -> None:
        try:
            while True:
                float(x * 2.0)
        finally:
            try:
                float(x * 3.0)
            finally:
                ended.append(x)

    def walk(number: float) -> Any:
        x = fb.tensor(number)
        try:
            fb.together(lambda: endless(x), lambda: 1 / float(x))
        except ZeroDivisionError:
            return float(x * 5.0)

    program = fb.compile(walk, "numpy")
    for times in (1, 2):
        assert program.run([0.0, 0.0]) == [0.0, 0.0]
        assert len(ended) >= 2 * times


def test_parts_side_by_side_take_rounds_of_the_depth() -> None:
    def grown(x: Any, depth: int) -> int:
        if depth == 0 or float(x) < 0:
            return 1
        return sum(fb.together(*[lambda: grown(x + 1.0, depth - 1)] * 2))

    program = fb.compile(lambda number: grown(fb.tensor(number), 6), "numpy")
    program.run([0.0])
    with mock.patch.object(ArrayRun, "forward", autospec=True, side_effect=ArrayRun.forward) as forward:
        assert program.run([0.0, -1.0]) == [64, 1]
    assert forward.call_count <= 8


def test_samples_are_those_of_their_chances_and_the_same_in_both_passes() -> None:
    given = np.log(np.array([0.5, 0.3, 0.2, 1e-9], np.float32))
    score = fb.Parameter([4], init=given, name="score")
    chances = fb.cell(lambda x: score * x)
    learn = fb.cell(lambda logits, action, reward: fb.loss(fb.ops.cross_entropy(logits, action) * reward))

    def walk(example: Any) -> list[int]:
        x, path = example
        drawn = []
        for n in range(10):
            logits = chances(fb.tensor(x))
            asked = fb.ops.sample(logits)
            drawn.append(path[n] if path else int(asked))
            learn(logits, drawn[-1], 1.0)
        return drawn

    program = fb.compile(walk, "numpy")
    batch = [(1.0, None)] * 100
    counts = np.bincount(np.concatenate(list(program.run(batch))), minlength=4)
    assert counts.tolist()[3] == 0
    np.testing.assert_allclose(counts / 1000, np.exp(given), atol=0.06)
    assert program.run(batch, step=0) == program.run(batch, step=0) != program.run(batch, step=1)
    assert program.run(batch) != program.run(batch)
    step = program.step(batch, step=5)
    assert step.results == program.run(batch, step=5)
    path = fb.compile(walk, "numpy").step([(1.0, drawn) for drawn in step.results], step=5)
    assert (path.loss, path.gradients["score"].tolist()) == (step.loss, step.gradients["score"].tolist())


def test_a_trainer_fits_a_walk_that_decides() -> None:
    w = fb.Parameter([], init=0.4, name="w")
    grow = fb.cell(lambda x: x * w + x)
    learn = fb.cell(lambda x, n: fb.loss(fb.ops.square(x - n)))

    def walk(number: float) -> int:
        x, times = fb.tensor(number), 0
        while float(x) < 1.8:
            x, times = grow(x), times + 1
        learn(x, 2.0)
        return times

    program = fb.compile(walk, "numpy")
    program.run([1.0], losses=True)
    program.params["w"] = 0.4
    trainer = fb.train.Trainer(program, fb.SGD(0.02), batch_size=3)
    figures = trainer.fit([0.9, 1.0, 1.1, 0.8, 0.5], [1.0], epochs=15)
    assert figures[-1]["loss"] < 0.3 * figures[0]["loss"]
    assert trainer.predict([1.0]) == program.run([1.0])


def test_a_training_whose_decisions_brought_new_cells_says_so_when_it_is_resumed(tmp_path) -> None:
    weight = fb.Parameter([], init=1.0, name="w")
    grow, half = fb.cell(lambda x: x * weight), fb.cell(lambda x: x * weight * 0.5)

    def walk(number: float) -> None:
        x = grow(fb.tensor(number))
        fb.loss(-(half(x) if float(x) > 1.01 else x))

    def trainer() -> Any:
        program = fb.compile(walk, "numpy")
        return fb.train.Trainer(
            program, fb.SGD(0.1), batch_size=1, callbacks=[fb.train.Checkpoints(tmp_path)]
        )

    first = trainer()
    first.fit([1.0, 1.0, 0.5], epochs=1)
    assert len(first.fit([1.0, 1.0, 0.5], epochs=2, resume=True)) == 2  # it knows them
    weight.value[...] = 1.0  # as in a process of its own
    with pytest.raises(
        fb.errors.TrainingError, match="found one whose walk knew other cells; what it decides"
    ):
        trainer().fit([1.0, 1.0, 0.5], epochs=3, resume=True)


def test_derivatives_take_the_path_that_was_decided() -> None:
    program = fb.compile(halving_with_loss, "reference")
    numbers = [0.25, 5.0, 3.0]
    loss, gradients = program.value_and_grad(numbers)
    pullback = program.vjp(numbers)
    assert dict(pullback.gradients) == gradients
    assert program.jvp(numbers, {"scale": 1.0}) == pytest.approx((loss, float(gradients["scale"])))
    curvature = 3.0 * 3 * 2 * 0.3**3 * 1.5 + 5.0 * 4 * 3 * 0.3**4 * 1.5**2  # of 3 and of 4 factors
    assert program.hvp(numbers, {"scale": 1.0}) == pytest.approx({"scale": curvature, "judge": 0.0})
    report = program.describe(numbers, compare=False)
    assert report.steps > 0 and report.phases["rounds"] > 0
    assert "deciding, in rounds" in str(report) and "prepare" not in str(report)
    assert "calls that only decide run in rounds" in str(report)
    assert program.find_nan(numbers) is None
    program.params["scale"][...] = np.nan
    found = program.find_nan(numbers)
    program.params["scale"][...] = 1.5  # others share it
    assert found is not None and (found.example, found.op) == (0, "parameter scale")


scale = fb.Parameter([], init=1.5, name="scale")
scaled = fb.cell(lambda x: x * scale * 0.3)
judge = fb.Parameter([], init=1.0, name="judge")  # it only decides
judged = fb.cell(lambda x: x * judge)


def halving_with_loss(number: float) -> None:
    x = fb.tensor(number)
    while float(judged(x)) >= 1:
        x = scaled(x)
    fb.loss(scaled(x))


def test_both_passes_draw_alike() -> None:
    """What a round drew, and was read, is what the complete trace draws: of dropout in training, of samples always."""
    dropout, w = fb.Dropout(0.5), fb.Parameter([3], init=1.0, name="w")
    drop = fb.cell(lambda x: dropout(x * w))
    learn = fb.cell(lambda x: fb.loss(fb.ops.sum(x)))

    def walk(numbers: list[float]) -> Any:
        x = fb.tensor(numbers)
        seen, kept, drawn = [], [], 1
        while len(seen) < 3 or (drawn and len(seen) < 6):
            x = drop(x + 1.0)
            fb.ops.sum(x)  # takes a number, and the complete model leaves it out
            learn(x)
            sampled = fb.ops.sample(x * 0.1)
            drawn = int(sampled)
            kept.append((x, sampled))
            seen.append(repr((x.tolist(), drawn)))
        return kept, seen

    program = fb.compile(walk, "numpy", seed=3)
    batch = [[1.0, 2.0, 3.0], [0.5, 0.5, 0.5], [2.0, 1.0, 0.0]] * 4
    program.run(batch)
    for results in (
        program.step(batch, step=4).results,
        program.run(batch, step=4, losses=True),
        program.run(batch, step=4),
    ):
        for kept, seen in results:
            assert [repr((x.tolist(), int(sampled))) for x, sampled in kept] == seen
    assert program.step(batch, step=4).results[0][1] != program.step(batch, step=5).results[0][1]
    assert any(" 0.0," in text for _, seen in program.step(batch, step=4).results for text in seen)


def test_a_module_of_pytorch_decides() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")
    module = fb.torch.Module(halving_with_result, "numpy")
    numbers = [0.25, 5.0, 3.0]
    module.program.run(numbers)
    module.warm(numbers)
    results = module(numbers)
    torch.stack(list(results)).sum().backward()
    found = module.program.vjp(numbers, [1.0] * 3).gradients["scale"]
    assert dict(module.named_parameters())["scale"].grad.item() == pytest.approx(float(found))


def halving_with_result(number: float) -> Any:
    x = fb.tensor(number)
    while float(x) >= 1:
        x = scaled(x)
    return scaled(x)


def test_a_loop_that_may_have_no_end_is_told_of_with_its_line(monkeypatch):
    monkeypatch.setattr("foldbatch.functions.deciding.MAX_ROUNDS", 20)

    def walk(x):
        value = fb.tensor(x)
        while value > 1:
            value = value * 0.5
        return value

    program = fb.compile(walk)
    with pytest.warns(fb.errors.ManyRoundsWarning, match="walk at example 1: .* found 20 numbers") as told:
        program.run([2.0**10, 2.0**30, 2.0**15])
    assert len(told) == 1 and told[0].filename == __file__
