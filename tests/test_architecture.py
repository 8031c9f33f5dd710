"""The shape of the house: no module is long, ARCHITECTURE.md names every room, no merge left its marks.

That floors import only downward is import-linter's part, in CI.
"""

import inspect
import re
import subprocess
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

import foldbatch

ROOT = Path(__file__).resolve().parents[1]
MAX_LINES = 700
MODULES = sorted(path for part in ("foldbatch", "benchmarks") for path in (ROOT / part).rglob("*.py"))


def test_no_module_is_long():
    """One that is may hold more than one idea."""
    lines = {path.relative_to(ROOT): path.read_text(encoding="utf-8").count("\n") for path in MODULES}
    assert {path: count for path, count in lines.items() if count > MAX_LINES} == {}


def test_every_room_has_a_contract_of_few_layers():
    """A room without one may hold circles; one of many layers is several rooms."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    rooms = {c["containers"][0]: c for c in contracts if c["type"] == "layers"}
    top = rooms.pop("foldbatch")
    assert all(len(room["layers"]) <= 10 and room["exhaustive"] for room in rooms.values())
    upward = {each for room in (top, *rooms.values()) for each in room.get("ignore_imports", ())}
    assert upward == {
        "foldbatch -> foldbatch.torch",  # imported when it is asked for
        "foldbatch.blocks.block -> foldbatch.program.compiling",  # Block.eval runs what it is part of
    }
    parts = (
        path.parent.relative_to(ROOT).parts for path in MODULES if len([*path.parent.glob("[a-z]*.py")]) > 1
    )
    assert {".".join(part) for part in parts if part[0] == "foldbatch"} - {"foldbatch"} == rooms.keys()


def test_architecture_names_every_room():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rooms = {path.name for path in (ROOT / "foldbatch").iterdir() if (path / "__init__.py").exists()}
    assert {room for room in rooms if f"`{room}`" not in text} == set()


def test_architecture_shows_the_integers_that_a_batch_has():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    program = "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert program.count("assert ") > 10
    exec(compile(program, "ARCHITECTURE.md", "exec"), {"__name__": "architecture"})


def test_no_file_holds_what_a_merge_left():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    tracked = [ROOT / name for name in listed.stdout.splitlines()]
    if not tracked:
        pytest.skip("this is no git checkout")
    marks = re.compile(rb"^(<{7} |>{7} |={7}$)", re.MULTILINE)
    assert [path for path in tracked if path.is_file() and marks.search(path.read_bytes())] == []


def test_dir_of_the_package_lists_what_is_public():
    """Not its modules, which completion in an editor or a notebook would offer."""
    later = ["torch"] if find_spec("torch") else []
    assert dir(foldbatch) == sorted([*foldbatch.__all__, *later, "__version__"])
    assert len(dir(foldbatch)) <= 65


def test_names_of_rooms_are_told():
    for owner, name, said in (
        (foldbatch, "Trainer", "has no attribute 'Trainer'; it is foldbatch.train.Trainer"),
        (foldbatch, "FoldbatchError", "it is foldbatch.errors.FoldbatchError"),
        (foldbatch, "FC", "has no attribute 'FC'; see Linear"),
        (foldbatch, "Trainor", "has no attribute 'Trainor'"),
        (
            foldbatch.Linear(2),
            "weight",
            r".* see parameters\['weight'\], made when the layer is first called",
        ),
        (foldbatch.Composition().input, "scope", "a wire has no 'scope'; reads returns .*"),
    ):
        with pytest.raises(AttributeError, match=f"{said}$"):
            getattr(owner, name)


def test_compile_takes_few_arguments():
    assert len(inspect.signature(foldbatch.compile).parameters) <= 8
    with pytest.raises(foldbatch.errors.UnknownNameError, match="compile options: expected .*found shares"):
        foldbatch.compile(foldbatch.Scalar(), "numpy", options={"shares": None})
    methods = [n for n, m in vars(foldbatch.Program).items() if inspect.isfunction(m) and n[0] != "_"]
    assert len(methods) <= 16
