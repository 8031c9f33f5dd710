"""What is watched of a run, and reported."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import foldbatch as fb
import foldbatch.program.program as program_module
from foldbatch.engines.arrays import LevelsWatched
from foldbatch.engines.report import Captures, CellReport, Report, Shared, advice, may_share
from foldbatch.engines.watching import Watch
from foldbatch.params.parameters import dense
from foldbatch.timelines import rows_of


def test_describe_counts_what_runs() -> None:
    """Calls, steps, kernels and rows of a small batch, known by hand."""
    total = fb.ForwardDeclaration(output_type=[2], name="total")
    pair = fb.Record((total(), total())) >> fb.Concat() >> fb.Linear(2)
    total.resolve_to(fb.OneOf(lambda x: isinstance(x, tuple), {False: fb.Vector(2), True: pair}))
    program = fb.compile(total() >> fb.Function(fb.ops.sum) >> fb.Loss())
    report = program.describe([(([1, 2], [1, 2]), [1, 2]), ([1, 2], [1, 2])])  # no list in two places
    assert (report.examples, report.calls, report.steps, report.lower_bound) == (2, 10, 4, 4)
    by_name = {cell.name: cell for cell in report.cells}
    node = by_name["total[True]"]
    assert (node.calls, node.recursive, node.rows, node.gathered_rows) == (3, True, (2, 1), 0)
    assert node.distinct == 3
    assert (report.distinct, report.hit_rate) == (10, 0.0)
    assert report.calls_forward == 4
    assert report.gathered_rows == 0
    assert report.buffer_bytes > 0
    assert set(report.phases) == {"trace", "merge", "tables", "ready", "forward", "backward"}
    assert report.program == program.kernels()[: len(report.program)]


def _labelled(cases: int) -> fb.Block:
    """A recursion with a layer for each label, over pairs of a label and what it stands on."""
    tree = fb.ForwardDeclaration(output_type=[2], name="tree")
    below = fb.GetItem(1) >> tree()
    layers = {k: below >> fb.Linear(2, name=f"layer{k}") for k in range(1, cases)}
    tree.resolve_to(fb.OneOf(lambda pair: pair[0], {0: fb.Zeros([2]), **layers}))
    return tree()


def test_bytes_are_those_of_this_batch() -> None:
    """Not those of a larger one that ran before."""
    program = fb.compile(_labelled(2), "numpy")
    chain: object = (0, None)
    small = [(1, chain)]
    before = program.describe(small).buffer_bytes
    assert before < program.describe(small * 100).buffer_bytes
    assert program.describe(small).buffer_bytes == before


def test_prepared_examples_are_described_without_a_look_into_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """They lead to the program and all its arrays, whose contents would be digested."""
    seen: list[object] = []
    snapshot = program_module.Snapshot
    monkeypatch.setattr(
        program_module, "Snapshot", lambda examples: seen.extend(examples) or snapshot(examples)
    )
    program = fb.compile(_labelled(2), "numpy")
    examples = [(1, (0, None))]
    report = program.describe(program.prepare(examples))
    assert seen == []
    assert report.calls == program.describe(examples).calls
    assert seen == examples


def test_more_calls_are_shared_and_counted() -> None:
    """What `compile` would have done; parameters and further reports do not change."""
    block = _labelled(3) >> fb.Linear(3)
    examples = [(1, (2, (1, (0, None)))), (2, (1, (1, (0, None))))]
    program = fb.compile(block, "numpy", debug=True)
    report = program.describe(examples)
    shared = fb.compile(block, "numpy", options={"share": "subtrees"}).describe(examples)
    assert report.shared.distinct == shared.distinct < report.distinct
    assert report.shared.seconds > 0 and report.shared.instead > 0
    assert shared.shared is program.describe(examples, compare=False).shared is None
    assert fb.compile(block, "reference").describe(examples).shared is None


def test_losses_and_metrics_are_named() -> None:
    """In the report and under the cell that yields them."""
    both = fb.AllOf(fb.Loss("near"), fb.Loss("far"), fb.Loss("near"), fb.Metric("seen"))
    report = fb.compile(fb.Scalar() >> both, "numpy").describe([1.0])
    assert (report.cells[0].losses, report.cells[0].metrics) == (("near", "far", "near"), ("seen",))
    assert "losses: near, far" in str(report).splitlines()
    assert "metrics: seen" in str(report).splitlines()


def test_what_can_be_read_once_is_traced_once() -> None:
    """The others are traced as often as they run, so that medians count."""
    read: list[object] = []
    block = (
        fb.InputTransform(lambda items: read.append(items) or list(items)) >> fb.Map(fb.Scalar()) >> fb.Sum()
    )
    report = fb.compile(block, "numpy").describe([[1.0, 2.0]])
    assert (report.runs, len(read)) == (5, 1 + 5)
    assert fb.compile(block, "numpy").describe([iter([1.0, 2.0])]).calls == report.calls
    assert len(read) == 7


NODE = CellReport("node", 7, 5, True, (3, 2), 2, ("near", "far"), ("seen",))
PHASES = {"trace": 0.001, "merge": 0.0005, "tables": 0.001, "ready": 0.0005}
PHASES |= {"forward": 0.006, "backward": 0.011}
REPORT = Report(2, 7, 2, 2, 4, 5, 2, 2_500_000, PHASES, (NODE,))


def test_a_report_is_text_for_people() -> None:
    """Line by line."""
    assert str(REPORT).splitlines() == [
        "2 examples: 7 calls of 1 cell run in 2 steps of 2.5 calls on average",
        "(a cell is work that always runs together; a step runs one cell for many calls at once)",
        "5 of the calls run; each of the others is identical to one of these",
        "no order of the calls needs fewer steps",
        "time: 20 ms in a first run; tracing the examples 5%, planning the steps 10%, forward 30%, backward 55%",
        "memory: 2.5 MB for this batch; 4 kernels run forward, 5 backward",
        "losses: near, far",
        "metrics: seen",
        "",
        "Cells, those with most small steps first",
        "cell  calls  steps  calls a step  largest step  calls that run  rows copied",
        "node      7      2           2.5             3               5            2",
        "",
        "What to try",
        "- node: 2 of its 2 steps run fewer than 16 calls; batches of more examples make them larger",
    ]
    assert repr(REPORT) == "Report(2 examples, 7 calls in 2 steps; print it to read it)"


def test_fifty_cells_fit_a_screen() -> None:
    """The costly ones are shown, the others summed up."""
    cells = tuple(
        replace(NODE, name=f"case({k})", calls=3 * k, distinct=3 * k, rows=(3,) * k) for k in range(50)
    )
    slow = {"trace": 0.4, "tables": 0.4, "forward": 0.1}
    report = replace(REPORT, cells=cells, steps=1225, calls=3675, phases=slow, policy="by_depth")
    lines = str(report).splitlines()
    assert len(lines) <= 40
    assert sum(line.startswith("case(") for line in lines) == 10
    assert lines[lines.index("and 40 more cells: 2,340 calls in 780 steps, 3.0 calls a step") - 1].startswith(
        "case(40)"
    )
    assert lines[-1].endswith("shows all cells")
    whole = report.text(whole=True)
    assert all(f"case({k})" in whole for k in range(50))


def test_captured_graphs_are_told_of() -> None:
    """How many batches are one launch, and why others are not."""
    captures = Captures((90, 120), 30, {"it has more calls than any class": 10}, (1.25, 3.75))
    lines = str(replace(REPORT, captures=captures)).splitlines()
    assert lines[6:9] == [
        "graphs: 30 of 40 training batches (75%) fit into one, of 90 or 120 slots",
        "10 did not: it has more calls than any class",
        "2 graphs captured while others ran, in 3.8 ms at most",
    ]
    assert captures.hit_rate == 0.75
    straight = Captures((), 0, {"no class is learned yet": 6}, ())
    lines = str(replace(REPORT, captures=straight)).splitlines()
    assert lines[6] == "graphs: 0 of 6 training batches (0%) fit into one"
    reason = "straight: asked for captured, which cannot be had (" + 20 * "why " + ")"
    lines = str(replace(REPORT, captures=straight._replace(reasons=(reason,)))).splitlines()
    assert [len(line) <= 100 for line in lines[6:8]] == [True, True]
    assert lines[6].startswith("straight: ")
    assert lines[7].startswith("  why")
    none = Captures((), 0, {}, ())
    assert none.hit_rate == 0.0
    assert str(replace(REPORT, captures=none)) == str(REPORT)


FAST = {"trace": 1.0, "merge": 0.2, "tables": 0.5, "ready": 0.3, "forward": 3.0, "backward": 5.0}


def cell(name: str, *rows: int, gathered: int = 0, **more: object) -> CellReport:
    made = CellReport(name, sum(rows), sum(rows), recursive=True, rows=rows, gathered_rows=gathered)
    return replace(made, **more)


def report(*cells: CellReport, **more: object) -> Report:
    """A report on a batch of 8 examples that is planned quickly."""
    steps = sum(len(each.rows) for each in cells)
    made = Report(8, sum(each.calls for each in cells), steps, steps, 0, 0, 0, 0, FAST, cells)
    return replace(made, **more)


WIDE = cell("node", 90, 60, 40, 20, 5)


def test_wide_steps_need_none() -> None:
    assert advice(report(cell("leaf", 500), WIDE)) == ()
    assert advice(report(phases={})) == ()


def test_few_calls_in_all_steps_ask_for_larger_batches() -> None:
    (found,) = advice(report(cell("leaf", 500), cell("node", 8, 4, 2)))
    assert found == (
        "node: 3 of its 3 steps run fewer than 16 calls; batches of more examples make them larger"
    )


def test_many_examples_of_which_few_have_calls_ask_for_like_ones() -> None:
    (found,) = advice(report(cell("node", 64, 40, *[2] * 30), examples=64))
    assert found == (
        "node: 30 of its 32 steps run fewer than 16 calls; batches of more examples make them larger, and so "
        "may batches of like ones (foldbatch.train.bucketed)"
    )


def test_cells_that_differ_in_parameters_only_ask_for_one_table() -> None:
    """When there are many and their steps are small; other cells are not counted."""
    cells = [cell(f"case({k})", 3, 2, form=0) for k in range(4)]
    found = advice(report(*cells, cell("other", 3, 2)))[0]
    assert found == (
        "4 cells, as case(0), differ in parameters only and run 2.5 calls a step: with one table of weights, "
        "read by ops.gather, they would be one cell"
    )
    assert not any("ops.gather" in found for found in advice(report(*cells[:3], cell("other", 3, 2, form=1))))
    assert advice(report(*[cell(f"case({k})", 30, 20, form=0) for k in range(4)])) == ()


def test_cells_are_alike_whatever_their_parameters_are_called() -> None:
    """Others have another graph, or parameters of another shape."""

    def times(w: fb.Parameter) -> fb.Block:
        return below >> fb.Function(lambda x: fb.ops.tanh(x @ w))

    tree = fb.ForwardDeclaration(output_type=[2], name="tree")
    below = fb.GetItem(1) >> tree()
    weights = [fb.Parameter([2, 2], np.eye(2), f"w{k}") for k in range(3)]
    added = fb.Parameter([2], np.ones(2), "b")
    cases = {k: times(w) for k, w in enumerate(weights, 1)}
    cases[4] = below >> fb.Function(lambda x: fb.ops.tanh(x + added))
    tree.resolve_to(fb.OneOf(lambda pair: pair[0], {0: fb.Zeros([2]), **cases}))
    chain: object = (0, None)
    for k in (1, 2, 3, 4):
        chain = (k, chain)
    forms = {cell.name: cell.form for cell in fb.compile(tree(), "numpy").describe([chain]).cells}
    assert forms.pop("tree[0]", None) is None
    alike = [forms[f"tree[{k}]"] for k in (1, 2, 3)]
    assert alike == [alike[0]] * 3 and forms["tree[4]"] not in (alike[0], None)


def test_sharing_is_named_where_fewer_calls_run() -> None:
    other = Shared(129, 0.5, 1.0)
    (found,) = advice(report(WIDE, shared=other))
    assert found == (
        "try share='subtrees': it took 500 ms instead of 1 s for this batch, with 129 calls that run instead "
        "of 215"
    )
    for no_better in (other._replace(distinct=215), other._replace(instead=0.6)):
        assert advice(report(WIDE, shared=no_better)) == ()


def test_sharing_is_tried_where_calls_may_repeat() -> None:
    repeatable = report(cell("node", 4, 2, repeatable=True))
    assert may_share(repeatable, "leaves") and not may_share(repeatable, "subtrees")
    assert not may_share(report(cell("node", 1, repeatable=True)), None)


EXAMPLES = [[1, 2, 3, 4], [2, 1]]


def _program(rows=9):
    words = fb.Map(fb.Scalar("int32") >> fb.Function(lambda i: i + 1) >> fb.Embedding(rows, 3))
    return fb.compile(
        words >> fb.RNN(fb.GRUCell(4)) >> fb.GetItem(1) >> fb.Function(fb.ops.sum) >> fb.Loss(), "numpy"
    )


def test_each_level_is_a_span_and_no_bit_changes():
    program = _program()
    expected = program.value_and_grad(EXAMPLES)
    planned = program.plan(EXAMPLES)
    engine, watch = program.engine, LevelsWatched()
    (part,) = planned.parts
    ready, levels = engine.ready(part.batch, training=True), []

    def walk(table, memory):
        levels.extend((stop - first).item() for _, first, stop, *_ in table.launches)
        ready.kernels.walk(table, memory)

    counted = ready._replace(kernels=replace(ready.kernels, walk=walk))
    part.ready[program.engine, True] = watch.watched(counted, 2)
    loss, gradients = program.value_and_grad(planned)
    assert loss == expected[0]
    for name, gradient in expected[1].items():
        np.testing.assert_array_equal(np.asarray(dense(gradients[name])), dense(gradient))
    assert levels == [1] * len(watch.spans())
    steps = [span for span in watch.spans() if span.name.endswith("forward_step")]
    told = [(span.arguments["level"], span.arguments["rows"]) for span in steps]
    assert told == [(0, 2), (1, 2), (2, 1), (3, 1)]
    assert {span.row for span in watch.spans()} == {"part 3"}
    assert all(a.end <= b.start for a, b in pairwise(steps))


def test_parts_stand_in_their_order_whichever_ran_first():
    program = _program()
    planned = program.plan(EXAMPLES)
    (part,) = planned.parts
    ready, watch = program.engine.ready(part.batch, training=True), LevelsWatched()
    for number in (10, 1, 10):
        part.ready[program.engine, True] = watch.watched(ready, number)
        program.value_and_grad(planned)
    spans = watch.spans()
    assert rows_of(spans) == ["part 2", "part 11"]
    assert all(a.start <= b.start for a, b in pairwise(spans) if a.row == b.row)


def test_an_error_names_the_example_as_ever():
    program = _program(rows=3)
    planned = program.plan(EXAMPLES)
    (part,) = planned.parts
    part.ready[program.engine, True] = LevelsWatched().watched(
        program.engine.ready(part.batch, training=True), 0
    )
    messages = []
    for batch in (EXAMPLES, planned):
        with pytest.raises(fb.errors.ExampleError) as caught:
            program.value_and_grad(batch)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_what_is_not_watched_stays_as_it_is():
    ready = object()
    watch = Watch()
    assert watch.watched(ready, 0) is ready
    assert watch.spans() == ()
