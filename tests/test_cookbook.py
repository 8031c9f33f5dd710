"""Each recipe of docs/cookbook.md is a program of at most 60 lines that runs by itself and reaches what it asserts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "cookbook.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^## (.*?)\n.*?^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
LONGEST = 60


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_runs_and_reaches_what_it_asserts(title):
    program = RECIPES[title]
    if "import torch" in program:
        pytest.importorskip("torch", reason="torch is not installed")
    assert len(program.splitlines()) <= LONGEST
    assert re.search(r"^assert ", program, re.MULTILINE)
    exec(compile(program, title, "exec"), {"__name__": "recipe"})


def test_the_page_begins_with_a_list_of_its_recipes():
    assert re.findall(r"^- \[(.*)\]\(#", PAGE, re.MULTILINE) == list(RECIPES)
