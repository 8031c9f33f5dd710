"""Forked and spawned processes: what was used by threads of the parent works in the child."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from foldbatch.system import processes

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
