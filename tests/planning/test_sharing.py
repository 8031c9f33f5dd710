"""Identical calls share a rank; nothing is lost, order is kept, and no result or gradient changes."""

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.engines.report import CellReport
from foldbatch.params.parameters import dense
from foldbatch.planning.layout import LAYOUTS
from foldbatch.planning.policies import POLICIES
from foldbatch.planning.sharing import share, stand_ins, subtrees
from foldbatch.planning.tables import build
from foldbatch.program.program import Program
from foldbatch.scheduler.schedule import verify
from foldbatch.scheduler.trace import Trace
from tests.knobs import knobs
from tests.planning.random_traces import Setting, settings_of
from tests.programs import programs
from tests.programs.comparing import assert_same, gradients_of, metrics_of


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2)), min_size=1, max_size=30))
def test_groups_are_exactly_the_calls_that_agree(rows: list[tuple[int, int]]) -> None:
    """Two calls share a group when, and only when, all their data agree."""
    columns = [np.array(column, np.int32) for column in zip(*rows, strict=True)]
    sharing = share(columns, len(rows))
    if sharing is None:
        assert len(set(rows)) == len(rows)
        return
    groups = [
        sharing.order[a:b].tolist() for a, b in zip(sharing.copies[:-1], sharing.copies[1:], strict=True)
    ]
    assert sorted(call for group in groups for call in group) == list(range(len(rows)))
    assert len(groups) == len(set(rows))
    for group in groups:
        assert len({rows[call] for call in group}) == 1
        assert group == sorted(group)
    assert sharing.representatives.tolist() == [group[0] for group in groups]


def test_calls_without_data_are_all_alike() -> None:
    """A cell of constants runs once a batch."""
    sharing = share([], 4)
    assert sharing is not None
    assert sharing.copies.tolist() == [0, 4]


def test_equal_words_are_embedded_once_and_their_gradients_summed() -> None:
    """Sharing changes how many rows run, not a single gradient."""
    table = fb.Embedding(5, 3, dtype="float64")
    ids = fb.Map(fb.Scalar("int32") >> table >> fb.Function(fb.ops.tanh))
    total = fb.Function(lambda rows: fb.ops.sum(fb.ops.square(fb.ops.segment_sum(rows)))) >> fb.Loss()
    model = ids >> total
    batch = [[1, 2, 1, 1], [4, 1], []]
    program = fb.compile(model, debug=True)
    report = program.describe(batch)
    assert report.cells[0].calls == 6
    assert report.cells[0].rows == (3,)
    shared = program.value_and_grad(batch)
    alone = fb.compile(model, backend="reference").value_and_grad(batch)
    assert np.isclose(shared[0], alone[0], rtol=1e-12)
    gradients = [dense(g) for g in (shared[1]["embedding.weight"], alone[1]["embedding.weight"])]
    np.testing.assert_allclose(*gradients, rtol=1e-12)


def _repeatable(setting: Setting) -> Setting:
    """Return the setting with two thirds of its cells repeatable, and its examples twice."""
    signatures = tuple(replace(cell, repeatable=k % 3 < 2) for k, cell in enumerate(setting.signatures))
    return replace(setting, cells=replace(setting.cells, signatures=signatures), traces=setting.traces * 2)


def _terms(setting: Setting, trace: Trace) -> dict[int, Hashable]:
    """Return what each value is as a number of a nested term, interned call by call."""
    interned: dict[Hashable, int] = {}
    terms: dict[int, Hashable] = {}
    sweep = sorted((int(row[0]), k, i) for k, rows in enumerate(trace.calls) for i, row in enumerate(rows))
    for base, k, i in sweep:
        cell, row = setting.signatures[k], trace.calls[k][i]
        read: list[Hashable] = [terms[v] for v in row[1 : 1 + cell.arguments].tolist()]
        for s, lengths in enumerate(trace.calls[k][:, 1 + cell.arguments :].T):
            part = trace.elements[k][s][lengths[:i].sum() : lengths[: i + 1].sum()]
            read.append(tuple(terms[v] for v in part.ravel().tolist()))
        data = tuple(int(column[i]) for column in trace.feeds[k])
        term = (k, data, tuple(read)) if cell.repeatable else (k, i, "alone")
        number = interned.setdefault(term, len(interned))
        terms |= {base + j: (number, j) for j in range(max(len(cell.outputs), 1))}
    return terms


@given(settings_of())
def test_the_first_of_equal_terms_stands_for_all(setting: Setting) -> None:
    """Values are the same when, and only when, the terms that make them are, written out."""
    setting = _repeatable(setting)
    trace = setting.merged.trace
    first: dict[Hashable, int] = {}
    terms = _terms(setting, trace)
    for value, term in sorted(terms.items()):
        first.setdefault(term, value)
    found = stand_ins(trace, setting.signatures)
    for k, cell in enumerate(setting.signatures):
        for base in trace.calls[k][:, 0].tolist():
            for value in range(base, base + len(cell.outputs)):
                assert found[value] == first[terms[value]]


@given(settings_of(), st.sampled_from(list(LAYOUTS.values())))
def test_a_schedule_of_shared_subtrees_is_legal(setting: Setting, layout: Any) -> None:
    """Every value has a row, that of one that is the same, and each distinct call one rank."""
    setting = _repeatable(setting)
    merged, cells = setting.merged, setting.signatures
    schedule = build(merged, cells, setting.policy, layout, setting.cells.arenas, subtrees)
    verify(schedule, tuple(cell.outputs for cell in cells))
    same = stand_ins(merged.trace, cells)
    rows = schedule.row_of.copy()
    for k, (cell, table) in enumerate(zip(cells, schedule.cells, strict=True)):
        bases = merged.trace.calls[k][:, 0]
        assert len(table.order) == len(np.unique(same[bases]) if cell.repeatable and cell.outputs else bases)
        assert all((rows[bases + j] >= 0).all() for j in range(len(cell.outputs)))


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    programs(dropout=True),
    st.sampled_from(list(POLICIES)),
    st.sampled_from(list(LAYOUTS)),
    st.sampled_from(["leaves", "subtrees"]),
)
def test_sharing_changes_no_result_metric_loss_or_gradient(program, policy, layout, share):
    """Random programs on batches in which every example stands twice."""
    plain = fb.compile(
        program.block, "numpy", threads=1, options={"policy": policy, "layout": layout, "share": None}
    )
    shared = Program(plain.lowered, replace(plain.options, share=share, debug=True), 0)
    batch = program.examples * 2
    found, right = (p.run(batch, losses=True, metrics=True) for p in (shared, plain))
    assert_same(list(found), list(right))
    assert found.loss == pytest.approx(right.loss, rel=1e-9)
    metrics, expected = metrics_of(found), metrics_of(right)
    assert metrics.keys() == expected.keys()
    for name, values in expected.items():
        assert_same(metrics[name], values)
    (loss, gradients), (right_loss, right_gradients) = (gradients_of(p, batch, 3) for p in (shared, plain))
    assert loss == pytest.approx(right_loss, rel=1e-9)
    assert gradients.keys() == right_gradients.keys()
    for name, gradient in right_gradients.items():
        assert_same(gradients[name], gradient)


def _tree_model(*extra: fb.Block) -> fb.Block:
    """Return a model of nested tuples of ids, with a loss at the root."""
    table, join = fb.Embedding(9, 3, dtype="float64", name="table"), fb.Linear(3, name="join")
    tree = fb.ForwardDeclaration(
        output_type=[3, "float64"], name="tree", memo=False
    )  # the planner is to find them
    state = fb.Function(lambda children: fb.ops.tanh(join(fb.ops.segment_sum(children))))
    cases = {True: fb.Map(tree()) >> state, False: fb.Scalar("int32") >> table}
    block: fb.Block = fb.OneOf(lambda x: isinstance(x, tuple), cases)
    for further in extra:
        block = block >> further
    tree.resolve_to(block)
    return tree() >> fb.AllOf(fb.Identity(), fb.Function(fb.ops.sum) >> fb.Loss()) >> fb.GetItem(0)


TREES = [((1, 2), (1, 2), 3), (1, 2), (2, 1), ((1, 2), (1, 2), 3), (1, 2, 3), ()]


def _cells(model: fb.Block, trees: list[Any], **options: Any) -> dict[str, CellReport]:
    report = fb.compile(model, "numpy", debug=True, **knobs(options)).describe(trees)
    return {cell.name: cell for cell in report.cells}


def test_derivatives_along_tangents_are_those_of_unshared_calls() -> None:
    """Dual cells share as the cells they are made of."""
    plain, shared = (
        fb.compile(_tree_model(), "numpy", options={"share": s}, threads=1) for s in (None, "subtrees")
    )
    tangents = {name: np.cos(np.arange(p.size)).reshape(p.shape) for name, p in plain.params.items()}
    assert shared.jvp(TREES, tangents) == pytest.approx(plain.jvp(TREES, tangents), rel=1e-6)
    products = plain.hvp(TREES, tangents)
    for name, product in shared.hvp(TREES, tangents).items():
        np.testing.assert_allclose(product, products[name], rtol=1e-5, atol=1e-6)


def test_only_leaves_are_shared_unless_asked_for_and_nothing_with_none() -> None:
    nodes = [_cells(_tree_model(), TREES, **o)["tree[True]"] for o in ({}, {"share": None})]
    assert [(node.distinct, node.gathered_rows) for node in nodes] == [(10, 0), (10, 0)]
    table = fb.Map(fb.Scalar("int32") >> fb.Embedding(9, 3) >> fb.Function(fb.ops.tanh)) >> fb.Sum()
    program = fb.compile(table, options={"share": None})
    report = program.describe([[1, 1], [1]])
    assert report.distinct == report.calls
    assert fb.compile(table).describe([[1, 1], [1]]).distinct == report.calls - 2


def test_leaves_of_a_cell_that_sums_over_children_are_shared() -> None:
    """Of a node's cell those calls have no children; equal kinds run once at each level where leaves stand."""
    tree = fb.ForwardDeclaration(output_type=([4, "float64"], [4, "float64"]), name="tree", memo=False)
    kind = fb.GetItem(0) >> fb.Scalar("int32") >> fb.Embedding(3, 4, dtype="float64")
    tree.resolve_to(fb.AllOf(kind, fb.GetItem(1) >> fb.Map(tree())) >> fb.ChildSumTreeLSTM(4))
    model = tree() >> fb.GetItem(0) >> fb.AllOf(fb.Function(fb.ops.sum) >> fb.Loss(), fb.Identity())
    one, two = (1, []), (2, [])
    batch = [(0, [one, (0, [one, two, one])]), one, (0, [])]
    shared, plain = (
        fb.compile(model, "numpy", debug=True, threads=1, options={"share": share})
        for share in ("leaves", None)
    )
    cells = {cell.name: cell for cell in shared.describe(batch).cells}
    assert (cells["tree"].calls, cells["tree"].distinct) == (8, 5)
    assert_same(list(shared.run(batch)), list(plain.run(batch)))
    (loss, gradients), (right, expected) = (gradients_of(p, batch, 3) for p in (shared, plain))
    assert loss == pytest.approx(right, rel=1e-12)
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        assert_same(gradients[name], gradient)


def test_shared_subtrees_need_no_gathering() -> None:
    """A result is copied to where it is read, so operands stay slices; what nobody reads has no row."""
    report = fb.compile(_tree_model(), options={"share": "subtrees"}, threads=1).describe(TREES)
    assert report.gathered_rows == 0


def test_calls_with_a_loss_or_a_metric_all_run() -> None:
    """Even where the state that they are of is shared: 17 words and 10 nodes."""
    loss, metric = fb.Function(fb.ops.sum) >> fb.Loss(), fb.Metric("seen")
    model = _tree_model(fb.AllOf(fb.Identity(), loss, metric) >> fb.GetItem(0))
    program = fb.compile(model, "numpy", options={"share": "subtrees"}, threads=1, debug=True)
    report = program.describe(TREES)
    graphs = [cell.graph for cell in program.model.cells]
    sinks = [x for x, g in zip(report.cells, graphs, strict=True) if g.losses or g.metrics]
    assert sum(cell.calls for cell in sinks) == len(TREES) + 27
    assert all(cell.distinct == cell.calls for cell in sinks)
    assert len(program.run(TREES, metrics=True).metrics["seen"]) == 27
    assert next(cell for cell in report.cells if cell.recursive).distinct == 5


def test_calls_that_draw_random_numbers_and_what_reads_them_are_never_shared() -> None:
    node = _cells(_tree_model(fb.Dropout(0.5)), TREES, share="subtrees")["tree[True]"]
    assert node.distinct == node.calls


def test_floats_of_the_example_are_never_compared() -> None:
    model = fb.Map(fb.Scalar("float64") >> fb.Function(fb.ops.tanh)) >> fb.Sum()
    report = fb.compile(model, options={"share": "subtrees"}).describe([[1.0, 1.0], [1.0]])
    assert report.distinct == report.calls
