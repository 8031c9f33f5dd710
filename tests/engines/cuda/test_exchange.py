"""Ranks that each have a device add their gradients there: gloo on the CPU stands for NCCL."""

from threading import Event
from unittest.mock import MagicMock, Mock, patch

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")

import foldbatch as fb
from foldbatch.communicators import distributed
from foldbatch.communicators.distributed import TorchCommunicator
from foldbatch.engines.cuda.device import Device, DeviceArray
from foldbatch.engines.cuda.updates import DeviceUpdates
from foldbatch.errors import ParameterError, ProcessError
from foldbatch.params.parameters import SparseRows
from foldbatch.train import DataParallel
from foldbatch.train.parallel import DENSE, meeting_place, summed
from tests.backends import lacking
from tests.communicators.launchers import launched
from tests.communicators.on_devices import MODEL
from tests.communicators.threads import in_threads, transport
from tests.engines.cuda import on_cpu
from tests.engines.cuda.checked import Asked, late
from tests.engines.cuda.emulated import gpu_answers
from tests.engines.cuda.emulator import Emulator

pytestmark = pytest.mark.skipif(bool(lacking("cuda-on-cpu")), reason=lacking("cuda-on-cpu"))
SHAPES = {
    "first": (7, 5),
    "empty": (0, 3),
    "scale": (),
    "last": (2,),
}  # 38 numbers, which 3 ranks cannot share
SIZE = 3


@pytest.fixture(autouse=True)
def connected():
    before = transport.set("gloo")
    yield
    transport.reset(before)


def gradients_of(rank, dtype="float32"):
    """Numbers whose sum depends on the order in which they are added."""
    rng = np.random.default_rng(10 + rank)
    return {
        name: (rng.normal(size=shape) * 10.0 ** (3 * rank)).astype(dtype) for name, shape in SHAPES.items()
    }


def counts(gradients):
    return [(DENSE,) * len(gradients)] * SIZE


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("order", ["late", "mixed"])
def test_sums_have_the_bits_of_those_on_the_host(dtype, order):
    """In the order of ranks, also where slices have a gap; the driver copies none to the host."""

    def work(communicator):
        own = gradients_of(communicator.rank, dtype)
        driver = late(order)
        device = Device(driver)
        there = {name: device.put(array) for name, array in own.items()}
        there["last"] = own["last"]  # of a rank without an example it lies on the host
        begin = len(driver.calls)
        sums, sent = summed(communicator, there, counts(own), remote=DeviceUpdates(device))
        assert "copy_out" not in driver.enqueued(begin)
        assert all(isinstance(array, DeviceArray) for array in sums.values()) and list(sums) == list(own)
        return {name: np.asarray(array) for name, array in sums.items()}, sent

    def on_host(communicator):
        own = gradients_of(communicator.rank, dtype)
        return summed(communicator, own, counts(own))

    expected, _ = in_threads(on_host, SIZE)[0]
    for sums, sent in in_threads(work, SIZE):
        assert sent == 2 * 2 * 13 * np.dtype(dtype).itemsize
        for name, array in expected.items():
            np.testing.assert_array_equal(sums[name], array, strict=True)
            numbers = [gradients_of(rank, dtype)[name] for rank in range(SIZE)]
            np.testing.assert_array_equal(array, numbers[0] + numbers[1] + numbers[2])
    backwards = [gradients_of(rank, dtype)["first"] for rank in reversed(range(SIZE))]
    assert (expected["first"] != backwards[0] + backwards[1] + backwards[2]).any()


def test_rows_that_are_dense_at_one_rank_are_spread_on_the_device():
    """As of a table that a function reads whole in some examples; rows of the others visit no host."""
    rows, table = np.array([1, 4]), np.random.default_rng(2).normal(size=(6, 3)).astype(np.float32)

    def work(communicator):
        driver = Asked(Emulator())
        device, whole = Device(driver), communicator.rank == 1
        own = device.put(table) if whole else SparseRows(rows, device.put(table[rows]), table.shape)
        both = [(2,), (DENSE,), (2,)]
        sums, _ = summed(communicator, {"words": own}, both, remote=DeviceUpdates(device))
        assert "copy_out" not in driver.enqueued()
        return np.asarray(sums["words"])

    sparse = SparseRows(rows, table[rows], table.shape).dense()
    for result in in_threads(work, SIZE):
        np.testing.assert_array_equal(result, sparse + table + sparse)


def compiled(device, block=MODEL):
    """Return a program on a device of its own, with the numbers that others have in theirs."""
    with patch.object(on_cpu, "device", lambda: device):
        return fb.compile(block, "cuda-on-cpu", fresh=True, seed=3)


@pytest.mark.parametrize("launch", ["straight", "captured"])
def test_gradients_of_a_step_stay_on_the_device(launch, monkeypatch):
    """Neither they nor what the optimizer does with them is copied to the host, or from it; the loss is."""
    monkeypatch.setenv("FOLDBATCH_LAUNCH", launch)
    block = fb.Vector(20) >> fb.Linear(30) >> fb.Function(lambda x: fb.ops.mean(fb.ops.tanh(x))) >> fb.Loss()
    drivers = [Asked(Emulator()) for _ in range(2)]
    programs = [compiled(Device(driver), block) for driver in drivers]

    def work(communicator):
        program, driver = programs[communicator.rank], drivers[communicator.rank]
        parallel, optimizer = DataParallel(program, communicator), fb.Adam(0.1)
        examples = np.random.default_rng(5).normal(size=(4, 20)).astype(np.float32)
        for step in range(4):
            begin = len(driver.calls)
            _, gradients = parallel.value_and_grad(list(examples + step))
            optimizer.update(program.params, gradients)
            if step:
                copied = [call for call in driver.calls[begin:] if call[0] == "copy_out"]
                assert copied and max(arguments[0].nbytes for _, arguments in copied) < 100
                brought = [call for call in driver.calls[begin:] if call[0] == "copy_in"]
                assert max(arguments[1].nbytes for _, arguments in brought) < 20 * 30 * 4
        return {name: program.params[name] for name in program.params}

    first, second = in_threads(work, 2)
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])


@pytest.mark.slow
def test_training_on_devices_has_the_bits_of_training_by_way_of_the_host():
    """In two processes, which train as on two GPUs."""
    done = launched("torchrun", "tests.communicators.on_devices", "cuda-on-cpu")
    assert done.returncode == 0 and done.stdout.count("the same bits") == 2, done.stderr


@pytest.mark.gpu
def test_nccl_gives_the_bits_of_the_host():
    if not gpu_answers() or distributed.torch.cuda.device_count() < 2:
        pytest.skip("there are no two GPUs that PyTorch and CuPy see")
    done = launched("torchrun", "tests.communicators.on_devices", "cuda")
    assert done.returncode == 0 and done.stdout.count("the same bits") == 2, done.stderr


def test_gradients_visit_the_host_unless_each_rank_has_a_device_that_is_reached():
    shared, others = Device(Emulator()), [Device(Emulator()) for _ in range(SIZE)]

    def met(place):
        def work(communicator):
            own, gpu = place(communicator.rank)
            updates = None if own is None else DeviceUpdates(own)
            there = meeting_place(communicator, updates, gpu)
            assert there in (None, updates)
            return there is not None

        (alike,) = set(in_threads(work, SIZE))
        return alike

    assert met(lambda rank: (others[rank], ""))
    assert met(lambda rank: (others[rank], "abc"[rank]))
    assert not met(lambda rank: (others[rank], "aba"[rank]))  # NCCL refuses ranks that share a GPU
    assert not met(lambda rank: (shared, ""))  # each would wait for the other's lock
    assert not met(lambda rank: (others[rank] if rank else None, ""))
    transport.set("barrier")
    assert not met(lambda rank: (others[rank], ""))


def test_a_rank_that_vanishes_in_the_exchange_is_noticed():
    gone = Event()

    def work(communicator):
        if communicator.rank == 2:
            communicator._close()
            return gone.set()
        gone.wait()
        for _ in range(2):
            with pytest.raises(
                ProcessError, match="rank . of 3: expected 3 processes, found one that has ended"
            ):
                summed(
                    communicator,
                    gradients_of(0),
                    counts(gradients_of(0)),
                    remote=DeviceUpdates(Device(Emulator())),
                )
        return None

    in_threads(work, SIZE)


@pytest.fixture
def on_a_gpu(monkeypatch):
    """Let arrays be those of a GPU, as there is neither one nor NCCL; yield what is called."""
    calls = []
    monkeypatch.setattr(distributed, "_group_of_all", lambda: Mock(rank=lambda: 0, size=lambda: 1))
    monkeypatch.setattr(distributed, "_store_of_all", lambda: None)
    monkeypatch.setattr(distributed, "_timeout", lambda: "as long")
    monkeypatch.setattr(
        distributed.torch, "as_tensor", lambda array: Mock(is_cuda=True, device="cuda:1", of=array)
    )
    monkeypatch.setattr(distributed.torch.cuda, "ExternalStream", lambda *given: given)

    def entered(stream):
        manager = MagicMock()
        manager.__enter__.side_effect = lambda *_: calls.append(stream)
        manager.__exit__.side_effect = lambda *_: calls.append("left")
        return manager

    monkeypatch.setattr(distributed.torch.cuda, "stream", entered)

    class Group:
        def alltoall_base(self, target, source, target_sizes, source_sizes):
            calls.append(("all_to_all", target.of, source.of))
            return Mock(wait=lambda: calls.append("wait"))

        def _allgather_base(self, target, source):
            calls.append(("all_gather", target.of, source.of))
            return Mock(wait=lambda: calls.append("wait"))

        def abort(self):
            calls.append("abort")

    monkeypatch.setattr(distributed.dist, "new_group", lambda **given: calls.append(given) or Group())
    return calls


def test_arrays_of_a_gpu_go_by_one_group_of_nccl_on_the_stream_that_computes_them(on_a_gpu):
    """The calls alone; see `test_nccl_gives_the_bits_of_the_host`."""
    calls = on_a_gpu
    communicator = TorchCommunicator()
    communicator.all_to_all_there("target", "source", 77)
    communicator.all_gather_there("target", "source", 77)
    on_stream = [(77, "cuda:1")]
    assert calls == [
        {"backend": "nccl", "timeout": "as long"},
        *[*on_stream, ("all_to_all", "target", "source"), "wait", "left"],
        *[*on_stream, ("all_gather", "target", "source"), "wait", "left"],
    ]
    communicator._close()
    assert calls[-1] == "abort"


class Addressed(int):
    """A stream that has an address, as those of CuPy."""

    ptr = property(int)


def test_the_exchange_is_told_the_stream_that_computes_and_the_host_does_not_wait(monkeypatch):
    monkeypatch.setattr(Emulator, "stream", lambda self, made=Emulator.stream: Addressed(made(self)))

    def work(communicator):
        driver, streams = Asked(Emulator()), []
        device, exchange = Device(driver), communicator._exchange_there
        monkeypatch.setattr(
            communicator, "_exchange_there", lambda *given: streams.append(given[3]) or exchange(*given)
        )
        own = gradients_of(communicator.rank)
        summed(communicator, own, counts(own), remote=DeviceUpdates(device))
        assert streams == [device.stream.ptr] * 2
        return {name for name, _ in driver.calls}

    assert not any("synchronize" in called for called in in_threads(work, SIZE))


def test_who_cannot_connect_by_nccl_is_told_why_and_how_to_do_without(on_a_gpu, monkeypatch):
    def fail(**given):
        raise RuntimeError("NCCL error: duplicate GPU\nat")

    monkeypatch.setattr(distributed.dist, "new_group", fail)
    communicator = TorchCommunicator()
    found = "rank 0 of 1: expected NCCL to exchange gradients, found NCCL error: duplicate GPU; see what NCCL_DEBUG"
    with pytest.raises(ProcessError, match=found):
        communicator.all_gather_there("target", "source", 77)
    assert communicator._group is None


def test_a_group_that_was_given_reaches_no_gpu(monkeypatch):
    """It is gloo's, which copies to the host by itself."""
    monkeypatch.setattr(distributed.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(distributed.dist, "is_nccl_available", lambda: True)
    of_a_gpu = object()
    assert in_threads(lambda communicator: communicator.reaches(of_a_gpu), 2) == [False] * 2
    monkeypatch.setattr(distributed, "_group_of_all", lambda: Mock(rank=lambda: 0, size=lambda: 1))
    assert TorchCommunicator().reaches(of_a_gpu)


def test_the_group_of_nccl_is_ended_where_all_ranks_end(on_a_gpu, monkeypatch):
    ended = []
    monkeypatch.setattr(distributed.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed.dist, "destroy_process_group", ended.append)
    communicator = TorchCommunicator()
    communicator.all_gather_there("target", "source", 77)
    group = communicator._nccl
    distributed._leave(communicator)
    distributed._leave(communicator)
    assert ended == [group]


@pytest.mark.filterwarnings("ignore::foldbatch.errors.NotFiniteWarning")
def test_a_gradient_of_one_rank_that_is_not_finite_lets_no_rank_change_anything():
    """All ranks are told alike when they next read something, as one process is."""
    w = fb.Parameter([], init=2.0, name="w")
    block = fb.Scalar() >> fb.Function(lambda x: fb.ops.sqrt(w * x)) >> fb.Loss()
    programs = [compiled(Device(Emulator()), block) for _ in range(2)]

    def work(communicator):
        program = programs[communicator.rank]
        parallel, optimizer = DataParallel(program, communicator), fb.SGD(0.1)
        _, gradients = parallel.value_and_grad([1.0, 0.0])  # the root of 0 has no slope
        optimizer.update(program.params, gradients)
        with pytest.raises(ParameterError, match="w gradient: expected finite numbers"):
            parallel.program.params["w"]
        return float(program.params["w"])

    assert in_threads(work, 2) == [2.0, 2.0]
