"""What README and docs show: the Python of each page, as programs that run from top to bottom."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
APART = {"cookbook": "## ", "deciding": "### ", "walks": "## "}  # whose sections are programs of their own


def sections(page: str) -> dict[str, list[str]]:
    """The blocks of Python of each section of a page, by title; what stands before the first has none."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    parts = re.split(rf"^{APART[page]}", text, flags=re.MULTILINE)
    return {part.partition("\n")[0] * (i > 0): BLOCK.findall(part) for i, part in enumerate(parts)}


def programs() -> dict[str, str]:
    """Every program, by a name that a module may have."""
    found: dict[str, list[str]] = {}
    for page in [ROOT / "README.md", *sorted(DOCS.glob("**/*.md"))]:
        name = f"page_{page.stem}"
        if page.stem in APART:
            found |= {f"{name}_{i}": blocks for i, blocks in enumerate(sections(page.stem).values())}
        else:
            found.setdefault(name, []).extend(BLOCK.findall(page.read_text(encoding="utf-8")))
    for notebook in sorted(DOCS.glob("tutorials/*.ipynb")):
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        code = ["".join(cell["source"]) + "\n" for cell in cells if cell["cell_type"] == "code"]
        found[f"tutorial_{notebook.stem}"] = code
    return {name.replace("-", "_"): "\n".join(blocks) for name, blocks in found.items() if blocks}
