"""README.md keeps its word: two commands of one line each."""

import re
from pathlib import Path

from foldbatch.recipes.configuration import read_configuration
from foldbatch.trees.formats import FORMATS

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
