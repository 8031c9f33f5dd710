"""The benchmark for a GPU runs from end to end without one, keeps its time, and says what it left out."""

import json

import pytest

from benchmarks.gpu import checks
from benchmarks.gpu.command import main
from benchmarks.gpu.trees import sst_like_trees
from tests.backends import on_gpu_kernels

BACKEND = "cuda-on-cpu"


@on_gpu_kernels
def test_a_quick_run_checks_and_times_everything(tmp_path, capsys):
    files = [tmp_path / "found.json", tmp_path / "found.md"]
    assert main(["--backend", BACKEND, "--quick", "--json", str(files[0]), "--page", str(files[1])]) == 0
    printed = capsys.readouterr().out
    found, page = json.loads(files[0].read_text()), files[1].read_text()
    assert page in printed
    assert {check["state"] for check in found["checks"]} <= {"passed", "skipped"}
    assert {row["model"] for row in found["rows"]} == {
        "SST Tree-LSTM",
        "child-sum Tree-LSTM",
        "BiLSTM tagger",
        "Fold's Table 1",
    }
    assert {row["task"] for row in found["rows"]} == {"train", "infer"}
    assert all(row["seconds"] >= row["host"] > 0 for row in found["rows"])
    straight = [way for way in found["ways"] if way["way"] == "straight"]
    assert [way["where"] for way in straight[:2]] == [f"SST Tree-LSTM, hidden 6, batch {b}" for b in (3, 1)]
    assert straight[0]["copies in"] == 1 and straight[0]["launches"] > 10
    left_out = [name.rpartition(", ")[2] for name in found["left_out"]]
    assert {way["way"] for way in found["ways"]} | set(left_out) >= {"straight", "captured"}
    assert found["steps"][0]["cost"]["forward"]["copies_in"] == 1
    assert not [name for name in found["left_out"] if "foldbatch" in name]
    assert "the CPU stands for one" in page


@pytest.mark.gpu
def test_a_quick_run_on_the_card():
    pytest.importorskip("cupy")
    assert main(["--quick"]) == 0


@pytest.mark.parametrize("seconds", ["0", "-3", "nan", "inf", "soon"])
def test_no_time_is_refused_for_nothing_would_be_checked(seconds, capsys):
    with pytest.raises(SystemExit):
        main(["--backend", BACKEND, "--seconds", seconds])
    assert f"expected more than 0, found '{seconds}'" in capsys.readouterr().err


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
