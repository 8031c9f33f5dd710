"""Where Python lacks the modules and functions of POSIX, as on Windows, models train, are saved and are read."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import os, sys

import numpy, platformdirs  # which know by themselves where they are

LACKING = {"fcntl", "grp", "pwd", "resource", "termios"}


class Refusal:
    def find_spec(self, name, path=None, target=None):
        if name in LACKING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Refusal())
for name in LACKING & sys.modules.keys():
    del sys.modules[name]
for name in (
    "fchmod", "fork", "forkpty", "getegid", "geteuid", "getgid", "getuid", "register_at_fork",
    "sched_getaffinity", "sched_setaffinity",
):
    delattr(os, name)
uname = os.uname


def of_others():
    if sys._getframe(1).f_globals["__name__"].startswith("foldbatch"):
        raise AttributeError("uname")
    return uname()  # what the standard library asks on Linux


os.uname = of_others

import json, warnings
from pathlib import Path

import foldbatch as fb

folder = Path(sys.argv[2])
warnings.filterwarnings("ignore", "only soft file lock")  # Windows has locks of its own
line = fb.Vector(2) >> fb.Linear(1, name="out")
error = fb.Record((line, fb.Vector(1))) >> fb.Function(lambda y, target: fb.ops.sum((y - target) ** 2))
examples = [([1.0, 2.0], [1.0]), ([2.0, 0.0], [2.0])]
program = fb.compile(error >> fb.Loss(), backend=sys.argv[1], seed=1)
trainer = fb.train.Trainer(program, fb.SGD(0.05), callbacks=[fb.train.Checkpoints(folder)])
losses = [figures["loss"] for figures in trainer.fit(examples, epochs=3)]
fb.compile(line, backend=sys.argv[1]).save(folder / "model")
value = float(fb.load(folder / "model").run([[1.0, 2.0]])[0][0])
resumed = fb.train.Trainer(program, fb.SGD(0.05), callbacks=[fb.train.Checkpoints(folder)])
resumed.fit(examples, epochs=3, resume=True)
print(json.dumps({"losses": losses, "value": value, "epoch": resumed.epoch}))
"""


def outcome(backend: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Train, save, read and resume in a process that lacks POSIX; return its output and its warnings."""
    command = [sys.executable, "-c", PROGRAM, backend, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)


@pytest.mark.parametrize("backend", ["numpy", pytest.param("llvm", marks=pytest.mark.llvm)])
def test_training_and_files_need_no_posix(backend, tmp_path, monkeypatch):
    """Compiled loops are kept below the user's home alone, as nobody tells who may change another place."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FOLDBATCH_CACHE", str(tmp_path / "home" / "cache"))
    done = outcome(backend, tmp_path / "run")
    found = json.loads(done.stdout)
    assert found["losses"][0] > found["losses"][-1]
    assert found["epoch"] == 3
    assert math.isfinite(found["value"])
    assert any((tmp_path / "home" / "cache").iterdir())
    assert "Warning" not in done.stderr


def test_a_cache_outside_of_the_home_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FOLDBATCH_CACHE", str(tmp_path / "elsewhere"))
    done = outcome("numpy", tmp_path / "run")
    assert "on a system that does not tell who may change it" in done.stderr
    assert not (tmp_path / "elsewhere").exists()
