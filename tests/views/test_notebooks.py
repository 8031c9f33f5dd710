"""What a notebook shows of each thing says more than its `repr`, which is a line."""

from __future__ import annotations

import foldbatch as fb


def test_things_show_themselves():
    pair = fb.Map(fb.Vector(2) >> fb.Linear(3, name="<pair>")) >> fb.Sum()
    model = pair >> fb.AllOf(fb.Function(fb.ops.sum) >> fb.Loss(), fb.Metric("m")) >> fb.GetItem(0)
    program, examples = fb.compile(model, "numpy"), [[[1, 2], [3, 4]], [[5, 6]]]
    step = program.step(examples)
    shown = [
        (
            program,
            [".sum: [float32[3], ...] -&gt; float32, ", "&lt;pair&gt;.weight: float32[2,3]", "backend numpy"],
        ),
        (program.describe(examples), ["2 examples: 5 calls of 2 cells"]),
        (fb.explain(program), ["graph as built"]),
        (
            fb.bench(model, examples[:1], repeats=1),
            ["1 example, 3 calls; in batches of 1 ", "medians of 1 run\n"],
        ),
        (fb.trees.parse_brackets("(a (b &) (b c))"), ["└─ ", "b &amp;"]),
        (step.metrics["m"], ["2 values float32[3] of 2 examples", "[["]),
        (fb.views.draw_schedule(program, examples), ["<svg"]),
    ]
    for thing, parts in shown:
        html = thing._repr_html_()
        assert all(part in html for part in parts), html
    assert step.metrics._repr_html_().startswith("<pre>m: MetricValues(2 values")


def test_of_many_cells_and_parameters_a_few_are_shown():
    many = fb.AllOf(*(fb.Linear(2, name=f"layer{i}") for i in range(30))) >> fb.Concat()
    assert str(fb.compile(fb.Vector(2) >> many, "numpy")).count("layer") == 19
