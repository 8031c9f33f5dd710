"""Captured graphs against kernels launched one by one: the same numbers, by one launch a step."""

import os

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines.cuda.captured import FIRST_LEARNED
from tests.engines.cuda import trees
from tests.engines.cuda.checked import driven, in_every_order
from tests.knobs import knobs

pytestmark = pytest.mark.skipif(
    os.environ.get("FOLDBATCH_BACKEND") != "cuda-on-cpu", reason="runs with FOLDBATCH_BACKEND=cuda-on-cpu"
)
WORDS = [[1, 2, 3], [4], [1, 5], [2, 2, 2, 2], [3, 3, 1], [8]]


def _chain(hidden=40):
    words = fb.Map(fb.Scalar("int32") >> fb.Embedding(9, 33))
    return words >> fb.RNN(fb.GRUCell(hidden)) >> fb.GetItem(1) >> fb.Function(fb.ops.sum) >> fb.Loss()


def _both_ways():
    """Return two recursions whose steps come between each other."""
    there, back = fb.RNN(fb.GRUCell(5)), fb.RNN(fb.LSTMCell(4))
    words = fb.Map(fb.Scalar("int32") >> fb.Embedding(9, 3))
    last = fb.AllOf(there >> fb.GetItem(1), back >> fb.GetItem(1) >> fb.GetItem(0))
    return words >> last >> fb.Function(lambda a, b: fb.ops.sum(a) * fb.ops.sum(b)) >> fb.Loss()


MODELS = {"chain": (_chain, WORDS), "tree": (trees.model, trees.TREES), "both ways": (_both_ways, WORDS)}


def _captured(block, **options):
    return fb.compile(block, "cuda-on-cpu", launch="captured", seed=3, threads=1, **knobs(options))


def _compiled(block, **options):
    return fb.compile(block, "cuda-on-cpu", seed=3, threads=1, **knobs(options))


def _trained(program, examples):
    """Train for some steps, of whole batches and of parts; return losses and parameters."""
    optimizer, losses = fb.train.AdaGrad(lr=0.1), []
    for batch in (examples, examples[:2], examples, examples[1:], examples):
        loss, gradients = program.value_and_grad(batch)
        optimizer.update(program.params, gradients)
        losses.append(loss)
    losses += program.run(examples, losses=True).losses.values()
    return [float(loss) for loss in losses], {name: np.array(value) for name, value in program.params.items()}


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_training_is_that_of_kernels_launched_one_by_one(model, debug):
    block, examples = MODELS[model]
    losses, parameters = _trained(_compiled(block()), examples)
    program = _captured(block(), debug=debug)  # memory of NaN, where `debug`
    program.warm(examples, batch_size=len(examples) - 1)
    program.warm(examples, batch_size=len(examples), batches=2)
    found, changed = _trained(program, examples)
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    for name, value in parameters.items():
        # a thousandth of a step: AdaGrad divides by gradients, also by those that are little more than rounding
        np.testing.assert_allclose(changed[name], value, rtol=1e-4, atol=1e-4)
    launcher = program.engine.launcher(training=True)
    assert launcher.hits >= 4
    assert launcher.milliseconds


def test_training_is_alike_in_every_order_of_the_device():
    def train():
        program = _captured(trees.model())
        program.warm(trees.TREES, batch_size=3)
        return _trained(program, trees.TREES)

    in_every_order(train)


def test_a_step_with_its_update_is_one_launch_and_one_copy():
    with driven() as driver:
        program = _captured(_chain(5))
        program.warm(WORDS, batch_size=6)
        _trained(program, WORDS[:4])
        optimizer = fb.SGD(lr=0.1)
        for _ in range(4):
            _, gradients = program.value_and_grad(WORDS)
            optimizer.update(program.params, gradients)
            program.engine.device.flush()
        before = len(driver.calls)
        loss, gradients = program.value_and_grad(WORDS)
        optimizer.update(program.params, gradients)
        program.engine.device.flush()
        kinds = driver.enqueued(before)
        del loss, gradients
    assert kinds == ["copy_in", "replay", "copy_out"]


def test_inference_is_a_graph_once_the_program_is_warm():
    """Though `run` has a model of its own, without what serves losses alone."""
    with driven() as driver:
        program = _captured(trees.model())
        program.warm(trees.TREES, batch_size=2)
        for _ in range(4):  # a straight run, and a capture for each block
            program.run(trees.TREES[:2])
        before = len(driver.calls)
        program.run([*trees.TREES[:2]])
        kinds = driver.enqueued(before)
    assert kinds == ["copy_in", "replay", "copy_out"]


def test_classes_are_learned_from_the_first_batches_and_told_of():
    program = _captured(_chain(5))
    for _ in range(FIRST_LEARNED + 3):
        program.value_and_grad(WORDS)
    launcher = program.engine.launcher(training=True)
    assert launcher.hits == 3
    report = program.describe(WORDS, compare=False)
    assert report.captures.hits == 4
    assert report.captures.hit_rate == 4 / (FIRST_LEARNED + 4)
    assert report.captures.misses == {"no class is learned yet": FIRST_LEARNED}
    text = str(program.describe(WORDS, compare=False))
    assert f"graphs: 5 of {FIRST_LEARNED + 5} training batches" in text
    assert f"{FIRST_LEARNED} did not: no class is learned yet" in text


def test_a_timeline_shows_graphs_alone_once_classes_are_learned():
    program = _captured(_chain(5))
    program.warm(WORDS, batch_size=6, batches=2)
    for training in (True, False):
        spans = program.profile(WORDS, steps=3, training=training).spans
        assert [span.name for span in spans if span.row == "compute" and "copy" not in span.name] == [
            "graph"
        ] * 3


def test_a_report_is_of_the_graph_that_it_tells_of():
    program = _captured(_chain(5))
    program.warm(WORDS, batch_size=6, batches=2)
    straight = _compiled(_chain(5)).describe(WORDS, compare=False)
    program.value_and_grad(WORDS)
    report = program.describe(WORDS, compare=False)
    assert len(program.engine.launcher(training=True).captures().milliseconds) == 1
    assert (report.calls_forward, report.calls_backward) == (straight.calls_forward, straight.calls_backward)


def test_a_batch_that_does_not_fit_is_computed_kernel_by_kernel():
    program = _captured(_chain(5))
    program.warm(WORDS, batch_size=6)
    longer = [[1, 2, 3, 4, 5, 6, 7]]
    loss, _ = program.value_and_grad(longer)
    assert float(loss) == pytest.approx(float(_compiled(_chain(5)).value_and_grad(longer)[0]), rel=1e-6)
    assert program.engine.launcher(training=True).misses == {"it has more steps than any class": 1}


def test_training_goes_on_where_a_capture_fails(monkeypatch):
    program, straight = (
        fb.compile(_chain(5), "cuda-on-cpu", launch=way, seed=3) for way in ("captured", "straight")
    )
    program.warm(WORDS, batch_size=4)

    def refuse(stream):
        raise RuntimeError("no graphs on this card")

    with monkeypatch.context() as patched:
        patched.setattr(program.engine.device.driver, "begin_capture", refuse, raising=False)
        for each in (program, straight):
            optimizer = fb.SGD(lr=0.1)
            for _ in range(4):
                _, gradients = each.value_and_grad(WORDS[:4])
                optimizer.update(each.params, gradients)
                each.engine.device.flush()
                each.engine.wait()
    for name, value in straight.params.items():
        np.testing.assert_allclose(program.params[name], value, rtol=1e-5, atol=1e-6)
    shown = str(program.describe(WORDS[:4], compare=False))
    assert "a graph was not captured: RuntimeError: no graphs on this card" in " ".join(shown.split())
