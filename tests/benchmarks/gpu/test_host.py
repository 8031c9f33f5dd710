"""What the host does of a step is measured without a card, and more than one launch a captured step is told."""

from pathlib import Path
from unittest import mock

import pytest

from benchmarks.gpu import host
from benchmarks.gpu.cost import Cost

SMALL = ["--batch", "3", "--hidden", "6", "--repeats", "1"]


@pytest.fixture
def treebank(tmp_path: Path) -> Path:
    (tmp_path / "train.txt").write_text("(3 (4 good) (2 (1 not) (2 film)))\n(1 (2 film) (0 bad))\n" * 6)
    return tmp_path


def test_a_captured_step_is_one_launch_and_two_copies(
    treebank: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert host.main([*SMALL, "--data", str(treebank)]) == 0
    first, straight, captured, kernels = capsys.readouterr().out.splitlines()
    assert "4 batches of 3 trees, the treebank's" in first
    assert straight.startswith("straight") and " 1 launches" not in straight
    assert captured.startswith("captured") and "; 1 launches, 0 products, 1 copies in (" in captured
    assert captured.endswith(", 1 out")
    assert kernels.startswith("NVRTC")


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
