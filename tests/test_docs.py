"""The documentation's Python runs, page by page, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from foldbatch import blocks

DOCS = Path(__file__).resolve().parents[1] / "docs"
ELSEWHERE = {DOCS / "cookbook.md", DOCS / "deciding.md"}  # whose programs have tests of their own
PAGES = sorted(set(DOCS.glob("**/*.md")) - ELSEWHERE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page):
    names: dict[str, object] = {}
    programs = re.findall(
        r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    if any("import torch" in code for code in programs):
        pytest.importorskip("torch", reason="needs PyTorch: pip install 'foldbatch[torch]'")
    for code in programs:
        exec(compile(code, str(page), "exec"), names)


def test_the_page_of_blocks_names_every_block():
    text = (DOCS / "blocks.md").read_text(encoding="utf-8")
    missing = [name for name in blocks.__all__ if name not in text and name not in ("Block", "Pipe")]
    assert missing == []
