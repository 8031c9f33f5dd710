"""Worker processes: results of all parts, failures in their places, and no worker left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest

from foldbatch import workers
from foldbatch.errors import BackendError
from foldbatch.workers import FAILED, in_processes

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


@pytest.mark.parametrize(("parts", "processes"), [(0, 2), (1, 2), (7, 1), (7, 3)])
def test_every_part_is_done_once(parts, processes):
    assert list(in_processes(lambda n: [n] * n, parts, processes)) == [[n] * n for n in range(parts)]


def test_results_come_in_order_also_when_a_worker_is_late():
    def work(number):
        time.sleep(0.1 * (number == 0))
        return number

    assert list(in_processes(work, 4, 2)) == [0, 1, 2, 3]


def test_parts_are_shared_by_other_processes():
    owners = list(in_processes(lambda _: os.getpid(), 6, 2))
    assert os.getpid() not in owners
    assert owners[0] == owners[2] == owners[4] != owners[1] == owners[3] == owners[5]


def test_a_part_that_raises_or_cannot_be_sent_has_failed_and_the_others_come():
    def work(number):
        if number == 1:
            raise KeyboardInterrupt
        return (lambda: None) if number == 2 else number

    assert list(in_processes(work, 4, 2)) == [0, FAILED, FAILED, 3]


@pytest.mark.parametrize(
    ("end", "how"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "signal SIGKILL"),
        (lambda: os._exit(0), "exit status 0"),
    ],
)
def test_a_worker_that_ends_too_early_is_an_error(end, how):
    with pytest.raises(
        BackendError, match=f"worker process: expected one that does its work.*{how}.*processes=1"
    ):
        list(in_processes(lambda number: end() if number == 3 else number, 6, 2))


def test_workers_end_when_the_iterator_is_closed():
    with closing(in_processes(lambda n: (os.getpid(), n and time.sleep(60)), 2, 2)) as results:
        pid, _ = next(results)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


INTERRUPTED = """
import os, signal, time
from foldbatch.workers import in_processes
def work(number):
    if number == 1:
        time.sleep(0.3)  # while Python forks, it loses interrupts
        os.kill(os.getppid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)  # as a terminal does
        time.sleep(60)
    return os.getpid()
pids = []
try:
    for pid in in_processes(work, 3, 2):
        pids.append(pid)
except KeyboardInterrupt:
    print("interrupted", *pids)
"""


def test_an_interrupt_ends_the_workers():
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    word, *pids = done.stdout.split()
    assert (word, done.stderr) == ("interrupted", "")
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_a_worker_has_no_workers():
    assert list(in_processes(lambda _: (workers.can_fork(), workers.forks_safely()), 1, 1)) == [
        (False, False)
    ]


def test_forking_beside_other_threads_is_no_warning():
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        assert list(in_processes(abs, 2, 2)) == [0, 1]
    finally:
        ended.set()
        thread.join()


def test_workers_are_not_started_unasked_outside_the_main_thread(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.main_thread()])
    safely = [workers.forks_safely()]
    thread = threading.Thread(target=lambda: safely.append(workers.forks_safely()))
    thread.start()
    thread.join()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert [*safely, workers.forks_safely()] == [True, False, False]


@pytest.mark.parametrize(("name", "safe"), [("foldbatch-helper", True), ("reader", False)])
def test_no_workers_are_started_unasked_beside_threads_of_others(name, safe, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    other = threading.Thread(name=name)
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.main_thread(), other])
    assert workers.forks_safely() == safe
