"""Forks, locks, cores, and calls deeper than Python's limit."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

import foldbatch as fb
from foldbatch.engines.threads import in_threads
from foldbatch.errors import BackendError, TrainingError
from foldbatch.system import cores, files, processes
from foldbatch.system.files import locked
from foldbatch.system.processes import in_depth
from tests.backends import LLVM

PROGRAM = """
import multiprocessing as mp, threading
import foldbatch as fb
from foldbatch.engines import threads
threads.CALLS_PER_PART = threads.MULTIPLICATIONS_PER_PART = 1

def compiled():
    block = fb.Map(fb.Vector(2) >> fb.Linear(2)) >> fb.Sum() >> fb.Function(lambda x: fb.ops.sum(x)) >> fb.Loss()
    return fb.compile(block, "numpy", threads=2)

BATCH = [[[1, 2], [3, 4]]] * 4

def child(queue, program):
    queue.put((program.value_and_grad(BATCH)[0], program.jvp(BATCH, {})[0]))

if __name__ == "__main__":
    program = compiled()
    loss = program.value_and_grad(BATCH)[0]
    program.jvp(BATCH, {})
    started, ended = threading.Event(), threading.Event()
    def hold():  # the locks, as a thread that is in the middle of a batch
        locks = program._runner._lock, program._ready.derivatives._lock, program._ready.traces._lock
        with locks[0], locks[1], locks[2], threads.single_threaded_blas():
            started.set()
            ended.wait()
    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    started.wait()
    context = mp.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue, program), daemon=True)
    process.start()
    print(queue.get(timeout=60) == (loss, loss))
    process.join()
    ended.set()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_program_runs_in_a_child_while_threads_of_the_parent_hold_its_locks(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_what_has_been_freed_is_not_started():
    class Owner:
        pass

    starts: list[Owner] = []
    kept, dropped = Owner(), Owner()
    for owner in (kept, dropped):
        processes.start_in_each_process(owner, starts.append)
    assert starts == [kept, dropped]
    starts.clear()
    del owner, dropped
    ours = dict(processes._STARTS)
    try:
        processes._STARTS.clear()
        processes._STARTS.update({key: start for key, start in ours.items() if isinstance(key, Owner)})
        processes._start_all()
    finally:
        processes._STARTS.update(ours)
    assert starts == [kept]


HOLD = """
import sys, time
from pathlib import Path
from foldbatch.system.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_another_process_is_refused_until_the_first_is_dead(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with (
            pytest.raises(TrainingError, match="a folder that no other training writes to"),
            locked(tmp_path),
        ):
            pass
        other.send_signal(signal.SIGKILL)
        other.wait()
        with locked(tmp_path):
            assert [path.name for path in tmp_path.iterdir()] == [files.LOCK]
    with locked(tmp_path):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_forked_process_does_not_hold_it_on(tmp_path):
    reader, writer = os.pipe()
    with locked(tmp_path):
        child = os.fork()
        if child == 0:
            os.close(writer)
            os.read(reader, 1)  # lives until it is told
            os._exit(0)
    with locked(tmp_path):
        os.write(writer, b"x")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_where_there_are_no_locks_nothing_is_locked(tmp_path, monkeypatch):
    def refuse(number):
        def flock(handle, how):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(fcntl, "flock", flock)

    refuse(errno.ENOLCK)
    with locked(tmp_path), locked(tmp_path):
        pass
    refuse(errno.EIO)
    with pytest.raises(OSError, match="Input/output"), locked(tmp_path):
        pass
    with pytest.raises(FileNotFoundError), locked(tmp_path / "none"):
        pass


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of that of control groups, and 64 cores."""
    monkeypatch.setattr(cores, "CONTROL", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    monkeypatch.delenv(cores.VARIABLE, raising=False)
    monkeypatch.setattr(cores, "quota", cores.quota.__wrapped__)
    return tmp_path


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({}, 64),
        ({"cpu.max": "max 100000\n"}, 64),
        ({"cpu.max": "250000 100000\n"}, 3),
        ({"cpu.max": "10000 100000\n"}, 1),
        ({"cpu.max": "nonsense"}, 64),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 64),
        ({"cpu/cpu.cfs_quota_us": "800000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
    ],
)
def test_a_quota_bounds_the_cores(control: Path, files: dict[str, str], count: int) -> None:
    for name, text in files.items():
        (control / name).parent.mkdir(exist_ok=True)
        (control / name).write_text(text, encoding="utf-8")
    assert cores.available_cores() == count


def test_the_variable_decides(control: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cores.VARIABLE, "5")
    assert fb.compile(fb.Scalar(), "numpy").options.threads == 5
    assert fb.compile(fb.Scalar(), "numpy", threads=2).options.threads == 2
    for wrong in ("0", "-1", "many", "1.5", "²"):
        monkeypatch.setenv(cores.VARIABLE, wrong)
        with pytest.raises(BackendError, match="FOLDBATCH_THREADS: expected a number of threads, 1 or more"):
            fb.compile(fb.Scalar(), "numpy")


def test_parts_stay_on_nodes_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()
    if len(before) < 2:
        pytest.skip("this process may use one core")
    first, *others = sorted(before)
    for node, text in enumerate((f"{first}", ",".join(f"{core}-{core}" for core in others), "")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(text + "\n", encoding="utf-8")
    monkeypatch.setattr(cores, "NODES", tmp_path)
    monkeypatch.setattr(cores, "nodes", cores.nodes.__wrapped__)
    with ThreadPoolExecutor(1) as pool:
        found = in_threads(pool, [lambda: os.sched_getaffinity(0)] * 3)
        assert found == [{first}, set(others), {first}]
        with pytest.raises(ZeroDivisionError):
            in_threads(pool, [lambda: 1 // 0] * 2)
        assert os.sched_getaffinity(0) == before == pool.submit(os.sched_getaffinity, 0).result()


DEEP = 0.0
for _ in range(3000):
    DEEP = (1.0, DEEP)


@fb.cell
def add(x, rest):
    return x + rest


def walk(part):
    return add(part[0], walk(part[1])) if isinstance(part, tuple) else add(part, 0.0)


def block():
    total = fb.ForwardDeclaration(output_type="float32")
    pair = fb.Record((fb.Scalar(), total())) >> fb.Function(fb.ops.add)
    total.resolve_to(fb.OneOf(lambda part: isinstance(part, tuple), {False: fb.Scalar(), True: pair}))
    return total()


@pytest.mark.parametrize("model", [lambda: walk, block])
def test_no_room_for_a_stack_is_told_and_python_keeps_its_limit(model, monkeypatch):
    program, before = fb.compile(model(), "numpy"), sys.getrecursionlimit()

    none = Mock(side_effect=RuntimeError("can't start new thread"))
    monkeypatch.setattr("_thread.start_new_thread", none)
    for _ in range(2):
        with pytest.raises(BackendError, match=r"^deep calls: expected 1 GiB .* ulimit -v"):
            program.run([DEEP])
    assert sys.getrecursionlimit() == before
    monkeypatch.undo()
    assert program.run([DEEP])[0] == 3000


@pytest.fixture
def raising():
    """Let a signal raise a TimeoutError."""

    def handler(*_):
        raise TimeoutError

    former = signal.signal(signal.SIGUSR1, handler)
    yield
    signal.signal(signal.SIGUSR1, former)


@pytest.mark.usefixtures("raising")
def test_a_handler_that_raises_breaks_off_what_runs_deep():
    """Else it would be deeper than Python's limit, which ends the process."""
    turns, before = [0], sys.getrecursionlimit()

    def endless():
        while True:
            turns[0] += 1
            if turns[0] == 1000:
                os.kill(os.getpid(), signal.SIGUSR1)

    with pytest.raises(TimeoutError):
        in_depth(endless, 10**5)
    assert sys.getrecursionlimit() == before
    count = turns[0]
    time.sleep(0.05)
    assert turns[0] == count


@pytest.mark.usefixtures("raising")
@pytest.mark.parametrize("backend", ["numpy", *LLVM])
def test_a_program_runs_again_after_a_deep_walk_was_broken_off(backend):
    def slow(part):
        if part == "slow":
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.2)
            return 0.0
        return add(part[0], slow(part[1])) if isinstance(part, tuple) else add(part, 0.0)

    program, deep = fb.compile(slow, backend), "slow"
    for _ in range(3000):
        deep = (1.0, deep)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            program.run([deep])
        assert program.run([DEEP, (2.0, 1.0)]) == [3000, 3]
