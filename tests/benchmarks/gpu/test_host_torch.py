"""What a module of PyTorch costs the host beside the program, on a card that does nothing."""

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")

from benchmarks.gpu import host_torch


def test_each_way_to_launch_is_timed(capsys):
    assert host_torch.main(["--batch", "3", "--repeats", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["straight", "captured"]
    assert all("by the module: " in line for line in lines[1:])
