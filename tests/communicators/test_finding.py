"""What launchers set is recognised, and a training is refused where processes would not know of each other."""

import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import pytest

from foldbatch.communicators import communicator, find
from foldbatch.errors import BackendError


@pytest.fixture
def environment(monkeypatch):
    for name in communicator.SIZES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, 1),
        ({"PMI_RANK": "1", "PMI_SIZE": "4"}, 4),
        ({"OMPI_COMM_WORLD_SIZE": "3"}, 3),
        ({"SLURM_STEP_NUM_TASKS": "2"}, 2),
        ({"PMI_SIZE": ""}, 1),
        ({"PMI_SIZE": "²"}, 1),
    ],
)
def test_launchers(environment, expected):
    assert communicator.launched(environment) == expected


def test_without_the_library_nobody_trains(environment):
    environment.setenv("PMI_SIZE", "2")
    environment.setitem(sys.modules, "mpi4py", None)
    environment.delitem(sys.modules, "foldbatch.communicators.mpi", raising=False)
    with pytest.raises(BackendError, match="expected mpi4py, which connects the 2 .*pip install"):
        find()


@pytest.mark.filterwarnings("ignore:suspicious MPI")  # mpi4py says so too, and goes on
@pytest.mark.parametrize("launcher", ["OMPI_COMM_WORLD_SIZE", "WORLD_SIZE", "torch.distributed"])
def test_processes_that_mpi_does_not_connect_are_refused(environment, launcher):
    """Each process would be alone, and overwrite what the others write."""
    pytest.importorskip("mpi4py", reason="needs MPI: pip install -e '.[mpi]'")
    if launcher == "torch.distributed":
        yes = partial(bool, 1)
        group = SimpleNamespace(is_available=yes, is_initialized=yes, get_world_size=partial(int, 2))
        environment.setitem(sys.modules, launcher, group)
    else:
        environment.setenv(launcher, "2")
    with pytest.raises(BackendError, match="expected 2 processes, found 1 that know of each other; start"):
        find()


def test_importing_foldbatch_imports_no_library():
    code = "import sys, foldbatch; print({'mpi4py', 'torch'} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "set()\n"
