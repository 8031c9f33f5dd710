"""The documentation is complete, and its notebooks become pages; its programs run in `test_pages`."""

import json
import re
import runpy
from contextlib import suppress
from pathlib import Path

import pytest

import foldbatch as fb
from foldbatch import blocks

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
HOOKS = runpy.run_path(str(DOCS / "hooks.py"))


def test_the_page_of_blocks_names_every_block():
    text = (DOCS / "blocks.md").read_text(encoding="utf-8")
    missing = [name for name in blocks.__all__ if name not in text and name not in ("Block", "Pipe")]
    assert missing == []


def test_a_notebook_runs_and_shows_something(tmp_path):
    """As tutorials do where the site is built."""
    cells = [
        {"cell_type": "markdown", "source": ["# A title"]},
        {"cell_type": "code", "source": ["x = 2\n", "x"]},
    ]
    (tmp_path / "page.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    title, code, *shown = HOOKS["executed"](tmp_path / "page.ipynb")
    assert (title, code) == ("# A title", "```python\nx = 2\nx\n```")
    assert any(part.startswith('<pre class="output">') and "2" in part for part in shown)


def test_every_public_name_is_in_the_reference():
    pages = "\n".join(page.read_text(encoding="utf-8") for page in DOCS.glob("reference/*.md"))
    named = set()
    for place in HOOKS["PLACE"].findall(pages):
        with suppress(ModuleNotFoundError, fb.errors.BackendError):  # of packages that are not installed
            named |= {path.rpartition(".")[2] for path in HOOKS["paths_of"](*place)}
    assert {*fb.__all__} - named == {"ops", "train", "trees"}  # the names of rooms


@pytest.mark.parametrize("page", sorted(DOCS.glob("reference/*.md")), ids=lambda page: page.stem)
def test_pages_of_the_reference_list_what_there_is(page):
    """So they are readable in the checkout, too; ``python docs/hooks.py`` writes them anew."""
    text = page.read_text(encoding="utf-8")
    try:
        assert HOOKS["with_tables"](text) == text, "run: python docs/hooks.py"
    except (ImportError, fb.errors.BackendError) as error:
        pytest.skip(str(error))
    assert page.stem == "index" or "| `" in text


@pytest.mark.parametrize("page", HOOKS["SHOWING"], ids=lambda page: page.stem)
def test_pages_show_programs_as_they_are(page):
    text = page.read_text(encoding="utf-8")
    assert HOOKS["with_programs"](text) == text, "run: python docs/hooks.py"
    shown = set(HOOKS["PROGRAM"].findall(text))
    assert shown == {
        f"examples/{page.stem}/{file.name}" for file in (ROOT / "examples" / page.stem).glob("*.py")
    }


def test_the_site_has_all_of_a_name_where_the_checkout_has_a_table():
    text = "Ops\n\n<!-- only foldbatch.load foldbatch.save -->\n| `load` | ... |\n<!-- end -->\n\nMore"
    assert HOOKS["on_page_markdown"](text) == "Ops\n\n::: foldbatch.load\n\n::: foldbatch.save\n\nMore"


def test_lines_of_prose_are_short():
    pages = [ROOT / "README.md", *DOCS.glob("*.md"), *DOCS.glob("reference/*.md")]
    for page in pages:
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        long = [
            line
            for line in text.splitlines()
            if len(line) > 100 and not line.startswith(("|", "    ", "- ["))
        ]
        assert long == [], page
