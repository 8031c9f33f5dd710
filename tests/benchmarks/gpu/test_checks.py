"""The check of a training step passes what is right, and fails what is wrong in one gradient."""

from benchmarks.gpu import checks
from benchmarks.gpu.trees import sst_like_trees

TREES = sst_like_trees(3, seed=1, words=30)


def test_a_right_engine_passes_and_precisions_that_it_lacks_are_skipped():
    found = checks.accuracy(TREES, 4, 30, "cuda-on-cpu", "reference")
    assert [check.state for check in found] == ["passed", "passed", "skipped", "skipped"]
    assert "float32, fp32" in found[0].name and "1e-05 allowed" in found[0].found


def test_a_gradient_that_is_off_fails(monkeypatch):
    step = checks._step

    def off(ours, trees):
        found = step(ours, trees)
        if ours.backend == "numpy":
            found["node.bias"] = found["node.bias"] * 1.001
        return found

    monkeypatch.setattr(checks, "_step", off)
    found = checks.accuracy(TREES, 4, 30, "numpy", "reference")
    assert [check.state for check in found[:2]] == ["failed", "failed"]
    assert "0.001 (node.bias)" in found[0].found


def test_training_without_looking_is_compared_with_numpy_s_and_repeated():
    found = checks.training([TREES[:1], TREES], 4, 30, "cuda-on-cpu")
    assert [check.state for check in found] == ["passed", "passed"]
    assert found[1].found == "the same bits"
