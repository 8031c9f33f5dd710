"""The shape of the house: tests mirror modules, modules stay small, ARCHITECTURE.md lists them all.

Benchmarks stand beside the package: what is tested of them mirrors their modules, and they stay small too.

That floors import only downward is import-linter's part, in CI.
"""

from __future__ import annotations

import ast
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

import foldbatch

ROOT = Path(__file__).resolve().parents[1]
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
LIST_BEGINS = "<!-- from here on made by python tests/test_architecture.py -->"
MAX_LINES = 400
EXAMPLES = sorted(path.relative_to(ROOT) for path in (ROOT / "examples").rglob("*.py"))
BENCHMARKS = sorted(path.relative_to(ROOT) for path in (ROOT / "benchmarks").rglob("*.py"))
MODULES = sorted(path.relative_to(ROOT) for path in (ROOT / "foldbatch").rglob("*.py"))
TESTS = sorted(path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py"))
WITHOUT_IDEAS = ("__init__.py", "__main__.py")  # they only put together what other modules hold

# Tests of the whole rather than of one module.
OF_THE_WHOLE = {
    "test_architecture",
    "test_attacks",
    "test_cookbook",
    "test_docs",
    "test_edges",
    "test_exactness",
    "test_examples",
    "test_laws",
    "test_programs",
    "test_readme",
    "test_typing",
}


def mirror_of(module: Path) -> Path:
    """Return where a module's test lies; a package's own lies inside, under the package's name."""
    return Path("tests", *module.parent.parts[1:]) / _test_name(module)


def _test_name(module: Path) -> str:
    name = {"__init__": module.parent.name, "__main__": "main"}.get(module.stem, module.stem)
    return f"test_{name}.py"


@pytest.mark.parametrize("module", [m for m in MODULES if m.name not in WITHOUT_IDEAS], ids=str)
def test_every_module_has_a_test_of_its_name(module):
    assert mirror_of(module) in TESTS


@pytest.mark.parametrize("test", TESTS, ids=str)
def test_every_test_has_a_module_of_its_name(test):
    whole = test.parent == Path("tests") and test.stem in OF_THE_WHOLE
    example = test.parent == Path("tests/examples") and test.stem in {f"test_{e.stem}" for e in EXAMPLES}
    benchmark = test in {Path("tests", module.parent, _test_name(module)) for module in BENCHMARKS}
    ways = test.parent == Path("tests/engines/cuda/launches")  # many modules together
    tool = test.parent == Path("tests/ptx")  # a tool of tests has tests itself
    assert whole or ways or tool or example or benchmark or test in {mirror_of(module) for module in MODULES}


@pytest.mark.parametrize("module", MODULES + BENCHMARKS, ids=str)
def test_no_module_is_long(module):
    lines = len((ROOT / module).read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_LINES, "is there more than one idea in it?"


def module_list() -> str:
    """Return ARCHITECTURE.md's table of modules: each with the first line of its docstring."""
    rows = ["| module | what it is |", "|---|---|"]
    for module in MODULES:
        if module.name not in WITHOUT_IDEAS:
            docstring = ast.get_docstring(ast.parse((ROOT / module).read_text(encoding="utf-8")))
            assert docstring, f"{module} has no docstring"
            rows.append(f"| `{module.as_posix()}` | {docstring.splitlines()[0].removesuffix('.')} |")
    return "\n".join(rows) + "\n"


def test_architecture_lists_the_modules_and_nothing_else():
    listed = ARCHITECTURE.read_text(encoding="utf-8").partition(LIST_BEGINS)[2].lstrip("\n")
    assert listed == module_list(), "run python tests/test_architecture.py"


def test_architecture_is_two_pages():
    text = ARCHITECTURE.read_text(encoding="utf-8").partition(LIST_BEGINS)[0]
    assert len(text.splitlines()) <= 120


TRACKED = subprocess.run(
    ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
).stdout.splitlines()


@pytest.mark.skipif(not TRACKED, reason="this is no git checkout")
def test_no_file_holds_what_a_merge_left():
    marks = re.compile(r"^(<{7} |>{7} |={7}$)", re.MULTILINE)
    texts = {name: (ROOT / name).read_bytes() for name in TRACKED if (ROOT / name).is_file()}
    assert [name for name, text in texts.items() if marks.search(text.decode("utf-8", "replace"))] == []


def test_dir_of_the_package_lists_what_is_public():
    """Not its modules, which completion in an editor or a notebook would offer."""
    later = foldbatch._LATER if find_spec("torch") else ()  # what needs PyTorch
    assert dir(foldbatch) == sorted([*foldbatch.__all__, *later, "__version__"])


if __name__ == "__main__":
    head = ARCHITECTURE.read_text(encoding="utf-8").partition(LIST_BEGINS)[0]
    ARCHITECTURE.write_text(f"{head}{LIST_BEGINS}\n\n{module_list()}", encoding="utf-8")
