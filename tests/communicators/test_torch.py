"""Two real processes over gloo, started as torchrun starts them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")

from foldbatch.communicators import Alone
from tests.communicators.work import assert_trained, fitted

ROOT = Path(__file__).parents[2]


def test_two_processes_train_as_one_and_one_that_is_killed_is_missed(tmp_path):
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = str(probe.getsockname()[1])
    given = {**os.environ, "PYTHONPATH": str(ROOT), "FOLDBATCH_BACKEND": "numpy", "OMP_NUM_THREADS": "1"}
    given |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    command = [sys.executable, "-m", "tests.communicators.work", str(tmp_path)]
    ranks = [
        subprocess.Popen(
            command, cwd=ROOT, env={**given, "RANK": str(rank)}, stderr=subprocess.PIPE, text=True
        )
        for rank in (0, 1)
    ]
    errors = [process.communicate(timeout=120)[1] for process in ranks]
    assert [process.returncode for process in ranks] == [0, -9], errors
    assert_trained(tmp_path, fitted(Alone())[0])
    message = (tmp_path / "killed-0.txt").read_text()
    assert message.startswith("rank 0 of 2: expected 2 processes, found one that has ended; go on from ")
    assert message.endswith(f"{tmp_path / 'killed' / 'last.safetensors'} with resume=True, or --resume")


def test_a_group_of_ours_ends_before_python_does_and_one_of_the_user_is_left(tmp_path):
    """Else its threads would abort the process, now and then, and torchrun would report a failure."""
    code = """
import atexit, sys
from torch import distributed
make, own = distributed.init_process_group, {"rank": 0, "world_size": 1}
distributed.init_process_group = lambda backend: make(backend, **own, init_method="file://" + sys.argv[1])
from foldbatch.communicators.torch import TorchCommunicator
assert TorchCommunicator().size == 1
atexit._run_exitfuncs()
assert not distributed.is_initialized()
make("gloo", **own, init_method="file://" + sys.argv[2])
assert TorchCommunicator().size == 1
atexit._run_exitfuncs()
assert distributed.is_initialized()
"""
    command = [sys.executable, "-c", code, str(tmp_path / "ours"), str(tmp_path / "own")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
