"""Eve beside Adam: each rate is tried with both, and the best of each are compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.optimizers import main


def test_both_are_trained_at_every_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(8):  # some are for training
        body = "".join(
            f"def {verb}_it(x):\n    return x.{verb}() + {call}{' + x' * number}\n\n"
            for verb, call in (("get", "len(x)"), ("set", f"x[{number}].y"))
        )
        (tmp_path / f"module{number}.py").write_text(body, encoding="utf-8")
    words = "--rates 0.01 0.1 --seeds 2 --epochs 3 --hidden 2 --backend numpy --folder"
    main([*words.split(), str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:4]] == ["0.01", "0.1"]
    assert [line.split()[:2] for line in lines[7:9]] == [["Adam", "0.1"], ["Eve", "0.1"]]
    assert lines[7].split()[2] == lines[8].split()[2]  # two steps later they part
