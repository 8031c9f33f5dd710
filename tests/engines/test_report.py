"""A report is right: what it counts, and what it tries besides."""

from __future__ import annotations

import foldbatch as fb


def test_describe_counts_what_runs() -> None:
    """Calls, steps, kernels and rows of a small batch, known by hand."""
    total = fb.ForwardDeclaration(output_type=[2], name="total")
    pair = fb.Record((total(), total())) >> fb.Concat() >> fb.Linear(2)
    total.resolve_to(fb.OneOf(lambda x: isinstance(x, tuple), {False: fb.Vector(2), True: pair}))
    program = fb.compile(total() >> fb.Function(fb.ops.sum) >> fb.Loss())
    report = program.describe([(([1, 2], [1, 2]), [1, 2]), ([1, 2], [1, 2])])  # no list in two places
    assert (report.examples, report.calls, report.steps, report.lower_bound) == (2, 10, 4, 4)
    by_name = {cell.name: cell for cell in report.cells}
    node = by_name["total.case(True)"]
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


def test_cells_that_differ_in_parameters_only_have_one_form() -> None:
    program = fb.compile(_labelled(4) >> fb.Linear(3), "numpy")
    forms = {cell.name: cell.form for cell in program.describe([(0, None)]).cells}
    assert len({forms[f"tree.case({k})"] for k in (1, 2, 3)}) == 1
    assert forms["tree.case(0)"] is None
    assert forms["model"] not in (None, forms["tree.case(1)"])


def test_other_options_are_run_and_counted() -> None:
    """What `compile` would have done with them; parameters and further reports do not change."""
    block = _labelled(3) >> fb.Linear(3)
    examples = [(1, (2, (1, (0, None)))), (2, (1, (1, (0, None))))]
    program = fb.compile(block, "numpy", options={"policy": "by_component"}, debug=True)
    report = program.describe(examples)
    assert report.steps > report.lower_bound
    options = {other.option: other for other in report.alternatives}
    assert {"policy='by_depth'", "policy='by_agenda'", "share='subtrees'"} <= set(options)
    depth = fb.compile(block, "numpy", options={"policy": "by_depth"}).describe(examples, compare=False)
    shared = fb.compile(block, "numpy", options={"policy": "by_component", "share": "subtrees"}).describe(
        examples
    )
    assert options["policy='by_depth'"].steps == depth.steps
    assert options["share='subtrees'"].distinct == shared.distinct < report.distinct
    assert all(other.seconds > 0 and other.instead > 0 for other in report.alternatives)
    assert depth.alternatives == program.describe(examples, compare=False).alternatives == ()
    assert fb.compile(block, "reference").describe(examples).alternatives == ()


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
