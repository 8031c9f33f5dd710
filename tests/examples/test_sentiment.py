"""The treebank example on a treebank of a few lines, and on what users hand it by mistake."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
TREES = "(4 (3 good) (2 film))\n(0 (1 bad) (2 film))\n(2 (2 a) (2 (2 film) (2 .)))\n(3 good)\n"
VECTORS = "good 1.0 0.5\nbad -1.0 0.5\nfilm 0.1 0.2\n"


def sentiment() -> ModuleType:
    """Import the example program, which is no part of a package."""
    spec = importlib.util.spec_from_file_location(
        "example_sentiment", ROOT / "examples" / "trees" / "sentiment.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def treebank(tmp_path: Path) -> Path:
    """A directory with four trees in each file, one of them a single word."""
    for part in ("train", "dev", "test"):
        (tmp_path / f"{part}.txt").write_text(TREES, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("optimizer", ["adagrad", "adam", "sgd"])
def test_it_learns_four_trees_by_heart(treebank: Path, optimizer: str) -> None:
    """And writes every figure for programs."""
    file = treebank / "figures.json"
    options = ["--data", str(treebank), *"--hidden 12 --epochs 25 --batch 2 --json".split(), str(file)]
    assert (
        sentiment().main(
            [*options, "--optimizer", optimizer, "--lr", "0.1" if optimizer != "adam" else "0.02"]
        )
        == 0
    )
    figures = json.loads(file.read_text())
    assert len(figures["epochs"]) == 25
    assert figures["epochs"][-1]["loss"] < 0.7 * figures["epochs"][0]["loss"]
    assert {"loss", "dev_fine", "dev_binary", "seconds"} <= figures["epochs"][0].keys()
    assert figures["options"]["optimizer"] == optimizer
    assert {"test_fine", "test_binary", "test_majority"} <= figures.keys()


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("train.txt", None, "train.txt"),
        ("train.txt", "", "train.txt"),
        ("dev.txt", "(4 (3 good) (2 film)\n", "dev.txt:"),
        ("test.txt", "(7 good)\n", "test.txt:1:2"),
        ("vectors.txt", "good 1.0 nan\n", "vectors.txt:1:"),
    ],
)
def test_bad_files_are_one_line(
    treebank: Path, capsys: pytest.CaptureFixture[str], name: str, text: str | None, expected: str
) -> None:
    """File, line and what was expected; status 2; no traceback."""
    (treebank / "vectors.txt").write_text(VECTORS, encoding="utf-8")
    if text is None:
        (treebank / name).unlink()
    else:
        (treebank / name).write_text(text, encoding="utf-8")
    options = [
        "--data",
        str(treebank),
        "--vectors",
        str(treebank / "vectors.txt"),
        *"--hidden 5 --epochs 1".split(),
    ]
    assert sentiment().main(options) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ")
    assert expected in printed
    assert "expected" in printed
