"""What static checkers say of models: kinds are checked across ``>>``, and nothing right is refused.

Both checkers read one file; a line with ``# wrong`` must be complained about, no other line may be.
"""

import inspect
import json
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import foldbatch as fb
from foldbatch.engines.engine import ENGINES, PRECISIONS
from foldbatch.planning.layout import LAYOUTS
from foldbatch.planning.policies import POLICIES
from foldbatch.planning.sharing import SHARES
from foldbatch.program.compiling import OPTIONS, CompileOptions
from foldbatch.types import BackendName
from tests.pages import programs as programs_of_pages

MODELS = """\
import numpy as np

import foldbatch as fb

numbers = fb.Map(fb.Scalar())
words = fb.Map(fb.InputTransform(str.lower))
pair = fb.Record({"a": fb.Scalar(), "b": fb.Vector(3)})

# tensors
fb.Vector(3) >> fb.Linear(2) >> fb.Function(lambda x: x) >> fb.Loss()
fb.Scalar("int32") >> fb.Embedding(3, 2) >> fb.Dropout(0.5) >> fb.blocks.LayerNorm()
fb.Scalar() >> fb.Concat()  # wrong
fb.Scalar() >> fb.InputTransform(len)  # wrong
fb.Scalar() >> fb.Fold(fb.Function(max), fb.Zeros([]))  # wrong
fb.Vector(3) >> fb.LSTMCell(2)  # wrong

# tuples
pair >> fb.Concat() >> fb.Linear(2)
fb.AllOf(fb.Vector(2), fb.Record(())) >> fb.TreeLSTM(3) >> fb.GetItem(0) >> fb.Linear(2)
pair >> fb.Linear(2)  # wrong
pair >> fb.Scalar()  # wrong
fb.AllOf(fb.Identity(), fb.Identity()) >> fb.InputTransform(max)

# sequences
numbers >> fb.Reduce(fb.Function(max)) >> fb.Loss()
numbers >> fb.Sum() >> fb.Loss()
numbers >> fb.RNN(fb.GRUCell(3)) >> fb.GetItem(1)
numbers >> fb.Map(fb.Function(abs)) >> fb.NGrams(2) >> fb.Map(fb.Concat())
numbers >> fb.Linear(2)  # wrong
numbers >> fb.Concat()  # wrong
numbers >> fb.Scalar()  # wrong
fb.Scalar() >> fb.Broadcast() >> fb.Mean()  # wrong

# objects
words >> fb.InputTransform(len) >> fb.Scalar()
fb.GetItem("x") >> fb.OneHot(3) >> fb.Linear(2)
fb.InputTransform(len) >> fb.Linear(2)  # wrong
fb.InputTransform(len) >> fb.Function(abs)  # wrong
words >> fb.Reduce(fb.Function(max))  # wrong

# nothing
fb.Scalar() >> fb.Metric("m")
fb.Scalar() >> fb.Metric("m") >> fb.Linear(2)  # wrong

# what stands for a block, and what does not
{"a": fb.Scalar()} >> fb.Concat()
np.ones(3) >> fb.Linear(2)
fb.Identity() >> (fb.Scalar(), fb.Scalar()) >> fb.Concat()
fb.Scalar() >> 3  # wrong
fb.Scalar() >> "a"  # wrong

# annotations
model: fb.Block = numbers >> fb.Max()


def classify(inner: fb.Block[fb.types.ObjectType, fb.types.TensorType]) -> fb.Block:
    return inner >> fb.Linear(5, "softmax")


classify(fb.Vector(3) >> fb.Linear(2))
classify(numbers)  # wrong
"""
WRONG = {number for number, line in enumerate(MODELS.splitlines(), 1) if line.endswith("# wrong")}
UNTYPED = (
    "page_deciding",
    "page_functions",
    "page_walks",
    "tutorial_expressions",
    "tutorial_syntax",
)  # their annotations say shapes, as list[8, float32], which no checker knows


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """`MODELS`, and every program of README, docs and tutorials as a file."""
    (tmp_path / "models.py").write_text(MODELS, encoding="utf-8")
    for name, program in programs_of_pages().items():
        if not name.startswith(UNTYPED):
            (tmp_path / f"{name}.py").write_text(program, encoding="utf-8")
    return tmp_path


def wrong(errors: list[tuple[str, int]]) -> bool:
    return {(file, line) for file, line in errors} == {("models.py", line) for line in WRONG}


def test_mypy_accepts_every_program_of_the_documents_and_refuses_what_does_not_fit(programs):
    pytest.importorskip("mypy")
    pytest.importorskip("basedpyright", reason="both checkers read the pages: pip install -e '.[dev,docs]'")
    skipped = "[mypy-torch.*,sklearn.*]\nfollow_imports = skip\n"  # they take long to read
    (programs / "mypy.ini").write_text(f"[mypy]\nignore_missing_imports = true\n{skipped}", encoding="utf-8")
    options = ["--allow-redefinition", "--disable-error-code=no-redef", "--cache-dir", ".cache", "."]
    command = [sys.executable, "-m", "mypy", *options]
    found = subprocess.run(command, cwd=programs, capture_output=True, text=True, check=False).stdout
    errors = re.findall(r"^(\w+\.py):(\d+): error", found, re.MULTILINE)
    assert wrong([(file, int(line)) for file, line in errors]), found


def test_pyright_accepts_every_program_of_the_documents_and_refuses_what_does_not_fit(programs):
    pytest.importorskip("basedpyright", reason="both checkers read the pages: pip install -e '.[dev,docs]'")
    rules = ("MissingImports", "MissingModuleSource", "PossiblyUnboundVariable", "Redeclaration")
    off = {f"report{rule}": False for rule in (*rules, "UnusedExpression")}
    config = {"include": ["."], "typeCheckingMode": "standard", "useLibraryCodeForTypes": False, **off}
    (programs / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=programs, capture_output=True, text=True, check=False)
    errors = [d for d in json.loads(done.stdout)["generalDiagnostics"] if d["severity"] == "error"]
    assert wrong([(Path(d["file"]).name, d["range"]["start"]["line"] + 1) for d in errors]), errors


def test_no_bare_object_is_the_default_of_a_public_argument():
    rooms = [fb, fb.blocks, fb.ops, fb.train, fb.trees, fb.views, fb.zoo, fb.types, fb.params, fb.errors]
    things = {thing for room in rooms for name in dir(room) if callable(thing := getattr(room, name))}
    methods = {
        m for cls in things if isinstance(cls, type) for _, m in inspect.getmembers(cls, inspect.isfunction)
    }
    ours = [thing for thing in things | methods if str(thing.__module__).startswith("foldbatch")]
    assert len(ours) > 500
    for thing in ours:
        with suppress(ValueError):  # an exception or a tuple of names has the signature of a built-in
            defaults = [parameter.default for parameter in inspect.signature(thing).parameters.values()]
            assert not any(re.search(r"<.*object.* at 0x", repr(default)) for default in defaults), thing


def test_what_checkers_know_of_options_is_what_there_is():
    options = get_type_hints(CompileOptions)
    assert options.keys() == OPTIONS.keys()
    assert {*get_args(BackendName)} == {
        "auto",
        *(name for name, (module, _) in ENGINES.items() if not module.startswith("tests.")),
    }
    assert {*get_args(options["policy"])} == {*POLICIES}
    assert {*get_args(options["layout"])} == {*LAYOUTS}
    assert {*get_args(options["precision"])} == {*PRECISIONS}
    shares, _ = get_args(options["share"])
    assert {*get_args(shares), None} == {*SHARES}
