"""What launchers set is recognised, and a training is refused where processes would not know of each other."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from foldbatch.communicators import communicator, find
from foldbatch.errors import BackendError


@pytest.fixture
def environment(monkeypatch):
    for name in (*communicator.TORCHRUN, *communicator.SIZES):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ("", 1)),
        ({"PMI_RANK": "1", "PMI_SIZE": "4"}, ("mpi", 4)),
        ({"OMPI_COMM_WORLD_SIZE": "3"}, ("mpi", 3)),
        ({"SLURM_STEP_NUM_TASKS": "2"}, ("mpi", 2)),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "here", "SLURM_STEP_NUM_TASKS": "8"}, ("torch", 2)),
        ({"RANK": "0", "WORLD_SIZE": "2"}, ("", 1)),  # names that many programs use
        ({"PMI_SIZE": ""}, ("", 1)),
    ],
)
def test_launchers(environment, expected):
    assert communicator.launched(environment) == expected


@pytest.mark.parametrize(
    ("variables", "library"),
    [({"PMI_SIZE": "2"}, "mpi4py"), ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}, "torch")],
)
def test_without_the_library_nobody_trains(environment, variables, library):
    for name, value in variables.items():
        environment.setenv(name, value)
    environment.setitem(sys.modules, library, None)
    environment.delitem(sys.modules, "foldbatch.communicators.mpi", raising=False)
    environment.delitem(sys.modules, "foldbatch.communicators.torch", raising=False)
    with pytest.raises(BackendError, match=rf"expected {library}, which connects the 2 .*pip install"):
        find()


def test_a_group_that_is_there_already_is_used_whatever_the_environment_says(environment):
    """The processes of torch.multiprocessing.spawn have no RANK; else each would train alone."""

    class Group:
        size = 3

    torch = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, get_world_size=lambda: 3)
    environment.setitem(sys.modules, "torch.distributed", torch)
    ours = SimpleNamespace(TorchCommunicator=Group)
    environment.setitem(sys.modules, "foldbatch.communicators.torch", ours)
    assert isinstance(find(), Group)


def test_an_environment_that_torchrun_did_not_set_is_refused(environment):
    pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}.items():
        environment.setenv(name, value)
    environment.delenv("MASTER_PORT", raising=False)
    with pytest.raises(BackendError, match="MASTER_PORT"):
        find()


@pytest.mark.filterwarnings("ignore:suspicious MPI")  # mpi4py says so too, and goes on
def test_an_mpi_of_another_launcher_is_refused(environment):
    """Each process would be alone, and overwrite what the others write."""
    pytest.importorskip("mpi4py", reason="needs MPI: pip install -e '.[mpi]'")
    environment.setenv("OMPI_COMM_WORLD_SIZE", "2")
    with pytest.raises(BackendError, match="expected 2 processes, found 1 that know of each other; start"):
        find()


def test_importing_foldbatch_imports_no_library():
    code = "import sys, foldbatch; print({'mpi4py', 'torch'} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "set()\n"
