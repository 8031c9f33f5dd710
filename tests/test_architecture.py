"""The shape of the house: floors and rooms, pages that name what exists, no marks of a merge.

import-linter checks in CI that floors import only downward; here is checked that its contracts catch what they shall.
"""

import importlib
import inspect
import re
import subprocess
import tomllib
from copy import deepcopy
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import foldbatch

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "benchmarks/NOTES.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
]
LARGE = 10  # modules and rooms of a room that has a contract of its own


def contracts() -> dict[str, dict[str, Any]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return {contract["name"]: contract for contract in settings["tool"]["importlinter"]["contracts"]}


def floors() -> list[str]:
    return [re.sub(r"[()]", "", floor) for floor in contracts()["Floors import only downward"]["layers"]]


def test_large_rooms_have_a_contract_and_exceptions_are_few():
    """Other rooms are looked at for circles alone."""
    layered = {c["containers"][0]: c for c in contracts().values() if c["type"] == "layers"}
    assert all(contract["exhaustive"] for contract in layered.values())
    assert contracts()["No room has a circle"]["ancestors"] == ["foldbatch"]
    upward = {
        line for c in contracts().values() if c["type"] != "forbidden" for line in c.get("ignore_imports", ())
    }
    assert upward == {"foldbatch -> foldbatch.torch"}  # imported when it is asked for
    children: dict[str, set[str]] = {}
    for path in (ROOT / "foldbatch").rglob("*.py"):
        parts = [part for part in path.relative_to(ROOT).with_suffix("").parts if part != "__init__"]
        children.setdefault(".".join(parts[:-1]), set()).add(parts[-1])
    assert {room for room, names in children.items() if len(names) >= LARGE} <= layered.keys()


@cache
def graph() -> Any:
    grimp = pytest.importorskip("grimp", reason="import-linter is not installed")
    return grimp.build_graph("foldbatch", include_external_packages=True)


PLANTED = [
    # an upward import, also of the rooms that stand alone on their floor
    ("foldbatch.static.graph", "foldbatch.engines.arrays", "Floors import only downward"),
    ("foldbatch.functions.values", "foldbatch.program.program", "Floors import only downward"),
    ("foldbatch.operators", "foldbatch.static.graph", "Floors import only downward"),
    ("foldbatch.params.parameters", "foldbatch.operators", None),  # downward
    # an import of a neighbour, and a module without a floor
    ("foldbatch.static.graph", "foldbatch.scheduler.trace", "Floors import only downward"),
    ("foldbatch.upstairs", "foldbatch.errors", "Floors import only downward"),
    # the same inside rooms
    ("foldbatch.scheduler.trace", "foldbatch.planning.merge", "Floors import only downward"),
    ("foldbatch.scheduler.trace", "foldbatch.scheduler.record", "Inside scheduler"),
    ("foldbatch.planning.turns", "foldbatch.planning.tables", "Inside planning"),
    ("foldbatch.engines.numpy", "foldbatch.engines.llvm", "Inside engines"),
    ("foldbatch.functions.attic", "foldbatch.functions.values", "Inside functions"),
    ("foldbatch.zoo.words", "foldbatch.zoo.models", "No room has a circle"),
    ("foldbatch.static.ops.shape", "foldbatch.static.ops.functions", "No room has a circle"),
    # the other door, beside the seam
    ("foldbatch.functions.cells", "foldbatch.blocks.block", "Walks know blocks by one seam"),
    # an engine, and libraries outside of their rooms
    ("foldbatch.engines.runner", "foldbatch.engines.llvm.team", "Nothing imports the engines llvm and cuda"),
    ("foldbatch.engines.runner", "foldbatch.engines.cuda", "Nothing imports the engines llvm and cuda"),
    *(
        (
            importer,
            library,
            "Optional libraries are imported in their rooms alone, and the rest of the checkout nowhere",
        )
        for importer, library in (
            ("foldbatch.static.graph", "torch"),
            ("foldbatch.planning.tables", "llvmlite"),
            ("foldbatch.engines.cuda.device", "cupy"),
            ("foldbatch.gain", "tests"),
            ("foldbatch", "benchmarks"),
        )
    ),
]


@pytest.mark.parametrize(("importer", "imported", "name"), PLANTED)
def test_a_planted_import_breaks_its_contract(importer: str, imported: str, name: str | None) -> None:
    """One that is allowed breaks none."""
    pytest.importorskip("importlinter", reason="import-linter is not installed")
    from importlinter.configuration import configure  # noqa: PLC0415 - optional

    configure()
    planted = deepcopy(graph())
    planted.add_module(importer)
    if imported not in planted.modules:
        planted.add_module(imported, is_squashed=not imported.startswith("foldbatch"))
    planted.add_import(importer=importer, imported=imported)
    for contract in contracts().values() if name is None else [contracts()[name]]:
        kind = contract["type"]
        module = importlib.import_module(f"importlinter.contracts.{kind}")
        made = getattr(module, "".join(part.title() for part in kind.split("_")) + "Contract")
        options = {
            key: str(value) if isinstance(value, bool) else value
            for key, value in contract.items()
            if key not in ("name", "type")
        }
        session = {"root_packages": ["foldbatch"], "include_external_packages": True}
        assert made(contract["name"], session, options).check(deepcopy(planted), verbose=False).kept is (
            name is None
        )


def test_architecture_names_every_room_and_has_the_floors_of_the_contract():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rooms = {path.name for path in (ROOT / "foldbatch").iterdir() if (path / "__init__.py").exists()}
    assert {room for room in rooms if f"`{room}`" not in text} == set()
    rows = re.findall(r"^\| (`.*?) \| ", text.partition("## Floors")[2].partition("## ")[0], re.MULTILINE)
    drawn = [sorted(re.findall(r"`(\w+)`", row)) for row in rows]
    assert drawn == [sorted(floor.split(" | ")) for floor in floors()]


def test_architecture_shows_the_integers_that_a_batch_has():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    program = "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert program.count("assert ") > 10
    exec(compile(program, "ARCHITECTURE.md", "exec"), {"__name__": "architecture"})


PATH = re.compile(r"\.?[\w-]+(/[\w.-]+)+/?|[\w-]+\.py|[\w-]+/")
# Paths that a command writes, and what only looks like a path.
NO_PATHS = {"runs/", "runs/tensorboard", "checkpoints/", "application/json", "f1/good"}
FIGURE = re.compile(r"(step|time|parameters|gradients|not_finite|validation_f1)/[\w./]+")  # of a tracker


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_in_a_page_exist(page: Path) -> None:
    """Relative to the checkout, to the package, or to the page."""
    named = {
        name for name in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")) if PATH.fullmatch(name)
    }
    places = (ROOT, ROOT / "foldbatch", page.parent)
    missing = {
        name
        for name in named - NO_PATHS
        if not FIGURE.fullmatch(name)
        and not any((place / name).exists() or (place / f"{name}.py").exists() for place in places)
    }
    assert missing == set()


def test_names_of_the_package_in_its_prose_exist():
    """Of modules and of what they hold, in docstrings, comments and pages, as in `foldbatch.errors`."""
    files = [*(ROOT / "foldbatch").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py"), *PAGES]
    names = {
        name
        for file in files
        for name in re.findall(r"`(foldbatch(?:\.[A-Za-z_]\w*)+)`", file.read_text(encoding="utf-8"))
    }
    names.remove("foldbatch.tables")  # a key in the metadata of a file of ONNX
    assert {name for name in names if not _exists(name.split("."))} == set()


def _exists(parts: list[str]) -> bool:
    """Look a name up in the deepest module of it; one that needs a library that is missing counts as there."""
    for count in range(len(parts), 0, -1):
        module = ".".join(parts[:count])
        path = ROOT.joinpath(*parts[:count])
        if not (path.with_suffix(".py").exists() or (path / "__init__.py").exists()):
            continue
        try:
            found: Any = importlib.import_module(module)
        except (ModuleNotFoundError, foldbatch.errors.BackendError):
            return True
        for part in parts[count:]:
            if not hasattr(found, part) and part not in getattr(found, "__annotations__", ()):
                return False
            found = getattr(found, part, None)
        return True
    return False


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
    assert len(dir(foldbatch)) <= 66


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
    assert len(methods) <= 17
