"""The benchmark for a GPU runs from end to end without one, keeps its time, and says what it left out."""

import json

import pytest

from benchmarks.gpu.command import main
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
