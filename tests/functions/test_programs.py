"""Every program of docs/walks.md runs, reaches what it asserts, and is saved and read again; eight are short."""

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foldbatch as fb

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "walks.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
PROGRAMS = {section.partition("\n")[0]: BLOCK.findall(section) for section in SECTIONS}
SHORT = 8  # programs, whose models have at most so many lines
LONGEST = 25


@pytest.mark.parametrize("number", range(len(PROGRAMS)), ids=list(PROGRAMS))
def test_a_program_runs_and_is_read_again(number: int, tmp_path: Any, monkeypatch: Any) -> None:
    text = "\n".join(list(PROGRAMS.values())[number])
    if number < SHORT:
        assert (
            len([line for line in list(PROGRAMS.values())[number][0].splitlines() if line.strip()]) <= LONGEST
        )
    if "import torch" in text:
        pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")
    assert re.search(r"^assert ", text, re.MULTILINE)
    name = f"walk_of_docs_{number}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        made = importlib.import_module(name)
        if number < SHORT:
            made.program.save(tmp_path / "file")
            loaded = fb.load(tmp_path / "file", trust=(name,))
            assert [cell.name for cell in loaded.model.cells] == [
                cell.name for cell in made.program.model.cells
            ]
            for key, value in made.program.params.items():
                np.testing.assert_array_equal(loaded.params[key], value)
    finally:
        sys.modules.pop(name, None)


def test_the_page_begins_with_a_list_of_its_programs() -> None:
    assert re.findall(r"^- \[(.*)\]\(#", PAGE, re.MULTILINE) == list(PROGRAMS)
