"""Trainings that are killed at random moments: ``python -m tests.kills --what ranks --count 200``.

Each is resumed till it ends, and must then have the bits of the unbroken one and no file besides. A kill comes
while a model is saved, while a checkpoint is written or at any time between, while a training is resumed, or
to one of two processes that train together, over MPI or, with ``--launcher torchrun``, torch.distributed.
"""

import argparse
import json
import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import foldbatch as fb
from foldbatch.recipes import fitting
from foldbatch.recipes.data import read_dataset
from foldbatch.system import files
from foldbatch.train import Callback, DataParallel, LambdaCallback
from foldbatch.train.resuming import read_state
from tests.communicators.launchers import command
from tests.recipes.conftest import NEGATIVE, NEUTRAL, POSITIVE
from tests.recipes.test_data import configured
from tests.train import small
from tests.train.small import DEV, EXAMPLES, trainer

ROOT = Path(__file__).parents[1]
EPOCHS, EVERY = 4, 3
PAUSE = 0.002  # seconds that each part of writing a file takes
AT_ONCE = 10  # kills of one training, but of those that go on till they are killed
LIMIT = 60  # seconds in which all processes have ended, when one was killed
STEPS, LOST, FILES, SAVED, BEGUN = range(5)  # what is counted

Work = Callable[[Path, "Counts"], None]


class Counts(Callback):
    """Counts in memory that outlives the process."""

    def __init__(self):
        self.memory = memoryview(mmap.mmap(-1, 20)).cast("i")

    def on_fit_start(self, trainer):
        self.memory[LOST] = max(self.memory[LOST], self.memory[STEPS] - trainer.steps)
        self.memory[STEPS] = trainer.steps

    def on_step_end(self, trainer):
        self.memory[STEPS] = trainer.steps


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


def write_slowly(counts: Counts) -> None:
    """Let this process write slowly, and count the files that it writes."""
    open_ = Path.open

    def open_slowly(self, mode="r", *more, **options):
        if mode not in ("wb", "xb"):
            return open_(self, mode, *more, **options)
        counts.memory[FILES] += 1
        counts.memory[SAVED] += any(name in self.name for name in (fitting.MODEL, fitting.FIGURES))
        return Slow(open_(self, mode, *more))

    Path.open = open_slowly
    os.fsync = lambda number: time.sleep(PAUSE)


def start(work: Work, folder: Path, counts: Counts) -> int:
    """Fork; return the number of the process that trains."""
    counts.memory[SAVED] = counts.memory[BEGUN] = 0
    with warnings.catch_warnings(action="ignore"):  # Python warns of threads, of which the child needs none
        child = os.fork()
    if child == 0:
        try:
            counts.memory[BEGUN] = 1
            write_slowly(counts)
            with Path(os.devnull).open("w") as nobody:
                sys.stdout = nobody
                work(folder, counts)
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the process ends here
            traceback.print_exc()
        finally:
            os._exit(1)
    return child


def is_over(child: int) -> bool:
    """Wait for the end of a process; return whether it has not been killed."""
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), "the training failed"
    return status == 0


def trained(folder: Path):
    """Return the last checkpoint without the times in it, and the best program."""
    last = read_state(folder / "last.safetensors")
    for figures in (last["position"], *last["history"]):
        del figures["seconds"]
    return last, files.read(folder / "best.safetensors", "model", "")


def saved(folder: Path):
    """Return the model that a run has saved, and its figures without times."""
    arrays, header = files.read(folder / fitting.MODEL, "model", "")
    figures = json.loads((folder / fitting.FIGURES).read_text())
    for epoch in figures["epochs"]:
        del epoch["seconds"]
    return arrays, header["origin"], figures


def training() -> Work:
    program = fb.compile(small.model(), "numpy", threads=1)
    program.run(DEV, losses=True, metrics=True)  # so that children need not prepare what a run needs
    program.value_and_grad(EXAMPLES[:4], step=0)

    def work(folder, counts):
        made = trainer(folder, every=EVERY, callbacks=[counts], program=program)
        made.fit(EXAMPLES, DEV, epochs=EPOCHS, resume=True)

    return work


def run(data: Path) -> Work:
    """Return a run of a configuration, which saves a model."""
    for part in ("train", "dev", "test"):
        (data / f"{part}.txt").write_text("\n".join([POSITIVE, NEGATIVE, NEUTRAL] * 2) + "\n")
    tiny = {"data__format": "sst", "model__hidden": 2, "words__size": 2, "train__backend": "numpy"}
    configuration = configured(data__folder=data, train__epochs=1, **tiny)
    dataset = read_dataset(configuration)

    def work(folder, counts):
        sys.stderr = sys.stdout
        resume = (folder / "checkpoints" / "last.safetensors").exists()
        fitting.fit(configuration, dataset, folder, resume=resume)

    return work


def kill(what: str, folder: Path, kills: int, seed: int = 0) -> tuple[int, int]:
    """Kill trainings in the midst of ``saving``, ``checkpoint`` or ``resume``; look at what they end with.

    Return how often one was killed, and how often while a file was written.
    """
    moments, look = random.Random(seed), saved if what == "saving" else trained
    work = run(folder) if what == "saving" else training()
    began = time.perf_counter()
    assert is_over(start(work, folder / "whole", Counts()))
    seconds = time.perf_counter() - began
    whole = look(folder / "whole")

    def wait(counts: Counts, place: int, before: int) -> None:
        latest = time.perf_counter() + seconds
        while counts.memory[place] == before and time.perf_counter() < latest:
            time.sleep(PAUSE / 4)

    def pause(counts: Counts, number: int) -> None:
        """Wait for the moment to kill; every fourth time a training that is resumed gets on."""
        begun = counts.memory[FILES]
        if what == "saving":
            wait(counts, SAVED, 0)
            time.sleep(moments.uniform(0, 8 * PAUSE))
        elif what == "resume" and number % 4:
            wait(counts, BEGUN, 0)
            time.sleep(moments.uniform(0, 8 * PAUSE))
        elif number % 2:  # while a file is written
            wait(counts, FILES, begun)
            time.sleep(moments.uniform(0, 4 * PAUSE))
        else:
            time.sleep(moments.uniform(0, seconds / 8))

    killed = cut = 0
    for number in range(kills):
        own, counts, over, before = folder / f"run{number}", Counts(), False, killed
        while not over:
            child = start(work, own, counts)
            if killed < kills and (what != "saving" or killed - before < AT_ONCE):
                pause(counts, killed)
                os.kill(child, signal.SIGKILL)
            over = is_over(child)
            killed += not over
            cut += any(own.rglob(".*.partial"))
            if what == "saving" and (own / fitting.MODEL).exists():
                np.testing.assert_equal(files.read(own / fitting.MODEL, "model", "")[0], whole[0])
        assert counts.memory[LOST] <= EVERY
        np.testing.assert_equal(look(own), whole)
        assert {path.name for path in own.rglob(".*")} <= {files.LOCK}
        shutil.rmtree(own)
        if killed == kills:
            break
    return killed, cut


def rank(folder: Path) -> None:
    """Train as one of the processes that a launcher started, slowly."""
    communicator = fb.communicators.find()
    folder.with_suffix(f".{communicator.rank}").write_text(str(os.getpid()))
    program = DataParallel(fb.compile(small.model(), "numpy", threads=1), communicator)
    slowly = LambdaCallback(on_step_end=lambda _: time.sleep(PAUSE))
    write_slowly(Counts())
    trainer(folder, every=EVERY, callbacks=[slowly], program=program).fit(
        EXAMPLES, DEV, epochs=EPOCHS, resume=True
    )
    if communicator.rank:
        np.savez(folder.with_suffix(".npz"), **program.program.params)


def kill_ranks(launcher_of_two: list[str], folder: Path, kills: int, seed: int = 0) -> tuple[int, int]:
    """Kill one of two processes that train together; return how often, and how often a file was being written."""
    moments = random.Random(seed)

    def started(own: Path) -> subprocess.Popen:
        for number in (0, 1):
            own.with_suffix(f".{number}").unlink(missing_ok=True)
        given = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [*launcher_of_two, "-m", "tests.kills", "--rank", str(own)]
        outputs = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(command, cwd=ROOT, env=given, text=True, **outputs)

    def numbers(own: Path, launcher: subprocess.Popen) -> list[int]:
        latest = time.perf_counter() + LIMIT
        while time.perf_counter() < latest and launcher.poll() is None:
            told = [
                path.read_text() if path.exists() else ""
                for path in (own.with_suffix(f".{r}") for r in (0, 1))
            ]
            if all(told):
                return [int(number) for number in told]
            time.sleep(PAUSE)
        raise AssertionError(f"two processes did not start: {launcher.communicate()[0]}")

    launcher = started(folder / "whole")
    numbers(folder / "whole", launcher)
    began = time.perf_counter()
    said = launcher.communicate(timeout=LIMIT)[0]
    assert launcher.returncode == 0, said
    seconds = time.perf_counter() - began
    whole = trained(folder / "whole")
    killed = cut = 0
    for number in range(5 * kills):  # a moment may come when all is over
        own, over, before = folder / f"run{number}", False, killed
        while not over:
            launcher = started(own)
            ranks = numbers(own, launcher)
            if killed < kills and killed - before < AT_ONCE:
                time.sleep(moments.uniform(0, seconds))
                try:
                    os.kill(moments.choice(ranks), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            said = launcher.communicate(timeout=LIMIT)[0]
            over = launcher.returncode == 0
            assert over or "signal 9" in said.lower(), said
            killed += not over
            cut += any(own.rglob(".*.partial"))
            for process in ranks:
                assert not is_alive(process), "a process goes on"
        np.testing.assert_equal(trained(own), whole)
        for name, array in np.load(own.with_suffix(".npz")).items():  # of the other rank
            np.testing.assert_array_equal(whole[0]["parameters"][name], array)
        assert {path.name for path in own.rglob(".*")} <= {files.LOCK}
        if killed == kills:
            break
    return killed, cut


def is_alive(process: int) -> bool:
    """Return whether a process is there, and is more than what is left of one that has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("--what", choices=("saving", "checkpoint", "resume", "ranks"), default="checkpoint")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--launcher", choices=("mpiexec", "torchrun"), default="mpiexec")
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        rank(given.rank)
        return
    with tempfile.TemporaryDirectory() as name:
        launcher, asked = command(given.launcher), (Path(name), given.count, given.seed)
        if given.what == "ranks" and launcher is None:
            parser.error(f"needs {given.launcher}: pip install -e '.[mpi,torch]'")
        killed, cut = kill_ranks(launcher, *asked) if given.what == "ranks" else kill(given.what, *asked)
    print(f"{given.what}: {killed} kills, {cut} of them in a file; all ended as the unbroken training")


if __name__ == "__main__":
    main()
