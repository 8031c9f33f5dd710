"""The benchmark for a GPU runs from end to end without one, keeps its time, and says what it left out."""

import json
import sys
from pathlib import Path
from unittest import mock

import pytest

from benchmarks.gpu import apart, checks, host, stream
from benchmarks.gpu.command import main
from benchmarks.gpu.cost import Cost
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
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch, within torch.compile
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
    states = ["passed", "passed", "passed", "skipped", "skipped", "passed"]
    assert [check.state for check in found] == states
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


SMALL = ["--batch", "3", "--hidden", "6", "--repeats", "1"]


@pytest.fixture
def treebank(tmp_path: Path) -> Path:
    (tmp_path / "train.txt").write_text("(3 (4 good) (2 (1 not) (2 film)))\n(1 (2 film) (0 bad))\n" * 6)
    return tmp_path


def test_a_captured_step_is_one_launch_and_two_copies(treebank, capsys):
    assert host.main([*SMALL, "--data", str(treebank)]) == 0
    first, straight, captured, *kinds, kernels = capsys.readouterr().out.splitlines()
    assert "4 batches of 3 trees, the treebank's" in first
    assert straight.startswith("straight") and " 1 launches" not in straight
    assert captured.startswith("captured") and "; 1 launches, 0 products, 1 copies in (" in captured
    assert captured.endswith(", 1 out")
    assert kernels.startswith("NVRTC")
    of_batches = [f"{of}, {kind}" for of in ("training", "inference") for kind in ("new", "known", "planned")]
    for line, kind in zip(kinds, of_batches, strict=True):
        assert line.startswith(kind) and line.endswith("make it ready")
        whole, ready = (float(word) for word in line.split() if word[0].isdigit())
        assert whole > ready >= 0


def test_each_count_of_a_captured_step_is_looked_at() -> None:
    right = {"launches": 1, "copies_in": 1, "copies_out": 1}
    assert host.Found("captured", [1.0], Cost(**right)).is_right
    for name in (*right, "products", "copies", "fills"):
        wrong = Cost(**{**right, name: 2})
        assert not host.Found("captured", [1.0], wrong).is_right
        assert host.Found("straight", [1.0], wrong).is_right


def test_without_nvrtc_nothing_is_compiled() -> None:
    with mock.patch.object(host, "import_module", side_effect=ImportError("no module")):
        assert host.compiled(["KERNEL k() {}"]) == "no module"


def test_an_exit_status_other_than_0_fails_with_the_last_words():
    check = apart.ran("a", [sys.executable, "-c", "print('why'); raise SystemExit(3)"], 20)
    assert (check.state, check.found) == ("failed", "exit status 3: why")


def test_what_does_not_end_is_ended():
    check = apart.ran("a", [sys.executable, "-c", "import time; time.sleep(60)"], 0.2)
    assert check.state == "failed" and "ran longer" in check.found


def test_without_the_sanitizer_its_checks_are_skipped(monkeypatch):
    monkeypatch.setattr(apart, "sanitizer", lambda: None)
    assert apart.sanitized("cuda", "memcheck", 1).state == "skipped"


@pytest.mark.parametrize(
    "says, status, state", [("Device not supported", 1, "skipped"), ("Invalid __global__ read", 86, "failed")]
)
def test_errors_that_the_sanitizer_finds_fail(monkeypatch, tmp_path, says, status, state):
    script = tmp_path / "compute-sanitizer"
    script.write_text(f"#!/bin/sh\necho {says}\nexit {status}\n")
    script.chmod(0o755)
    monkeypatch.setattr(apart, "sanitizer", lambda: str(script))
    check = apart.sanitized("cuda", "racecheck", 20)
    assert check.state == state and (state == "skipped" or "Invalid" in check.found)


def test_the_law_is_run_as_the_command_that_checks_random_programs(monkeypatch):
    asked = []
    monkeypatch.setattr(apart, "ran", lambda name, command, seconds, **more: asked.append((command, more)))
    apart.law("cuda", 7.4, "captured")
    command, more = asked[0]
    assert command[1:] == ["-m", "tests.programs", "--seconds", "7", "--engine", "cuda"]
    assert more == {"variables": {"FOLDBATCH_LAUNCH": "captured"}}


@pytest.mark.slow
def test_a_stream_of_steps_is_timed_in_each_way(capsys):
    """On a card of 20 ms a graph, planned steps take as long by the clock: who waits for it sleeps."""
    options = ["--batch", "3", "--workers", "1", "--steps", "8", "--rounds", "1", "--card", "20"]
    assert stream.main(options) == 0
    first, _, *rows = capsys.readouterr().out.splitlines()
    assert first == "3 trees a batch; a graph takes 20.0 ms"
    names = [
        "planned",
        "known",
        "new, traced here",
        "new, 1 workers open them",
        "new, from workers, ready in time",
        "new, 1 workers are sent them",
    ]
    assert [row.rsplit(None, 2)[0].strip() for row in rows] == names
    wall, processor = (float(word) for word in rows[0].split()[-2:])
    assert wall >= 15 and processor > 0
