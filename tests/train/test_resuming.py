"""200 SIGKILLs at random moments, also while a checkpoint is written: each training ends as the unbroken one."""

from __future__ import annotations

import mmap
import os
import random
import signal
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.train import Callback, checkpoint
from tests.train import small
from tests.train.small import DEV, EXAMPLES, trainer

KILLS, EPOCHS, EVERY = 200, 4, 3
PAUSE = 0.002  # seconds that each part of writing a file takes

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]


class Counts(Callback):
    """Counts in memory that outlives the process: steps done, steps lost by kills, files begun."""

    def __init__(self):
        self.memory = memoryview(mmap.mmap(-1, 12)).cast("i")

    def on_fit_start(self, trainer):
        self.memory[1] = max(self.memory[1], self.memory[0] - trainer.steps)
        self.memory[0] = trainer.steps

    def on_step_end(self, trainer):
        self.memory[0] = trainer.steps


class Slow:
    """A file that is written in two halves, with time to be killed between them."""

    def __init__(self, file):
        self.file = file

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, content):
        for half in (content[: len(content) // 2], content[len(content) // 2 :]):
            self.file.write(half)
            self.file.flush()
            time.sleep(PAUSE)


def train(folder, program, counts):
    """Train to the end, or till death; this is the child process."""
    open_ = Path.open

    def open_slowly(self, mode="r", *more):
        counts.memory[2] += mode != "rb"
        return open_(self, mode) if mode == "rb" else Slow(open_(self, mode, *more))

    Path.open = open_slowly
    os.fsync = lambda number: time.sleep(PAUSE)
    made = trainer(folder, every=EVERY, callbacks=[counts], program=program)
    made.fit(EXAMPLES, DEV, epochs=EPOCHS, resume=True)


def start(*arguments):
    """Fork; return the number of the process that trains."""
    with warnings.catch_warnings(action="ignore"):  # Python warns of threads, of which the child needs none
        child = os.fork()
    if child == 0:
        try:
            train(*arguments)
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the process ends here
            traceback.print_exc()
        finally:
            os._exit(1)
    return child


def is_over(child):
    """Wait for the end of a process; return whether it has not been killed."""
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), "the training failed"
    return status == 0


def final_files(folder):
    """Return the last checkpoint and the best parameters, without the times in them."""
    last, best = (checkpoint.read(folder / f"{name}.safetensors") for name in ("last", "best"))
    for figures in (last["position"], *last["history"], best["figures"]):
        del figures["seconds"]
    return last, best


def test_200_kills_change_nothing_and_lose_no_more_than_the_interval(tmp_path):
    program, moments = fb.compile(small.model(), "numpy", threads=1), random.Random(0)
    program.run(DEV, losses=True, metrics=True)  # so that children need not prepare what a run needs
    program.value_and_grad(EXAMPLES[:4], step=0)
    began = time.perf_counter()
    assert is_over(start(tmp_path / "whole", program, Counts()))
    seconds = time.perf_counter() - began
    whole = final_files(tmp_path / "whole")
    assert whole[0]["steps"] == EPOCHS * len(EXAMPLES) // 4

    def kill(child, counts, number):
        """Kill at any time in some part of a training; every other time while a file is written."""
        files, latest = counts.memory[2], time.perf_counter() + seconds
        if number % 2:
            while counts.memory[2] == files and time.perf_counter() < latest:
                time.sleep(PAUSE / 4)
        time.sleep(moments.uniform(0, 4 * PAUSE if number % 2 else seconds / 5))
        os.kill(child, signal.SIGKILL)

    kills = cut = 0
    for run in range(KILLS):
        folder, counts, over = tmp_path / str(run), Counts(), False
        while not over:
            child = start(folder, program, counts)
            if kills < KILLS:
                kill(child, counts, kills)
            over = is_over(child)
            kills += not over
            cut += any(folder.glob(".*.partial"))
        assert counts.memory[1] <= EVERY
        np.testing.assert_equal(final_files(folder), whole)
        assert not list(folder.glob(".*"))
        if kills == KILLS:
            break
    assert cut >= KILLS // 20  # killed in the midst of writing
