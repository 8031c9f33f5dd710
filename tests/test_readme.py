"""README.md keeps its word: two commands of one line each, and Python that runs as it stands."""

import importlib
import re
from pathlib import Path

import pytest

import foldbatch as fb
from foldbatch.recipes.configuration import read_configuration
from foldbatch.trees.formats import FORMATS
from tests.fresh import check_same, fresh, noted  # noqa: F401 - a fixture

ROOT = Path(__file__).resolve().parents[1]


def fenced(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def test_the_first_two_commands_are_one_line_each():
    first, second, *_ = fenced("sh")
    assert [len(block.splitlines()) for block in (first, second)] == [1, 1]


def test_the_first_command_trains_what_a_file_says():
    (path,) = re.findall(r"foldbatch train (\S+)$", fenced("sh")[0])
    configuration = read_configuration(ROOT / path, {})
    assert FORMATS[configuration.data.format].embedded is not None  # nothing is downloaded


def test_the_second_command_runs_the_tests():
    assert "pytest" in fenced("sh")[1]  # .ci/run runs this very line


def test_the_python_runs_from_top_to_bottom_and_its_models_load_elsewhere(fresh, monkeypatch, tmp_path):  # noqa: F811
    """Plain functions are found by import path, so what README shows is a module here."""
    blocks = fenced("python")
    assert blocks
    (tmp_path / "of_readme.py").write_text("\n".join(blocks), encoding="utf-8")
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(tmp_path)
    with noted(monkeypatch) as made:
        namespace = vars(importlib.import_module("of_readme"))
    for number, program in enumerate(made):
        trust = ("of_readme",) if program is namespace["plain"] else ()
        check_same(program, fresh, tmp_path / f"{number}.safetensors", trust)
    three_children = fb.trees.parse_brackets("(3 (4 good) (2 movie) (1 not))", labels=int)
    with pytest.raises(fb.errors.ExampleError, match="expected 2 items, found 3"):
        namespace["program"].run([three_children])
