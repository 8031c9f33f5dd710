"""Products taken out of a recursion change nothing but the time, whatever is known before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.engines import llvm as llvm_engine
from foldbatch.engines.batch import schedule_batch
from foldbatch.engines.bindings import KernelKey
from foldbatch.engines.engine import EngineSettings
from foldbatch.engines.llvm import known_products
from foldbatch.engines.reference import Evaluation
from foldbatch.model.drafts import Feed
from foldbatch.model.model import Model
from foldbatch.params.parameters import Parameter, SparseRows
from foldbatch.scheduler.layout import LAYOUTS
from foldbatch.scheduler.policies import POLICIES
from foldbatch.scheduler.sharing import SHARES
from foldbatch.scheduler.trace import CellSignature, Operand, Trace
from foldbatch.static import ops
from foldbatch.static.cell import stage_cell
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import apply, input_node, parameter_node
from foldbatch.types import VOID, TensorType
from tests.engines import unfused
from tests.engines.random_cells import Runnable, runnables
from tests.knobs import knobs
from tests.scheduler.random_traces import leveled

pytestmark = [
    pytest.mark.llvm,
    pytest.mark.skipif(find_spec("llvmlite") is None, reason="llvm is not installed"),
]
Tree = Any  # a word, or a pair of trees
trees: st.SearchStrategy[Tree] = st.recursive(
    st.integers(0, 4), lambda inner: st.tuples(inner, inner), max_leaves=9
)
layouts = st.sampled_from(sorted(LAYOUTS))
BATCH = [((0, 1), (2, (0, 1))), (3, 4), 2]
SIZE = 5


def thresholds(**others: float) -> Any:
    from foldbatch.engines.llvm import known_launches  # noqa: PLC0415 - it needs llvmlite

    return mock.patch.multiple(known_launches, **{"FEWEST": 1, "LEAST": 0.0, **others})


@pytest.fixture(autouse=True)
def _small_ones_too() -> Iterator[None]:
    with thresholds(), mock.patch.object(known_products, "SMALLEST", 1):
        yield


def model(*, everywhere: bool = True, again: bool = False, shared: bool = False) -> fb.Block:
    """A tree's state is made of its children's; its loss is that of all nodes, or of the root.

    What is multiplied may be read `again`; the weight may be `shared` with the words, of which it makes states.
    """
    gates = fb.Linear(2 * SIZE, name="gates")

    def state(left: Any, right: Any) -> Any:
        a, b = ops.split(gates(ops.concat([left, right])), 2)
        return ops.tanh(a) * ops.sigmoid(b)

    def node(left: Any, right: Any) -> Any:
        made = state(left, right)
        return made + 0.3 * (left - 0.5 * right) * left if again else made

    tree = fb.ForwardDeclaration(output_type=[SIZE, "float64"])
    words = fb.Scalar("int32") >> fb.Embedding(5, SIZE, name="words", dtype="float64")
    word = words >> fb.Function(lambda x: state(x, x) if shared else ops.tanh(x))
    inner = fb.Record((tree(), tree())) >> fb.Function(node)
    either = fb.OneOf(lambda t: isinstance(t, tuple), {True: inner, False: word})
    loss = fb.Function(lambda h: ops.sum(ops.square(h - 0.3))) >> fb.Loss()
    tree.resolve_to(either >> fb.AllOf(fb.Identity(), loss) >> fb.GetItem(0) if everywhere else either)
    return tree() >> fb.AllOf(fb.Identity(), loss) >> fb.GetItem(0)


def dense(gradient: Any) -> Any:
    return gradient.dense() if isinstance(gradient, SparseRows) else gradient


def launched(program: fb.Program, batch: list[Tree], *, training: bool = True) -> list[KernelKey]:
    """Return the kernels that a batch launches, but those that have no routine."""
    ready = program.engine.ready(fb.program.schedule(program, batch), training=training)
    keys = ready.kernels.bound.keys
    tables = [table for table in ready.tables[:2] if table is not None]
    kernels = [int(row[0]) for table in tables for row in table.launches]
    return [keys[kernel] for kernel in kernels if kernel < len(keys)]


def variants(keys: list[KernelKey]) -> list[tuple[str, str]]:
    """Return which of some kernels are given products of known rows, or leave their cotangents."""
    return [(key.direction, key.stage) for key in keys if key.variant]


FORWARD, BACKWARD = [("forward", "step")], [("backward", "step")]

PROGRAMS: dict[Any, list[fb.Program]] = {}


def programs(layout: str, **form: bool) -> list[fb.Program]:
    """Return a program with known products, and others of the same parameters."""
    key = layout, *form.items()
    if key not in PROGRAMS:
        PROGRAMS[key] = compiled(model(**form), layout=layout)
    return PROGRAMS[key]


def compiled(block: fb.Block, **options: Any) -> list[fb.Program]:
    """Return a block compiled for LLVM, and for the other engines."""
    program = fb.compile(block, "llvm", threads=1, debug=True, **knobs(options))
    return [program, *(fb.compile(block, name, threads=1) for name in ("numpy", "reference"))]


def assert_right(program: fb.Program, others: list[fb.Program], batch: list[Tree]) -> None:
    """Check values, losses and gradients against other engines', twice: in fresh memory and in used one."""
    for other in others * 2:
        (loss, gradients), (right, expected) = program.value_and_grad(batch), other.value_and_grad(batch)
        assert np.isclose(loss, right, rtol=1e-9)
        assert set(gradients) == set(expected)
        for name, g in gradients.items():
            np.testing.assert_allclose(dense(g), dense(expected[name]), rtol=1e-9, atol=1e-11, err_msg=name)
        for value, wanted in zip(program.run(batch), other.run(batch), strict=True):
            np.testing.assert_allclose(value, wanted, rtol=1e-9, atol=1e-11)


@settings(max_examples=60, deadline=None)
@given(st.lists(trees, min_size=1, max_size=6), st.booleans(), st.booleans(), st.booleans(), layouts)
def test_results_and_gradients_are_those_of_other_engines(
    batch: list[Tree], everywhere: bool, again: bool, shared: bool, layout: str
) -> None:
    program, *others = programs(layout, everywhere=everywhere, again=again, shared=shared)
    assert_right(program, others, batch)


@pytest.mark.parametrize("again", [False, True])
def test_what_is_known_is_not_computed_by_kernels_too(again: bool) -> None:
    """Neither forward nor backward, nor for the weight's gradient, run the kernels that multiply."""
    program, *_ = programs("consumer", again=again)
    keys = launched(program, BATCH)
    assert variants(keys)[:2] == FORWARD + BACKWARD
    assert len(variants(keys)) == 3, "the bias has a gradient, too"
    (cell,) = {key.cell for key in keys if key.variant}
    plain = {(key.direction, key.stage) for key in keys if key.cell == cell and not key.variant}
    assert not plain & {*FORWARD, *BACKWARD, ("backward", "after")}
    assert variants(launched(program, BATCH, training=False)) == FORWARD


def test_a_report_tells_which_steps_know_rows() -> None:
    """With as many calls as the step that it stands for; what is done around it is no kernel of a cell."""
    program, *_ = programs("consumer", again=False)
    calls = {}
    for fewest in (1, 99):
        with thresholds(FEWEST=fewest):
            launches = program.describe(BATCH).launches
        (step,) = [
            x for x in launches if x.stage.startswith("step") and x.direction == "forward" and x.rows == 5
        ]
        calls[step.stage] = step.levels, step.rows
    assert calls == {"step known": (3, 5), "step": (3, 5)}


@pytest.mark.parametrize("others", [{"FEWEST": 99}, {"LEAST": 0.9}])
def test_a_batch_below_a_threshold_is_left_alone(others: dict[str, float]) -> None:
    """Its launch tables are those that it had without; the next batch is not."""
    program, *_ = programs("consumer", again=False)
    engine, batch = program.engine, fb.program.schedule(program, BATCH)
    with thresholds(**others):
        ready = engine.ready(batch, training=True)
        assert variants(launched(program, BATCH)) == []
    assert len(variants(launched(program, BATCH))) == 3
    tables = [ready.tables.forward, ready.tables.backward]
    kernels = {int(row[0]) for table in tables for row in table.launches}
    assert max(kernels) < len(ready.kernels.bound.keys)


def test_a_recursion_that_takes_turns_with_others_is_left_alone() -> None:
    """By depth, leaves and nodes do: not all leaves have run before the first node does."""
    program, *others = compiled(model(), policy="by_depth")
    assert variants(launched(program, BATCH)) == []
    assert_right(program, others, BATCH)


def test_rows_of_few_numbers_are_left_alone() -> None:
    with mock.patch.object(known_products, "SMALLEST", SIZE + 1):
        program, *_ = compiled(model())
        assert variants(launched(program, BATCH)) == []


def test_a_frozen_weight_leaves_gradients_to_the_kernels() -> None:
    """Products are known forward alone."""
    block = model()
    for name, parameter in fb.compile(block, "llvm").params.parameters.items():
        parameter.trainable = name != "gates.weight"
    program, *others = compiled(block)
    assert variants(launched(program, BATCH)) == FORWARD
    assert_right(program, others, BATCH)


def test_a_recursion_without_gradients_is_not_run_backward() -> None:
    """All its parameters are frozen: there is nothing to do."""
    block = model(everywhere=False) >> fb.Linear(2, name="top")
    loss = fb.Function(lambda y: ops.sum(ops.square(y - 0.3))) >> fb.Loss()
    block = block >> fb.AllOf(fb.Identity(), loss) >> fb.GetItem(0)
    for name, parameter in fb.compile(block, "llvm").params.parameters.items():
        parameter.trainable = name.startswith("top")
    program, *others = compiled(block)
    assert variants(launched(program, BATCH)) == FORWARD
    assert_right(program, others, BATCH)


def test_several_threads_have_launches_of_their_own() -> None:
    program, other, _ = programs("consumer", again=False)
    parted = fb.Program(program.lowered, replace(program.options, threads=2), program.seed)
    assert_right(parted, [other], BATCH * 5)


def test_a_batch_of_words_alone_knows_nothing() -> None:
    """No node is called; and where all rows are known, none is left to the level."""
    program, *others = programs("consumer", again=False)
    assert variants(launched(program, [1, 2])) == []
    assert_right(program, others, [1, 2])
    assert_right(program, others, [(1, 2), (1, 2)])


@pytest.mark.parametrize("policy", ["by_component", "by_depth"])
def test_values_with_several_readers_get_the_sum_of_their_cotangents(policy: str) -> None:
    """A leaf read by two nodes and twice by one, a node read twice by another."""
    rng = np.random.default_rng(0)
    weight = Parameter(TensorType((6, 3), "float64"), rng.normal(size=(6, 3)), "w")
    vector = TensorType((3,), "float64")
    word = input_node(TensorType((), "int64"))
    table = Parameter(TensorType((4, 3), "float64"), rng.normal(size=(4, 3)), "table")
    pair = input_node(TensorType((2, 3), "float64"))
    h = ops.tanh(apply("reshape", pair, shape=(6,)) @ parameter_node(weight)) * 0.9
    graphs = (
        CellGraph("leaf", (), (word,), (ops.tanh(ops.gather(parameter_node(table), word)),)),
        CellGraph("node", (pair,), (), (h,), (ops.sum(h * h),)),
    )
    every = frozenset({0})
    ends = Ends(active_outputs=every), Ends(every, every, every, every)
    cells = tuple(stage_cell(graph, end) for graph, end in zip(graphs, ends, strict=True))
    signatures = (
        CellSignature("leaf", 0, False, (), (0,), 0),
        CellSignature("node", 1, True, (Operand(0, (0, 1), differentiable=True),), (0,), 2),
    )
    none: tuple[tuple[()], ...] = ((), ())
    feeds, arenas = ((Feed(word.type, "word", ""),), ()), frozenset({0})
    losses = (), ("loss",)
    made = Model(
        VOID, cells, signatures, (vector,), arenas, losses, none, none, none, none, feeds, (table, weight)
    )
    calls = np.array([[0], [1]], np.int32), np.array([[2, 0, 1], [3, 0, 0], [4, 2, 2], [5, 4, 3]], np.int32)
    trace = Trace(calls, ((), ()), (), ((np.array([1, 3]),), ()), ((), ()), 6)
    chosen = POLICIES[policy]
    traces = [leveled(trace, signatures, chosen)] * 2
    batch = schedule_batch(traces, signatures, chosen, LAYOUTS["consumer"], 1)
    assert batch.schedule.cells[1].operands[0].repeats
    engine = llvm_engine.load(made, EngineSettings(debug=True))
    ready = engine.ready(batch, training=True)
    steps = [
        ready.kernels.bound.numbers.get(KernelKey(1, name, "step", "known"))
        for name in ("forward", "backward")
    ]
    for table_, step in zip(ready.tables[:2], steps, strict=True):
        assert (step in table_.launches[:, 0]) == (policy == "by_component")
    run = engine.forward(ready, [[batch.feeds[0][0].astype(np.int64)], []], engine.memory())
    gradients = run.backward()
    oracle = Evaluation(cells, signatures, batch.merged.trace)
    oracle.forward()
    expected = oracle.backward()
    for parameter in (weight, table):
        np.testing.assert_allclose(dense(gradients[parameter]), expected[parameter], rtol=1e-9, atol=1e-12)


@given(runnables(once=True), st.sampled_from(list(LAYOUTS.values())), st.sampled_from(list(SHARES)))
@settings(max_examples=60, deadline=None)
def test_any_batch_gives_what_the_oracle_gives(runnable: Runnable, layout: Any, share: str | None) -> None:
    """Whatever cells there are, and however the batch is laid out; loops are not fused, as each is compiled."""
    batch = runnable.batch(layout, share)
    engine = unfused.load(runnable.model, EngineSettings(debug=True))
    feeds = [[data.astype(np.int64) for data in columns] for columns in batch.feeds]
    run = engine.forward(engine.ready(batch, training=True), feeds, engine.memory())
    oracle = Evaluation(runnable.model.cells, runnable.model.signatures, batch.merged.trace)
    oracle.forward()
    gradients, expected = run.backward(), oracle.backward()
    assert set(gradients) == set(expected)
    for parameter, gradient in gradients.items():
        np.testing.assert_allclose(dense(gradient), expected[parameter], rtol=1e-9, atol=1e-10)
