"""Attacks: no file makes this package open, import, run or call what its reader did not allow.

`python -m tests.attacks --tries 100000` does the same for longer.
"""

import ast
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

import foldbatch as fb
from foldbatch.engines.bindings import bind
from foldbatch.engines.cuda.kernel_text import TARGET
from foldbatch.engines.cuda.kernels import kernels_of
from tests import kept

PLAIN = ("train", "saved", "data")


def in_child(code: str, *arguments: str, folder: Any = None) -> Any:
    """Return what a process prints last, as JSON; it has no memory but its own to fill, nor hooks to leave behind."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", f"import json, sys\n{code}", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=folder, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_edited_files_do_no_harm(tmp_path):
    code = "from tests.attacks.watched import attack; print(json.dumps(attack(10**6, 100)))"
    outcomes, harm = in_child(code, folder=tmp_path)
    assert harm == []
    assert sum(outcomes.values()) == 100 and outcomes["ran"] > 3 and outcomes["refused when running"] > 3
    assert {name.split(" at ")[0] for name in outcomes} <= {
        *("ran", "unwritable", "refused when loading", "refused when running"),
        *("MemoryError when loading", "MemoryError when running", "TooSlow when running"),
    }
    assert list(tmp_path.iterdir()) == []


def test_harm_would_be_noticed():
    """Files whose function the reader trusts, though it does harm."""
    code = (
        "import io, os, socket, subprocess\nimport foldbatch as fb\nfrom tests.attacks import watched\n"
        "def model(f): return fb.InputTransform(f) >> fb.InputTransform(str) >> fb.Length()\n"
        "bad = {f: (model(f), ['none']) for f in (os.system, io.open_code, socket.gethostbyname)}\n"
        "watched.models = lambda: {'good': (model(len), ['none', 3]), **bad}\n"
        "watched.edited = lambda arrays, header, rng: (arrays, header)\n"
        "print(json.dumps(watched.attack(0, 20, trust=tuple(bad))))"
    )
    outcomes, harm = in_child(code)
    assert outcomes["harm"] == len(harm) > 0, outcomes
    for event in ("os.system", "open", "import encodings.idna"):
        assert any(event in each for each in harm), (event, harm)


def test_what_is_listed_does_no_harm_whatever_it_is_given(tmp_path):
    code = "from tests.attacks.watched import call_listed; print(json.dumps(call_listed(15)))"
    assert in_child(code, folder=tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(
    not (find_spec("uvicorn") and find_spec("onnxruntime")),
    reason="needs all that commands import: pip install -e '.[serve,onnx]'",
)
def test_nothing_that_a_command_has_imported_is_reached_but_what_is_listed():
    modules = [f"foldbatch.commands.{name}" for name in [*PLAIN, "bench", "serve"]]
    modules += ["foldbatch.serve.workers", "foldbatch.serve.service", "foldbatch.exporting.exporter"]
    loaded, tried, listed, reached = in_child("from tests.attacks.walk import main; main()", *modules)
    assert reached == []
    assert loaded > 300 and tried > 20_000 and listed > 150


CODE = "x']\n    __import__('os').system('touch harm')  # \0 */ \" } {0} %s \\"


def named(code: str) -> tuple[Any, Any]:
    """Return a model with a text in every place that takes one, and an example of it."""
    tree = fb.ForwardDeclaration(output_type=(2, 2), name=f"tree{code}")
    words = fb.trees.Vocabulary([f"good{code}", "bad"], unknown=f"none{code}")
    word = fb.GetItem(f"word{code}") >> fb.InputTransform(words) >> fb.Scalar("int32")
    cell = fb.TreeLSTM(2, name=f"cell{code}")
    leaf = fb.AllOf(word >> fb.Embedding(3, 2, name=f"table{code}"), fb.Record(())) >> cell
    below = fb.GetItem(f"below{code}", default=f"none{code}")
    node = fb.AllOf(fb.Void(), below >> fb.Record((tree(), tree())), fb.Void())
    node = node >> fb.AllOf(fb.GetItem(0), fb.GetItem(1)) >> cell
    kind = fb.GetItem(f"kind{code}")
    tree.resolve_to(
        fb.OneOf(kind, {f"leaf{code}": leaf, f"node{code}": node}) >> fb.blocks.Collect(f"all{code}")
    )
    model = fb.Composition(f"model{code}")
    with model.scope():
        seen = fb.blocks.Collected(tree(), f"all{code}").reads(model.input)
        label = (fb.GetItem(f"label{code}") >> fb.OneHotFromList([f"a{code}", "b"])).reads(model.input)
        scores = fb.Linear(2, name=f"out{code}").reads(seen[0][0])
        (fb.Function(kept.distance) >> fb.Loss(f"loss{code}")).reads(scores, label)
        fb.Metric(f"metric{code}").reads(scores)
        model.output.reads(scores)
    leaves = [{f"kind{code}": f"leaf{code}", f"word{code}": word} for word in (f"good{code}", "bad")]
    example = {f"kind{code}": f"node{code}", f"below{code}": leaves, f"label{code}": f"a{code}"}
    return model, example


@pytest.mark.parametrize("backend", ["numpy", "llvm", "cuda"])
def test_no_name_becomes_code(backend, monkeypatch, tmp_path):
    """Whatever names, keys and words say, the texts that are compiled are those of a model with plain ones."""
    if backend == "llvm":
        pytest.importorskip("llvmlite")
    monkeypatch.chdir(tmp_path)
    texts: list[list[str]] = []
    for code in ("", CODE):
        model, example = named(code)
        program = fb.compile(model, "llvm" if backend == "llvm" else "numpy", seed=1)
        program.value_and_grad([example] * 3)
        program.run([example], metrics=True)
        texts.append([ast.dump(Plain().visit(ast.parse(program.lowered.source)))])
        if backend == "cuda":
            texts[-1] += [each.text for each in kernels_of(bind(program.model, TARGET, training=True))]
        else:
            texts[-1] += [program.kernels(whole=True).removeprefix(program.lowered.source)]
    # titles and names of parameters are for people to read; a title is a line that has a cell's label in it
    titles = re.compile(r"^# .* (?:infer_)?(?:forward|backward)_\w+$", re.MULTILINE)
    for model_texts in texts:
        model_texts[1:] = [titles.sub("", text).replace(CODE, "") for text in model_texts[1:]]
    assert texts[0] == texts[1]
    assert sum(map(len, texts[0])) > 1000
    assert list(tmp_path.iterdir()) == []


class Plain(ast.NodeTransformer):
    """Puts the names and keys of `named` back."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant(node.value.removesuffix(CODE)) if isinstance(node.value, str) else node

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._short(node.id), node.ctx)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self._short(node.name)
        return self.generic_visit(node)

    def _short(self, name: str) -> str:
        return name.replace(re.sub(r"[^A-Za-z0-9]", "_", CODE), "")
