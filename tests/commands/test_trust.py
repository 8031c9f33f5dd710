"""The option of commands that says whose functions a model's file may name."""

from __future__ import annotations

import subprocess
import sys

import pytest

import foldbatch as fb
from foldbatch.cli import main
from foldbatch.loading import read_notes

COMMANDS = (["predict"], ["eval"], ["inspect"], ["export"], ["serve", "--port", "0"])


@pytest.fixture
def model(run, tmp_path, monkeypatch):
    """A model of ``foldbatch train`` that calls a function of a module beside it, too."""
    (tmp_path / "beside.py").write_text("def same(x):\n    return x * 1\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        import beside  # noqa: PLC0415

        program = fb.load(run / "model.safetensors", "numpy")
        block = program.lowered.block >> fb.Function(beside.same)
        fb.compile(block, "numpy").save(tmp_path / "m.safetensors", read_notes(run / "model.safetensors"))
        del sys.modules["beside"]
    return tmp_path / "m.safetensors"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_every_command_that_loads_refuses_and_says_how_to_trust(model, command, capsys):
    target = ["out.onnx"] if command == ["export"] else []
    for library in {"export": ["onnx"], "serve": ["uvicorn", "starlette"]}.get(command[0], []):
        pytest.importorskip(library)
    assert main([command[0], str(model), *target, *command[1:]]) == 2
    error = capsys.readouterr().err
    assert "beside:same: expected a function of foldbatch or one that the caller trusts" in error
    assert "or --trust beside, if you know where the file comes from" in error


def test_what_is_named_is_found_beside_the_user(model, treebank):
    """In a process of its own, whose search path has no such folder."""
    for name in ("beside", "beside:same"):
        command = [sys.executable, "-m", "foldbatch", "eval", str(model), str(treebank / "dev.txt")]
        done = subprocess.run([*command, "--trust", name], cwd=model.parent, capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.startswith("examples 6"), done.stderr
