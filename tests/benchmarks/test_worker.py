"""The side of the peer answers every command with one line, and tells what went wrong."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from benchmarks import worker
from benchmarks.task import Task
from benchmarks.variants import Peer, Variant
from tests.benchmarks.flat_trees import random_parameters, random_trees


class Toy:
    """The loss of a batch is how many trees it has, and the steps before."""

    def __init__(self, task: Task) -> None:
        self.steps = 0

    def step(self, trees) -> float:
        self.steps += 1
        return 0.0

    def loss(self, trees) -> float:
        return float(len(trees) + self.steps)

    def infer(self, trees):
        raise MemoryError("too small a pool")


@pytest.fixture
def ask(monkeypatch, tmp_path):
    toy = Peer("Toy", lambda: "7", lambda: [Variant("a", Toy), Variant("b", Toy, batched=False)])
    monkeypatch.setitem(worker.PEERS, "toy", toy)
    trees = random_trees(0, [2, 3, 4])
    file = tmp_path / "task.npz"
    Task(2, random_parameters(1, 2, 9), [trees, trees[:1]]).save(file)

    def ask(*commands):
        answers = io.StringIO()
        lines = [{"do": "setup", "file": str(file), "variants": ["a", "b"]}, *commands]
        worker.serve("toy", io.StringIO("".join(json.dumps(line) + "\n" for line in lines)), answers)
        return [json.loads(line) for line in answers.getvalue().splitlines()]

    return ask


def test_a_failure_is_an_answer(ask) -> None:
    """And the next command is answered too."""
    found = ask({"do": "infer", "variant": "a", "batches": [0]}, {"do": "loss", "variant": "a", "batch": 0})
    assert found[2] == {"failed": "MemoryError: too small a pool"}
    assert found[3] == {"loss": 3.0}


def test_the_peak_is_that_of_the_process() -> None:
    """And stays when what was held is gone; a process does not inherit it."""
    code = (
        "from benchmarks.worker import peak_memory as peak; before = peak(); "
        "held = b'x' * 64_000_000; del held; print(before, peak())"
    )
    mine = bytearray(b"x" * 300_000_000)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before < 200_000_000 < len(mine)
    assert 60_000_000 < after - before < 70_000_000
