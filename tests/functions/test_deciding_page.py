"""The code of docs/deciding.md runs; each program to copy is complete and of at most 40 lines."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "deciding.md").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r"^### (.*?)\n.*?^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
LONGEST = 40


@pytest.mark.parametrize("title", PROGRAMS)
def test_a_program_to_copy_is_short_and_reaches_what_it_asserts(title: str) -> None:
    program = PROGRAMS[title]
    assert sum(bool(line.strip()) for line in program.splitlines()) <= LONGEST
    assert re.search(r"^assert ", program, re.MULTILINE)
    exec(compile(program, title, "exec"), {"__name__": "program"})


def test_the_code_before_the_programs_runs() -> None:
    names: dict[str, object] = {}
    head = PAGE[: PAGE.index("## Programs to copy")]
    for code in re.findall(r"^```python\n(.*?)^```$", head, re.MULTILINE | re.DOTALL):
        exec(compile(code, "deciding.md", "exec"), names)
