"""Two real processes, of each launcher."""

import signal
import time
from functools import cache
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen, run
from tempfile import mkdtemp

import numpy as np
import pytest

from foldbatch.communicators import Alone
from foldbatch.system import files
from foldbatch.train.resuming import read_state
from tests.commands.conftest import TINY
from tests.communicators.launchers import LAUNCHERS, LIMIT, ROOT, command, environment, launched
from tests.communicators.threads import in_threads
from tests.communicators.work import assert_trained, fitted
from tests.kills import kill_ranks
from tests.recipes.conftest import NEGATIVE, NEUTRAL, POSITIVE

needs_torchrun = pytest.mark.skipif(command("torchrun") is None, reason="needs pip install -e '.[torch]'")
both = pytest.mark.skipif(
    None in (command("mpiexec"), command("torchrun")), reason="needs pip install -e '.[mpi,torch]'"
)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_two_processes_train_as_one_and_end_together(launcher, tmp_path):
    """One is killed in the end; the checkpoint of the last step is there."""
    ended = launched(launcher, "tests.communicators.work", str(tmp_path))
    own = launcher == "torchrun"  # which ends with a traceback of its own
    assert ended.returncode != 0 and ended.stderr.count("Traceback") == own, ended.stderr
    killed = tmp_path / "killed-0.txt"  # torchrun lets the other ranks end, mpiexec kills them
    assert not (tmp_path / "killed-1.txt").exists() and killed.exists() == (launcher == "torchrun")
    if killed.exists():
        assert "rank 0 of 2: expected 2 processes, found one that has ended; go on from" in killed.read_text()
    alone, _ = fitted(Alone())
    assert_trained(tmp_path, alone)


@cache
def trained(launcher: str) -> tuple[Path, str]:
    """Train by the command, over each launcher once; return the folder of the run, and what was printed."""
    folder = Path(mkdtemp())
    for part in ("train", "dev", "test"):
        (folder / f"{part}.txt").write_text("\n".join([POSITIVE, NEGATIVE, NEUTRAL] * 2) + "\n")
    done = launched(launcher, "foldbatch", "train", *TINY, *given(folder))
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def given(folder: Path) -> list[str]:
    return ["--data.folder", str(folder), "--folder", str(folder / "run"), "--no-gain"]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_command_trains_in_all_processes_and_one_speaks(launcher):
    folder, said = trained(launcher)
    assert said.count("6 examples to train on") == 1 and said.count("model: ") == 1
    assert sorted(path.name for path in (folder / "run").iterdir()) == [
        files.LOCK, "checkpoints", "configuration.toml", "epochs.csv", "figures.json", "model.safetensors",
    ]  # fmt: skip
    assert len((folder / "run" / "epochs.csv").read_text().splitlines()) == 2
    again = launched(launcher, "foldbatch", "train", *TINY, *given(folder))  # refused, once
    assert again.returncode != 0 and again.stderr.count("error: ") == 1, again.stderr
    assert "expected a folder without a run" in again.stderr


@both
def test_the_command_saves_the_same_bits_over_each_transport():
    (first, _), (second, _) = trained("mpiexec"), trained("torchrun")
    one, other = (files.read(folder / "run" / "model.safetensors", "model", "") for folder in (first, second))
    assert one[0].keys() == other[0].keys() and len(one[0]) > 3
    for name, array in one[0].items():
        np.testing.assert_array_equal(array, other[0][name])


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("how", ["error", "exit"])
def test_an_error_that_nobody_catches_ends_all_ranks(launcher, how):
    """Also outside of a training, where others wait for the rank in an exchange."""
    ended = launched(launcher, "tests.communicators.failing", how)
    assert ended.returncode not in (0, 124)
    assert ended.stderr.count("RuntimeError: mine\n") == (how == "error") and "went on" not in ended.stdout
    if launcher == "torchrun":
        found = "RuntimeError: mine" if how == "error" else "one that has ended"
        assert f"told: rank 1: expected a process that goes on, found {found}" in ended.stdout


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_launcher_ends_all_ranks_at_one_step(launcher, number, tmp_path):
    """Ctrl-C, or the end of the time that a cluster gave."""
    arguments = [*command(launcher), "-m", "tests.communicators.stopped", "wait", str(tmp_path)]
    with Popen(arguments, cwd=ROOT, env=environment(), stdout=PIPE, stderr=STDOUT, text=True) as process:
        latest = time.monotonic() + LIMIT
        while not all((tmp_path / f"began-{rank}").exists() for rank in (0, 1)):
            assert process.poll() is None and time.monotonic() < latest, process.communicate()[0]
            time.sleep(0.05)
        process.send_signal(number)
        said = process.communicate(timeout=LIMIT)[0]
    first, second = ((tmp_path / f"said-{rank}").read_text() for rank in (0, 1))
    name = "KeyboardInterrupt  " if number == signal.SIGINT else "SystemExit 143 "
    assert first == second and first.startswith(f"{name}after step "), said
    steps = int(first.partition("after step ")[2].partition(",")[0])
    assert read_state(tmp_path / "kept" / "last.safetensors")["steps"] == steps > 0


@needs_torchrun
def test_torchrun_begins_anew_from_the_checkpoint(tmp_path):
    """With the bits of a training that nothing has interrupted, in processes or in threads."""
    given = [*command("torchrun"), "--max-restarts", "1", "-m", "tests.communicators.stopped"]
    done = run(
        [*given, "kill", str(tmp_path)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    whole = in_threads(fitted, 2)[0][0]
    for rank in (0, 1):
        assert (tmp_path / f"said-{rank}").read_text() == "done, begun at step 7"
        for name, array in np.load(tmp_path / f"whole-{rank}.npz").items():
            np.testing.assert_array_equal(array, whole.program.params[name])


@needs_torchrun
def test_a_group_that_the_program_has_made_trains_and_may_be_used_meanwhile(tmp_path):
    done = launched("torchrun", "tests.communicators.grouped", str(tmp_path))
    assert done.returncode == 0, done.stderr
    whole = in_threads(fitted, 2)[0][0]
    for rank in (0, 1):
        for name, array in np.load(tmp_path / f"whole-{rank}.npz").items():
            np.testing.assert_array_equal(array, whole.program.params[name])


@pytest.mark.skipif(command("mpiexec") is None, reason="needs pip install -e '.[mpi]'")
def test_a_kill_of_one_rank_ends_both_and_loses_nothing(tmp_path):
    """Over torch.distributed, where processes begin slowly, ``python -m tests.kills`` does it."""
    assert kill_ranks(command("mpiexec"), tmp_path, 1)[0] == 1
