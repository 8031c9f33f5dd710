"""Groups of torch.distributed: ranks that are lost, and groups that the program has made."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event
from unittest.mock import Mock

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")

import torch.distributed as dist

from foldbatch.communicators import finding, share
from foldbatch.communicators.communicator import leave
from foldbatch.communicators.distributed import TorchCommunicator, _group_of_all, _leave
from foldbatch.errors import BackendError, ProcessError
from tests.communicators.threads import by_gloo


def answers(work, size=3, seconds=60):
    """What each rank's work returns, or the error that it raises; nobody is told of another one's."""
    connected = by_gloo(size, seconds)

    def run(rank):
        try:
            return work(connected(rank))
        except ProcessError as error:
            return str(error)

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, range(size)))


def test_large_parts_of_unlike_sizes_arrive():
    sizes = [5_000_001, 0, 1]

    def work(communicator):
        own = np.full(2 * sizes[communicator.rank], communicator.rank, np.uint8)[::2]
        own.flags.writeable = False
        gathered = communicator.all_gather(own)
        return [(len(part), set(part.tolist())) for part in gathered]

    assert answers(work) == [[(5_000_001, {0}), (0, set()), (1, {2})]] * 3


@pytest.mark.parametrize("length", [0, 1, 1015, 1016, 1017, 3000])
def test_lengths_about_that_of_a_first_message_arrive(length):
    def work(communicator):
        own = np.arange(length * (communicator.rank + 1)).astype(np.uint8)
        return [part.tolist() for part in communicator.all_gather(own)]

    expected = [np.arange(length * (rank + 1)).astype(np.uint8).tolist() for rank in range(2)]
    assert answers(work, 2) == [expected] * 2


def test_a_rank_that_aborts_says_why_to_all():
    def work(communicator):
        if communicator.rank == 2:
            communicator.abort("no memory")
        return share(communicator, None)

    told = "rank 2: expected a process that goes on, found no memory; go on from the last checkpoint"
    own = "rank 2 of 3: expected all processes to go on, found no memory; look at what the others say"
    assert answers(work) == [told, told, own]


def test_a_rank_that_vanishes_is_noticed_by_all_though_some_wait_for_each_other():
    """As when it is killed. The first exchange and those that follow fail, at once."""
    gone = Event()

    def work(communicator):
        if communicator.rank == 2:
            communicator._close()
            gone.set()
            return None
        gone.wait()
        for _ in range(2):
            with pytest.raises(
                ProcessError, match=r"rank . of 3: expected 3 processes, found one that has ended"
            ):
                communicator.all_gather(np.zeros(9, np.uint8))
        return leave(communicator)

    assert answers(work) == [None] * 3


def test_a_rank_that_does_not_answer_is_waited_for_as_long_as_the_group_says():
    late = Event()

    def work(communicator):
        if communicator.rank == 1:
            late.wait(20)
            return None
        try:
            return share(communicator, None)
        finally:
            late.set()

    found = "rank 0 of 2: expected 2 processes, found one that does not answer within the group's timeout"
    first, second = answers(work, 2, seconds=0.5)
    assert first.startswith(found) and second is None


def test_who_ends_after_an_error_waits_till_rank_0_has_said_it():
    order = []

    def work(communicator):
        if communicator.rank == 0:
            share(communicator, None)
            order.append("first")
            return communicator._close()
        share(communicator, None)
        communicator.wait_for_first()
        return order.append("second")

    answers(work, 2)
    assert order == ["first", "second"]

    assert answers(lambda communicator: communicator.wait_for_first(0.1), 2) == [None] * 2  # not for ever


@pytest.fixture
def group():
    """A group that the program has made: of this process alone, as one process of several is not to be had."""
    dist.init_process_group(
        "gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=77)
    )
    yield dist.group.WORLD
    if dist.is_initialized():
        dist.destroy_process_group()


def test_a_group_of_the_program_is_left_to_it_and_says_how_long_to_wait(group):
    communicator = TorchCommunicator()
    assert communicator._group is not group
    backend = communicator._group._get_backend(dist.torch.device("cpu"))
    assert backend.options._timeout == timedelta(seconds=77)
    assert communicator._store is not None
    with pytest.raises(ProcessError, match="rank 0 of 1: expected all processes to go on, found mine"):
        communicator.abort("mine")
    communicator._close()
    assert dist.is_initialized()
    dist.barrier()


def test_nobody_waits_at_the_end_for_a_group_that_the_program_has_ended(group, monkeypatch):
    communicator = TorchCommunicator()
    calls = []
    monkeypatch.setattr("foldbatch.communicators.distributed.leave", calls.append)
    _leave(communicator)
    assert calls == [communicator]
    dist.destroy_process_group()
    _leave(communicator)
    assert calls == [communicator]


def test_processes_that_cannot_be_connected_are_refused(monkeypatch):
    unreachable = Mock(side_effect=dist.DistNetworkError("no route\nat"))
    monkeypatch.setattr(dist, "rendezvous", unreachable)
    said = r"connects the 2 processes .* found none \(no route\); look at what"
    with pytest.raises(BackendError, match=said):
        finding._by_torch(2)


def test_each_attempt_of_torchrun_has_keys_of_its_own(monkeypatch):
    """Else a rank might look for others where these were before they were ended."""
    whole, groups = dist.HashStore(), []
    monkeypatch.setattr(dist, "rendezvous", lambda url: iter([(whole, 0, 2)]))
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **given: groups.append(given["store"]))
    monkeypatch.setattr(dist, "new_group", lambda **given: None)
    for machines, attempt in (("1", "0"), ("1", "1"), ("2", "0"), ("2", "1")):
        monkeypatch.setenv("GROUP_WORLD_SIZE", machines)
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", attempt)
        _group_of_all()
    first, second, *others = groups
    first.set("address", "there")
    assert not second.check(["address"]) and not whole.check(["address"])
    assert others == [whole, whole]  # each machine counts its attempts for itself
