"""What a module of PyTorch costs, on a treebank of a few lines."""

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")

from benchmarks import inside_torch

TREES = "(4 (3 good) (2 film))\n(0 (1 bad) (2 film))\n"


def test_every_way_runs_and_is_compared(tmp_path, capsys):
    (tmp_path / "train.txt").write_text(TREES, encoding="utf-8")
    options = ["--hidden", "3", "--batch", "2", "--turns", "1", "--backend", "numpy"]
    inside_torch.main(["--data", str(tmp_path), *options])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[1].split(" ms")[0].rsplit(" ", 1)[0].strip() for line in lines] == [
        "loss.backward()",
        "results, backward()",
        "with torch's Adam",
        "with torch's SparseAdam",
    ]
