"""Two real processes of mpiexec."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("mpi4py", reason="needs MPI: pip install -e '.[mpi]'")

from foldbatch.communicators import Alone
from foldbatch.communicators.mpi import _end_all_with_an_error
from foldbatch.errors import ProcessError
from tests.commands.conftest import TINY
from tests.communicators.work import assert_trained, fitted
from tests.kills import kill_ranks
from tests.recipes.conftest import NEGATIVE, NEUTRAL, POSITIVE

ROOT = Path(__file__).parents[2]
MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
pytestmark = pytest.mark.skipif(MPIEXEC is None, reason="needs mpiexec: pip install -e '.[mpi]'")


def mpiexec(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FOLDBATCH_BACKEND": "numpy"}
    command = [MPIEXEC, "-n", "2", sys.executable, "-m", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_two_processes_train_as_one_and_end_together(tmp_path):
    """The launcher kills all where one is killed; the checkpoint of the last step is there."""
    ended = mpiexec("tests.communicators.work", str(tmp_path))
    assert ended.returncode != 0 and "Traceback" not in ended.stderr, ended.stderr
    assert not (tmp_path / "killed-1.txt").exists()
    alone, _ = fitted(Alone())
    assert_trained(tmp_path, alone)


def test_the_command_trains_in_all_processes_and_one_speaks(tmp_path):
    for part in ("train", "dev", "test"):
        (tmp_path / f"{part}.txt").write_text("\n".join([POSITIVE, NEGATIVE, NEUTRAL] * 2) + "\n")
    given = ["--data.folder", str(tmp_path), "--folder", str(tmp_path / "run"), "--no-gain"]
    done = mpiexec("foldbatch", "train", *TINY, *given)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("6 examples to train on") == 1 and done.stdout.count("model: ") == 1
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "checkpoints", "configuration.toml", "epochs.csv", "figures.json", "model.safetensors",
    ]  # fmt: skip
    assert len((tmp_path / "run" / "epochs.csv").read_text().splitlines()) == 2
    again = mpiexec("foldbatch", "train", *TINY, *given)  # refused, once
    assert again.returncode != 0 and again.stderr.count("error: ") == 1, again.stderr
    assert "expected a folder without a run" in again.stderr


def test_an_error_that_nobody_catches_ends_all_ranks():
    """Also outside of a training, where others wait for the rank in an exchange."""
    ended = mpiexec("tests.communicators.failing", "error")
    assert ended.returncode not in (0, 124)
    assert ended.stderr.count("RuntimeError: mine") == 1 and "went on" not in ended.stdout


@pytest.mark.parametrize(
    ("error", "aborted"),
    [(ValueError("mine"), 1), (KeyboardInterrupt(), 1), (ProcessError("rank 1", "a process", "none"), 0)],
)
def test_an_error_that_leaves_a_program_is_printed_before_all_are_ended(error, aborted, monkeypatch):
    """One that all ranks know of ends them anyway, when rank 0 has written its checkpoint."""
    calls = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, traceback: calls.append(error))
    _end_all_with_an_error(SimpleNamespace(Abort=calls.append))
    sys.excepthook(type(error), error, None)
    assert calls == [error] + [1] * aborted


def test_a_kill_of_one_rank_ends_both_and_loses_nothing(tmp_path):
    assert kill_ranks(MPIEXEC, tmp_path, 1)[0] == 1
