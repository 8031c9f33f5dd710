"""Each recipe of docs/cookbook.md is a program of at most 60 lines that reaches what it asserts.

Its models are whole in their files: they are loaded where the recipe's code is not.
"""

import re
from pathlib import Path

import pytest

from tests.fresh import check_same, fresh, noted  # noqa: F401 - a fixture

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "cookbook.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^## (.*?)\n.*?^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
LONGEST = 60


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_reaches_what_it_asserts_and_its_models_load_elsewhere(title, fresh, monkeypatch, tmp_path):  # noqa: F811
    program = RECIPES[title]
    if "import torch" in program:
        pytest.importorskip("torch", reason="torch is not installed")
    assert len(program.splitlines()) <= LONGEST
    assert re.search(r"^assert ", program, re.MULTILINE)
    with noted(monkeypatch) as made:
        exec(compile(program, title, "exec"), {"__name__": "recipe"})
    for number, each in enumerate(made):
        check_same(each, fresh, tmp_path / f"{number}.safetensors")


def test_the_page_begins_with_a_list_of_its_recipes():
    assert re.findall(r"^- \[(.*)\]\(#", PAGE, re.MULTILINE) == list(RECIPES)
