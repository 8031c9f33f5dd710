"""Eve beside Adam: each rate is tried with both, and the best of each are compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.optimizers import main, text


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


def test_each_is_shown_at_its_own_best_rate() -> None:
    found = {
        ("Adam", 0.1): [[2.0, 1.0], [2.0, 2.0]],
        ("Adam", 0.5): [[1.0, 1.0], [1.0, 1.0]],
        ("Eve", 0.1): [[1.0, 0.5], [0.5, 0.25]],
        ("Eve", 0.5): [[9.0, 9.0], [9.0, 9.0]],
    }
    lines = text(found, 2).splitlines()
    assert lines[2].split() == "0.1 1.5000 (1.0000 to 2.0000) 0.3750 (0.2500 to 0.5000)".split()
    assert lines[7].split() == "Adam 0.5 1.0000 1.0000 1.0000 1.0000 1.0000".split()
    assert lines[8].split() == "Eve 0.1 0.7500 0.7500 0.7500 0.7500 0.3750".split()
    assert lines[-1].endswith("ends with: 1 of 2")
