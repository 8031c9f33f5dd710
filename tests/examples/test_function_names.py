"""The first example a newcomer runs: at toy size, with right and with wrong input."""

import asyncio
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

import foldbatch as fb

ROOT = Path(__file__).parents[2]


def load(name: str) -> ModuleType:
    """Import an example program, which is no part of a package."""
    spec = importlib.util.spec_from_file_location(
        f"example_{name}", ROOT / "examples" / "trees" / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def corpus() -> fb.trees.Corpus:
    """A few dozen functions of one package of the standard library, which is read faster than the whole."""
    whole = fb.trees.standard_library_functions(Path(asyncio.__file__).parent)
    return fb.trees.Corpus(whole.train[:60], whole.dev[:10], whole.test[:20], whole.verbs)


def test_it_trains_and_prints_both_baselines(
    corpus: fb.trees.Corpus,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two epochs on a few functions: the loss falls, and the figures are written."""
    monkeypatch.setattr(fb.trees, "standard_library_functions", lambda **_: corpus)
    file = tmp_path / "figures.json"
    assert load("function_names").main(["--epochs", "3", "--hidden", "8", "--json", str(file)]) == 0
    figures = json.loads(file.read_text())
    losses = [epoch["loss"] for epoch in figures["epochs"]]
    assert losses[-1] < losses[0]
    printed = capsys.readouterr().out
    assert "bag " in printed and "majority" in printed


def test_the_bag_of_node_types_cannot_see_more() -> None:
    """It learns what they tell."""
    example = load("function_names")

    def examples(labels: tuple[str, str]) -> tuple[fb.trees.Example, ...]:
        tree = fb.trees.Tree
        return tuple(
            fb.trees.Example(tree([1, -1], [labels[i % 2], "F"]), i % 2, "m", "f") for i in range(20)
        )

    told = fb.trees.Corpus(*[examples(("If", "For"))] * 3, ("a", "b"))
    untold = fb.trees.Corpus(*[examples(("If", "If"))] * 3, ("a", "b"))
    assert example.bag_baseline(told) == 1.0
    assert example.bag_baseline(untold) == example.majority_baseline(untold) == 0.5
