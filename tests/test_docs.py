"""The documentation's Python runs, page by page, from top to bottom."""

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
NOTEBOOKS = sorted(DOCS.glob("tutorials/*.ipynb"))
ELSEWHERE = {DOCS / f"{name}.md" for name in ("cookbook", "deciding", "walks")}  # tested program by program
PAGES = sorted(set(DOCS.glob("**/*.md")) - ELSEWHERE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page):
    names: dict[str, object] = {}
    programs = re.findall(
        r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    if any("import torch" in code for code in programs):
        pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")
    for code in programs:
        exec(compile(code, str(page), "exec"), names)


def test_the_page_of_blocks_names_every_block():
    text = (DOCS / "blocks.md").read_text(encoding="utf-8")
    missing = [name for name in blocks.__all__ if name not in text and name not in ("Block", "Pipe")]
    assert missing == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_runs_and_shows_something(notebook):
    if notebook.stem == "torch":
        pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")
    assert any(part.startswith('<pre class="output">') for part in HOOKS["executed"](notebook))


def test_every_public_name_is_in_the_reference():
    pages = "\n".join(page.read_text(encoding="utf-8") for page in DOCS.glob("reference/*.md"))
    named = set()
    for room in HOOKS["LINE"].findall(pages):
        with suppress(ModuleNotFoundError, fb.errors.BackendError):  # of packages that are not installed
            named |= {*HOOKS["names_of"](*room)}
    named |= {path.rpartition(".")[2] for path in re.findall(r"^::: (\S+)$", pages, re.MULTILINE)}
    assert {*fb.__all__} - named == {"ops", "train", "trees"}  # the names of rooms


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
