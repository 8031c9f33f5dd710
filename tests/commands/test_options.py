"""Options of several commands: numbers, trust, and that of several ranks the first one speaks."""

import subprocess
import sys
import warnings
from argparse import ArgumentTypeError
from types import SimpleNamespace

import pytest

import foldbatch as fb
from foldbatch.cli import main
from foldbatch.commands.options import count, first_speaks
from foldbatch.errors import BlockUseError
from foldbatch.program import read_notes


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", ""])
def test_a_count_is_a_whole_number_of_one_or_more(text):
    with pytest.raises(ArgumentTypeError, match="expected a whole number of 1 or more"):
        count(text)


def say(rank, error=None):
    with first_speaks(SimpleNamespace(rank=rank)):
        print("output")
        print("complaint", file=sys.stderr)
        if rank:
            warnings.warn("a warning", stacklevel=1)
        if error is not None:
            raise error


def test_rank_0_alone_prints(capsys):
    say(1)
    say(0)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("output\n", "complaint\n")


@pytest.mark.parametrize(
    ("error", "status"), [(BlockUseError("a", "b", "c"), 2), (OSError(), 2), (KeyboardInterrupt(), 130)]
)
def test_other_ranks_end_without_a_word(error, status):
    with pytest.raises(SystemExit) as ended:
        say(1, error)
    assert ended.value.code == status
    with pytest.raises(type(error)):
        say(0, error)


COMMANDS = (["predict"], ["eval"], ["inspect"], ["export"], ["serve", "--port", "0"])


@pytest.fixture
def model(run, tmp_path, monkeypatch):
    """A model of ``foldbatch train`` that calls a function of a module beside it, too."""
    (tmp_path / "beside.py").write_text("def same(x):\n    return x * 1\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        import beside  # noqa: PLC0415

        program = fb.load(run / "model.safetensors", "numpy")
        block = program.lowered.origin >> fb.Function(beside.same)
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
    command = [sys.executable, "-m", "foldbatch", "eval", str(model), str(treebank / "dev.txt")]
    done = subprocess.run(
        [*command, "--trust", "beside:same"], cwd=model.parent, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout.startswith("examples 6"), done.stderr
