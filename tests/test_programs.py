"""The random programs: that they hold every block there is, and mean the same however they are read."""

import sys
import warnings
from typing import Any
from unittest import mock

import pytest

import foldbatch as fb
from foldbatch import blocks
from foldbatch.blocks.composition import Wire
from tests.programs import CHOICES, checks, drawn
from tests.programs import __main__ as command

TAKEN_APART = fb.Block | fb.ForwardDeclaration | Wire


def kinds(whole: Any) -> set[str]:
    """Return the names of all classes of blocks in a block."""
    seen: dict[int, Any] = {}
    stack = [whole]
    while stack:
        x = stack.pop()
        if isinstance(x, list | tuple):
            stack += x
        elif isinstance(x, TAKEN_APART) and id(x) not in seen:
            seen[id(x)] = x
            stack += vars(x).values()
    return {type(x).__name__ for x in seen.values()}


def test_every_block_stands_in_random_programs():
    missing = set(blocks.__all__) - {"Block", "Vector"}  # Tensor is what Vector is
    for seed in range(400):
        missing -= kinds(drawn(seed, CHOICES, dropout=True).block)
        if not missing:
            return
    assert missing == set()


def test_a_program_that_fails_is_named_and_the_others_are_checked(capsys):
    checked = []

    def fail(number: int, engine: str, door: str, *, many: bool) -> None:
        assert many and door == "blocks"
        checked.append((number, engine))
        assert number != 8, "wrong"

    with mock.patch.object(checks, "check", fail), warnings.catch_warnings():
        assert command.check_here("numpy", 7, 10, 60.0) == 1
        assert command.check_here("numpy", 9, 10, 60.0) == 0
    assert checked == [(7, "numpy"), (8, "numpy"), (9, "numpy"), (9, "numpy")]
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("failed")] == ["failed 8"]
    assert any("AssertionError: wrong" in line for line in lines)


@pytest.mark.parametrize(
    ("ending", "word"),
    [
        ("os.abort()", "status -6"),
        ("time.sleep(99)", "does not end"),
        ("print('failed 12'); sys.exit(1)", ""),
    ],
)
def test_a_crash_and_a_run_without_end_are_failures_with_a_number(capsys, ending, word):
    script = f"import os, sys, time; print('program 12', flush=True); {ending}"
    child = mock.patch.object(command, "child", lambda *_: [sys.executable, "-c", script])
    with child, mock.patch.object(command, "HANGS", 2.0):
        assert command.check_apart("llvm", 12, 13, 60.0) == 1
    printed = capsys.readouterr().out
    assert word in printed
    assert printed.splitlines()[-1] == (
        "reproduce: python -m tests.programs --door blocks --engine llvm --seed 12 --count 1 --here"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seconds", "-1"], "--seconds: expected more than 0, found -1"),
        (["--seconds", "nan"], "--seconds: expected more than 0, found nan"),
        (["--count", "0"], "--count: expected 1 or more, found 0"),
        (["--seed", "-3"], "--seed: expected 0 or more, found -3"),
    ],
)
def test_a_run_that_would_check_nothing_is_refused(capsys, arguments, said):
    with pytest.raises(SystemExit) as stopped:
        command.main(arguments)
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err
