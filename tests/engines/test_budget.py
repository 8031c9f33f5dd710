"""A budget of memory: a batch that is cut gives what the whole batch gives, and never holds more."""

import pickle
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines import budget
from foldbatch.engines.budget import bytes_of
from foldbatch.engines.runner import Runner
from foldbatch.engines.windows import Windowed
from foldbatch.errors import (
    BackendError,
    BlockValueError,
    DeviceMemoryError,
    DeviceMemoryWarning,
    ExampleError,
)
from foldbatch.params.parameters import dense
from foldbatch.program.program import Program
from tests.backends import TESTED, lacking
from tests.engines.cuda.emulator import Emulator

WIDTH = 8
LENGTHS = (20, 15, 25, 6, 1, 30)


def tagger() -> Any:
    """A walk over words with labels: an LSTM with dropout, a loss and a metric at each, and a loss of the sum of some."""
    embed, classify = fb.Embedding(50, WIDTH, name="embed"), fb.Linear(3, name="classify")
    gates, drop = fb.Linear(4 * WIDTH, name="gates"), fb.Dropout(0.3)

    @fb.cell
    def word(number: Any) -> Any:
        return drop(embed(number))

    @fb.cell
    def lstm(state: Any, x: Any) -> Any:
        h, c = state
        i, f, o, g = ops.split(gates(ops.concat([h, x])), 4)
        c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
        return ops.sigmoid(o) * ops.tanh(c), c

    @fb.cell
    def score(h: Any, label: Any) -> Any:
        scores = classify(h)
        fb.loss(ops.cross_entropy(scores, label))
        fb.metric("hit", ops.argmax(scores) == label)
        return scores

    @fb.cell
    def total(states: list[f"float32[{WIDTH}]"], x: f"float32[{WIDTH}]") -> Any:  # type: ignore[valid-type, name-defined]
        result = ops.segment_sum(states) * x
        fb.loss(ops.sum(result * result))
        return result

    def walk(example: Any) -> Any:
        words, x = example
        state = fb.tensor(np.zeros(WIDTH, "f4")), fb.tensor(np.zeros(WIDTH, "f4"))
        scores, states = [], []
        for number, label in words:
            state = lstm(state, word(number))
            scores.append(score(state[0], label))
            states.append(state[0])
        return scores, total(states, x)

    return walk


def sentences() -> list[Any]:
    rng = np.random.default_rng(0)
    return [
        (
            [(int(rng.integers(50)), int(rng.integers(3))) for _ in range(n)],
            rng.normal(size=WIDTH).astype("f4"),
        )
        for n in LENGTHS
    ]


def compiled(walk: Any, memory: int | str | None, threads: int = 1, backend: str = TESTED) -> Program:
    return fb.compile(walk, backend, seed=3, fresh=True, threads=threads, options={"memory": memory})


def parts_of(program: Program, examples: list[Any], *, training: bool = True) -> list[budget.Bounded]:
    return program._runner._bounded(program._trace_all(examples), training=training)


def held(runner: Runner) -> int:
    """Return the bytes of all buffers that a runner holds."""
    return bytes_held(runner._memories)


def bytes_held(memories: list[Any]) -> int:
    total = 0
    for memory in memories:
        if isinstance(memory, dict):
            total += sum(phase.nbytes for phase in memory.values())
        else:  # of a device
            for phase in memory.buffers.values():
                types = zip(phase._capacity.tolist(), phase._types, strict=True)
                total += sum(height * type_.nbytes for height, type_ in types if type_ is not None)
    return total


def need(program: Program, examples: list[Any], *, training: bool = True) -> int:
    runner = program._runner
    return runner.engine.nbytes(
        runner.engine.ready(runner.scheduled(program._trace_all(examples)), training=training)
    )


@pytest.mark.parametrize(
    ("threads", "share", "rows"),
    [
        (1, 2.0, budget.CALLS_PER_LEVEL),
        (1, 0.5, 1),
        (1, 0.4, budget.CALLS_PER_LEVEL),
        (2, 0.6, budget.CALLS_PER_LEVEL),
        (2, 0.3, 1),
    ],
)
def test_a_batch_that_is_cut_gives_what_the_whole_gives(
    monkeypatch: pytest.MonkeyPatch, threads: int, share: float, rows: int
) -> None:
    """Dropout, metrics, results, and gradients of data and of parameters are those of the whole batch."""
    monkeypatch.setattr(budget, "CALLS_PER_LEVEL", rows)  # parts of few rows, or windows
    walk, examples = tagger(), sentences()
    whole = compiled(walk, None)
    loss, gradients = whole.value_and_grad(examples, step=7)
    limit = int(need(whole, examples) * share)
    bounded = compiled(walk, limit, threads)
    found, cut = bounded.value_and_grad(examples, step=7)
    np.testing.assert_allclose(found, loss, rtol=1e-6)
    assert cut.keys() == gradients.keys()
    for name, gradient in gradients.items():
        np.testing.assert_allclose(dense(cut[name]), dense(gradient), rtol=1e-4, atol=2e-6, err_msg=name)
    for program, reference in ((bounded, whole),):
        results, right = (p.run(examples, losses=True, metrics=True) for p in (program, reference))
        np.testing.assert_array_equal(results.metrics["hit"].values, right.metrics["hit"].values)
        np.testing.assert_array_equal(results.metrics["hit"].examples, right.metrics["hit"].examples)
        np.testing.assert_allclose(results.loss, right.loss, rtol=1e-6)
        for one, twin in zip(results, right, strict=True):
            np.testing.assert_allclose(np.stack(one[0]), np.stack(twin[0]), atol=1e-6)
            np.testing.assert_allclose(one[1], twin[1], atol=1e-5)
    inputs, right_inputs = (p.vjp(examples, inputs=True, step=7).inputs for p in (bounded, whole))
    for name, values in right_inputs.items():
        np.testing.assert_allclose(inputs[name].values, values.values, atol=1e-6)
    assert held(bounded._runner) <= limit
    parts = parts_of(bounded, examples)
    assert sum(len(part.part.traces) for part in parts) == len(examples)
    assert all(part.nbytes <= limit for part in parts)
    if share < 1:
        assert len(parts) > 1 or parts[0].windows > 1


def chain() -> Any:
    """A recursion of 300 levels over words, whose loss is at its end."""
    embed, step = fb.Embedding(20, WIDTH, name="embed"), fb.Linear(WIDTH, name="step")

    @fb.cell
    def leaf(word: Any) -> Any:
        return ops.tanh(embed(word))

    @fb.cell
    def node(state: Any, word: Any) -> Any:
        return ops.tanh(step(state) + word)

    @fb.cell
    def ending(state: Any) -> Any:
        fb.loss(ops.sum(state * state))
        return ops.sum(state)

    def walk(words: list[int]) -> Any:
        state = leaf(words[0])
        for word in words[1:]:
            state = node(state, leaf(word))
        return ending(state)

    return walk


CHAIN = [[number % 20 for number in range(start, start + 300)] for start in range(2)]


def test_a_long_recursion_needs_the_root_of_its_levels() -> None:
    """Values between windows and those of one window are a seventh of all; words are read where they are used."""
    walk = chain()
    whole = fb.compile(walk, TESTED, threads=1, options={"share": None})
    whole.warm(CHAIN)
    limit = need(whole, CHAIN) // 7
    bounded = fb.compile(walk, TESTED, threads=1, options={"share": None, "memory": limit})
    (loss, gradients), (found, cut) = (p.value_and_grad(CHAIN) for p in (whole, bounded))
    np.testing.assert_allclose(found, loss, rtol=1e-6)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(dense(cut[name]), dense(gradient), rtol=1e-4, atol=1e-6)
    (part,) = parts_of(bounded, CHAIN)
    ready = next(iter(part.part.ready.values()))
    assert isinstance(ready, Windowed)
    assert len(ready.windows) > 3
    states = 2 * 2 * 4 * WIDTH * (len(ready.windows) - 1)  # of two chains, with cotangents
    results = 2 * 4
    assert (
        ready.border_bytes <= 2 * states + results
    )  # a word that is looked up one level ahead counts as a state


def test_an_example_that_fits_in_no_way_is_refused_with_what_it_needs() -> None:
    walk, examples = tagger(), sentences()
    with pytest.raises(
        BackendError, match=r"^memory: expected a batch that needs at most 2,000 bytes"
    ) as refused:
        compiled(walk, 2000).value_and_grad(examples)
    least = int(refused.value.found.split(": ")[1].split(" ")[0].replace(",", ""))
    loss, _ = compiled(walk, least).value_and_grad(examples, step=7)
    np.testing.assert_allclose(loss, compiled(walk, None).value_and_grad(examples, step=7)[0], rtol=1e-6)


def test_plans_keep_to_the_budget_also_in_another_process_and_phase() -> None:
    walk, examples = tagger(), sentences()
    program = compiled(walk, 15_000)
    loss, _ = program.value_and_grad(examples, step=7)
    plan = program.plan(examples)
    assert len(plan.parts) > 1
    for given in (plan, pickle.loads(pickle.dumps(plan))):
        assert program.value_and_grad(given, step=7)[0] == loss
        # a processor may round a sum over other numbers of rows otherwise
        np.testing.assert_allclose(
            program.run(given)[5][1], program.run(examples)[5][1], rtol=1e-5, atol=1e-6
        )
    program.run(plan)
    assert held(program._runner) <= 15_000


def test_held_batches_keep_to_the_budget() -> None:
    """A batch that waits for cotangents holds the border and one window of each part."""
    examples = CHAIN
    walk = chain()
    found = []
    for memory in (None, 40_000):
        program = fb.compile(walk, TESTED, seed=1, fresh=True, threads=1, options={"memory": memory})
        ready, traces = program._traced(examples)
        pool = ready.derivatives.pool_of(losses=False, results=True, inputs=False, training=True)
        waiting = pool.hold(traces, 0, results=True)
        values = [np.array(value) for value in waiting.values]
        if memory is not None:
            border = sum(part.run.part.border_bytes for part in waiting.parts)  # type: ignore[attr-defined]
            assert waiting.memories is not None
            assert 0 < border < border + bytes_held(waiting.memories) <= memory
            phases = [m for one in waiting.memories for m in getattr(one, "buffers", one).values()]
            assert all(phase.limit is not None for phase in phases)  # so they do not grow ahead
        gradients = waiting.backward([np.float32(2.0)] * len(values)).parameters
        again = waiting.backward([np.float32(2.0)] * len(values)).parameters  # runs forward once more
        for parameter, gradient in gradients.items():
            np.testing.assert_allclose(dense(again[parameter]), dense(gradient), atol=1e-6)
        found.append((values, {parameter.path: dense(g) for parameter, g in gradients.items()}))
    for value, right in zip(found[1][0], found[0][0], strict=True):
        np.testing.assert_allclose(value, right, atol=1e-6)
    for name, gradient in found[0][1].items():
        np.testing.assert_allclose(found[1][1][name], gradient, rtol=1e-4, atol=1e-6)


def test_derivatives_of_second_order_keep_to_the_budget() -> None:
    walk, examples = tagger(), sentences()
    programs = [compiled(walk, memory) for memory in (None, 45_000)]
    for program in programs:
        program.value_and_grad(examples, step=1)
    tangents = {name: np.ones_like(value) for name, value in programs[0].params.items()}
    right, found = (program.jvp(examples, tangents, step=3) for program in programs)
    np.testing.assert_allclose(found, right, rtol=1e-5)
    assert right[1] != 0
    products, cut = (program.hvp(examples, tangents, step=3) for program in programs)
    for name, product in products.items():
        np.testing.assert_allclose(cut[name], product, rtol=1e-4, atol=1e-4)
    runner = programs[1]._variants.full.ready.derivatives._dual
    assert any(part.windows for part in runner._bounded(programs[1]._trace_all(examples), training=True))


def test_describe_says_what_a_batch_takes_with_and_without() -> None:
    walk, examples = tagger(), sentences()
    whole = compiled(walk, None).describe(examples, compare=False)
    report = compiled(walk, 15_000).describe(examples, compare=False)
    assert whole.bound is None
    assert report.buffer_bytes == whole.buffer_bytes
    assert report.bound is not None
    assert report.bound.limit == 15_000
    assert 0 < report.bound.nbytes <= 15_000
    assert report.bound.windows > report.bound.parts > 1
    (line,) = [line for line in str(report).splitlines() if "option memory" in line]
    assert line.startswith("with at most 0.015 MB (the option memory) it runs in ")


def test_an_id_out_of_range_in_a_window_names_the_example() -> None:
    @fb.cell
    def step(state: Any) -> Any:
        return state + 1

    table = fb.Embedding(30, 4)

    @fb.cell
    def look(state: Any) -> Any:
        fb.loss(ops.sum(table(ops.cast(state, "int32"))))
        return state

    def walk(count: int) -> Any:
        state = fb.tensor(np.float32(0))
        for _ in range(count):
            state = look(step(state))
        return state

    program = fb.compile(walk, TESTED, threads=1, options={"memory": 900})
    program.value_and_grad([10, 20])
    assert parts_of(program, [10, 20])[0].windows
    with pytest.raises(ExampleError, match="example 1"):
        program.value_and_grad([10, 40])


def test_graphs_are_refused_beside_a_budget() -> None:
    program = fb.compile(fb.Scalar(), "cuda-on-cpu", launch="auto", options={"memory": 1000})  # type: ignore[arg-type]
    assert program.options.launch == "straight"
    with pytest.raises(BackendError, match="launch: expected straight or auto"):
        fb.compile(fb.Scalar(), "cuda-on-cpu", launch="captured", options={"memory": 1000})  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, -1, True, "", "2 GX", "GiB", 1.5, [1], "1e3"])
def test_a_size_that_is_none_is_refused(size: Any) -> None:
    with pytest.raises(BlockValueError, match="options memory: expected a positive size"):
        bytes_of(size)
    with pytest.raises(BlockValueError, match="options memory: expected a positive size"):
        fb.compile(fb.Scalar(), options={"memory": size})


@pytest.mark.parametrize(("size", "nbytes"), [("1kb", 1000), (" 1.5 KiB ", 1536), ("7", 7), (np.int64(5), 5)])
def test_sizes_are_numbers_or_text(size: Any, nbytes: int) -> None:
    assert bytes_of(size) == nbytes


@pytest.mark.skipif(bool(lacking("cuda-on-cpu")), reason=lacking("cuda-on-cpu"))
def test_a_batch_that_does_not_fit_into_a_device_is_cut_and_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget is halved until it fits, said in a warning, and kept for the batches that follow."""
    walk = chain()
    right, gradients = fb.compile(walk, "numpy", seed=1, fresh=True).value_and_grad(CHAIN)
    program = fb.compile(walk, "cuda-on-cpu", seed=1, fresh=True)  # type: ignore[arg-type]
    program.value_and_grad([CHAIN[0][:2]])
    refused = []
    allocate = Emulator.allocate

    def scarce(self: Emulator, nbytes: int) -> Any:
        if nbytes > 8_000:
            refused.append(nbytes)
            raise DeviceMemoryError("backend cuda", "more memory", "8,000 bytes free", "take smaller batches")
        return allocate(self, nbytes)

    monkeypatch.setattr(Emulator, "allocate", scarce)
    with pytest.warns(DeviceMemoryWarning, match=r"set options={'memory': \d+}"):
        loss, found = program.value_and_grad(CHAIN)
    np.testing.assert_allclose(loss, right, rtol=1e-6)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(np.array(dense(found[name])), dense(gradient), rtol=1e-4, atol=1e-6)
    assert refused
    refused.clear()
    twin = fb.compile(walk, "numpy", seed=1, fresh=True)
    optimizers = fb.Adam(lr=0.05), fb.Adam(lr=0.05)
    for _ in range(2):  # updates go on with what the engine without graphs computes
        losses = []
        for one, optimizer in zip((program, twin), optimizers, strict=True):
            loss, gradients = one.value_and_grad(CHAIN)
            optimizer.update(one.params, gradients)
            losses.append(float(loss))
        np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    assert not refused
    monkeypatch.setattr(Emulator, "allocate", lambda self, nbytes: scarce(self, 10**9))
    with pytest.raises(DeviceMemoryError, match="8,000 bytes free"):
        fb.compile(walk, "cuda-on-cpu").value_and_grad(CHAIN)  # type: ignore[arg-type]
