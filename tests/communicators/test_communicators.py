"""Processes that a launcher started find each other, and share what they have."""

import os
import subprocess
import sys

import numpy as np
import pytest

from foldbatch.communicators import Alone, Communicator, cores, find, finding, share, together
from foldbatch.communicators.communicator import leave
from foldbatch.errors import BackendError, ProcessError
from tests.communicators.checks import check
from tests.communicators.threads import TRANSPORTS, in_threads, transport


@pytest.fixture(params=TRANSPORTS)
def connected(request):
    """Ranks are threads, of one transport or another."""
    before = transport.set(request.param)
    yield request.param
    transport.reset(before)


@pytest.fixture
def environment(monkeypatch):
    for name in (*finding.SIZES, *finding.TORCH):
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
    assert finding.launched(environment) == expected


def test_without_the_library_nobody_trains(environment):
    environment.setenv("PMI_SIZE", "2")
    environment.setitem(sys.modules, "mpi4py", None)
    environment.delitem(sys.modules, "foldbatch.communicators.mpi", raising=False)
    with pytest.raises(
        BackendError,
        match="expected mpi4py, which connects the 2 .*pip install.* or start them with torchrun",
    ):
        find()


@pytest.mark.filterwarnings("ignore:suspicious MPI")  # mpi4py says so too, and goes on
@pytest.mark.parametrize("launcher", ["OMPI_COMM_WORLD_SIZE", "WORLD_SIZE"])
def test_processes_that_mpi_does_not_connect_are_refused(environment, launcher):
    """Each process would be alone, and overwrite what the others write. WORLD_SIZE alone connects nobody."""
    pytest.importorskip("mpi4py", reason="needs MPI: pip install -e '.[mpi]'")
    environment.setenv(launcher, "2")
    said = r"expected 2 processes, found 1 that know of each other; start .* \(under .*\), or start them with torchrun"
    with pytest.raises(BackendError, match=said):
        find()


TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("variables", "grouped", "installed", "expected"),
    [
        (TORCHRUN, 1, True, ("torch", 2)),
        (TORCHRUN, 1, False, ("mpi", 2)),  # which refuses them, or mpiexec has started them
        (TORCHRUN | {"MASTER_PORT": ""}, 1, True, ("mpi", 2)),
        (TORCHRUN | {"SLURM_STEP_NUM_TASKS": "4"}, 1, True, ("torch", 2)),  # srun torchrun
        (TORCHRUN | {"WORLD_SIZE": "1", "PMI_SIZE": "3"}, 1, True, ("mpi", 3)),
        ({"PMI_SIZE": "4"}, 1, True, ("mpi", 4)),
        ({"PMI_SIZE": "4"}, 8, True, ("torch", 8)),
        ({}, 8, True, ("torch", 8)),
    ],
)
def test_which_library_connects_the_processes(environment, variables, grouped, installed, expected):
    """A group that the program has made counts first, then torchrun, then MPI's launchers."""
    for name, value in variables.items():
        environment.setenv(name, value)
    environment.setattr(finding, "_grouped", lambda: grouped)
    environment.setattr(finding, "find_spec", lambda name: installed)
    environment.setattr(finding, "_by_torch", lambda size: ("torch", size))
    environment.setattr(finding, "_by_mpi", lambda size: ("mpi", size))
    assert find() == expected


def test_importing_foldbatch_imports_no_library():
    code = "import sys, foldbatch; print({'mpi4py', 'torch'} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "set()\n"


def test_all_ranks_learn_of_an_error_and_none_waits(connected):
    def work(communicator):
        try:
            with together(communicator), together(communicator):  # the inner one tells
                share(communicator, None)
                if communicator.rank == 1:
                    raise ValueError("broken")
                share(communicator, None)
        except (ValueError, ProcessError) as error:
            return type(error).__name__, str(error)

    answers = in_threads(work, 3)
    assert answers[1] == ("ValueError", "broken")
    assert answers[0] == answers[2]
    assert answers[0][1].startswith("rank 1: expected a process that goes on, found ValueError: broken")


def test_ranks_that_fail_together_raise_their_own_errors(connected):
    def work(communicator):
        with pytest.raises(KeyError) as error, together(communicator):
            raise KeyError(communicator.rank)
        return error.value.args

    assert in_threads(work, 3) == [(0,), (1,), (2,)]


def test_an_error_after_one_that_all_ranks_know_of_is_not_told(connected):
    """Else its rank would wait for ranks that have left: the disk is full when a checkpoint is to be written."""

    def work(communicator):
        with together(communicator):
            try:
                with together(communicator):
                    if communicator.rank == 1:
                        raise ValueError("broken")
                    share(communicator, None)
            except ProcessError:
                raise OSError("full") from None  # with nobody to listen

    with pytest.raises((ValueError, OSError)) as error:
        in_threads(work, 2)
    assert not hasattr(error.value, "__notes__")


def test_an_error_of_a_second_try_is_told_again(connected):
    def work(communicator):
        for attempt in ("first", "second"):
            try:
                with together(communicator):
                    if communicator.rank == 1:
                        raise ValueError(attempt)
                    share(communicator, None)
            except (ValueError, ProcessError) as error:
                if attempt == "second":
                    return str(error)
                try:
                    with together(communicator):
                        if communicator.rank == 1:
                            raise ValueError("within")
                        share(communicator, None)
                except (ValueError, ProcessError) as other:
                    assert "within" in str(other)
        return None

    assert "found ValueError: second" in in_threads(work, 2)[0]


def test_a_rank_that_leaves_tells_those_who_wait_and_nobody_waits_for_ranks_that_know(connected):
    def work(communicator):
        if communicator.rank == 1:
            return leave(communicator)
        with pytest.raises(ProcessError, match="rank 1: .* found one that has ended"):
            share(communicator, None)
        return leave(communicator)  # nobody is there any more

    assert in_threads(work, 3) == [None] * 3
    assert in_threads(leave, 3) == [None] * 3  # all end


def test_ranks_of_one_machine_share_its_cores(connected, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert cores(Alone()) == 8
    assert in_threads(cores, 3) == [2, 2, 2]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    assert in_threads(cores, 2) == [1, 1]


def test_the_error_of_a_rank_is_raised_not_those_that_it_caused(connected):
    def work(communicator):
        if communicator.rank == 2:
            raise KeyError("a word")
        communicator.all_gather(np.zeros(1, np.uint8))

    with pytest.raises(KeyError, match="a word"):
        in_threads(work, 3)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_ranks_exchange_bytes_in_the_order_of_ranks(connected, size):
    in_threads(check, size)
    communicator: Communicator = Alone()
    check(communicator)
