"""Locks: one process at a time, and none is left by one that dies."""

import errno
import fcntl
import os
import signal
import subprocess
import sys

import pytest

from foldbatch.errors import TrainingError
from foldbatch.system import files
from foldbatch.system.files import locked

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
            assert list(tmp_path.iterdir()) == []
    with locked(tmp_path):
        pass
    assert not files.HELD


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_forked_process_does_not_hold_it_on(tmp_path):
    reader, writer = os.pipe()
    with locked(tmp_path):
        child = os.fork()
        if child == 0:
            os.close(writer)
            os.read(reader, 1)  # lives until it is told
            os._exit(len(files.HELD))
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
    assert not files.HELD
    with pytest.raises(FileNotFoundError), locked(tmp_path / "none"):
        pass
