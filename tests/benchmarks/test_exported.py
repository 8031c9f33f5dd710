"""The exported graph beside the program."""

from __future__ import annotations

import pytest

from benchmarks.exported import main


def test_every_batch_is_measured(capsys):
    pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install -e '.[onnx]'")
    main("--trees 3 --batch 1 2 --repeats 1 --hidden 2 --backend numpy".split())
    first, _, *rows = capsys.readouterr().out.splitlines()
    assert float(first.split()[-1]) < 1e-5
    assert [row.split()[1] for row in rows] == ["1", "2"]
    assert all(float(number) > 0 for row in rows for number in row.split()[2:])
