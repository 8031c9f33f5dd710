"""Results, losses and metrics of a run by name, those asked for and no others."""

from __future__ import annotations

import foldbatch as fb
from foldbatch.engines.collected import collect, nothing, sum_losses


def model() -> fb.Block:
    square = fb.Function(lambda x: x * x)
    return fb.Map(
        fb.Scalar() >> fb.AllOf(square, fb.Loss("a"), square >> fb.Loss("b"), fb.Metric("m")) >> fb.GetItem(0)
    )


def test_losses_of_one_name_are_summed():
    program = fb.compile(fb.AllOf(model(), model()), "numpy")
    runner = program._runner
    batch = fb.program.schedule(program, [[1, 2], [3]])
    run = runner.engine.forward(
        runner.engine.ready(batch, training=False), batch.feeds, runner.engine.memory()
    )
    losses = sum_losses(program.model, run)
    assert (losses.total, losses.by_name) == (40.0, {"a": 12.0, "b": 28.0})
    results = collect(program.model, batch, run, {"losses"})
    assert results.losses == losses.by_name
    assert not hasattr(results, "metrics")
    assert not hasattr(collect(program.model, batch, run, {"metrics"}), "loss")
    assert collect(program.model, batch, run, {"metrics"}).metrics["m"].values.tolist() == [1, 2, 1, 2, 3, 3]


def test_of_no_examples_all_names_are_there():
    program = fb.compile(model(), "numpy")
    results = nothing(program.model, {"losses", "metrics"})
    assert (list(results), results.loss, results.losses) == ([], 0.0, {"a": 0.0, "b": 0.0})
    assert len(results.metrics["m"]) == 0
    assert not hasattr(nothing(program.model, ()), "losses")
