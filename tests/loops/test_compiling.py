"""Compiling: in memory once, on disk safely, elsewhere not at all; in the directory that the user names."""

import ctypes
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from threading import Event, Thread
from typing import Any
from unittest import mock

import numpy as np
import pytest

from foldbatch.errors import BackendError
from foldbatch.loops import compiling
from foldbatch.loops.compiling import compiled_text, native, timed
from foldbatch.system.cache import CacheWarning
from tests.engines.llvm.walking import run_native

PLUS = """def plus(x, y, more) -> int:
    if len(x) != len(y):
        return -1
    for i in range(len(x)):
        y[i] += x[i] * {factor} + i8(more)
    return len(x)
"""
PROGRAM = f"""
from foldbatch.loops.compiling import compiled_text
import numpy as np
text = {PLUS!r}
for factor in range(3):
    y = np.zeros(2, "int64")
    compiled_text(text.format(factor=factor), "i8[] i8[] i8")(np.ones(2, "int64"), y, 1)
    assert y.tolist() == [factor + 1] * 2
"""
needs_llvm = pytest.mark.llvm


def test_without_llvmlite_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(compiling, "import_module", refuse)
    with pytest.raises(BackendError, match=r"backend llvm: expected llvmlite .*; pip install -e '.\["):
        native(TWICE.format(factor=2.0))


@needs_llvm
class TestCompiled:
    """With llvmlite."""

    def test_what_loops_have_from_elsewhere_belongs_to_the_name_of_their_code(self) -> None:
        from foldbatch.engines.llvm import table_loops, tables  # noqa: PLC0415 - for one test

        known = []
        for head in (table_loops.HEAD, table_loops.HEAD + 1):
            with (
                mock.patch.object(table_loops, "HEAD", head),
                mock.patch.object(compiling, "_code_address") as made,
            ):
                made.side_effect = lambda kind, text, translate: known.append(text) or 0
                made_of = compiling.compiled_function.__wrapped__
                made_of(table_loops.write_launches, tables.SIGNATURES["write_launches"], table_loops)
        assert known[0] != known[1]

    @pytest.fixture(autouse=True)
    def _needs_llvmlite(self) -> None:
        pytest.importorskip("llvmlite", reason="llvmlite is not installed")

    def test_a_function_takes_arrays_of_its_kinds_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What it is given is looked at: an address tells nothing of what lies there."""
        monkeypatch.setenv("FOLDBATCH_CACHE", "")
        plus = compiled_text(PLUS.format(factor=2), "i8[] i8[] i8")
        x, y = np.arange(3), np.ones(3, np.int64)
        assert plus(x, y, 5) == 3
        assert y.tolist() == [6, 8, 10]
        assert plus(x, np.ones(4, np.int64), 5) == -1
        wrong = np.arange(3.0), np.arange(3, dtype="int32"), np.arange(6)[::2], np.ones((1, 3), int)
        for other in (*wrong, np.arange(3).astype(">i8"), np.arange(3).astype("uint64"), [0, 1, 2], None):
            with pytest.raises(TypeError, match=r"expected arrays without gaps of i8\[\] i8\[\] i8"):
                plus(other, y, 5)
        with pytest.raises(ctypes.ArgumentError):
            plus(x, y, 0.5)
        assert y.tolist() == [6, 8, 10]
        assert plus(x.view(np.recarray), y.view(np.recarray), 0) == 3  # which are arrays, too
        assert y.tolist() == [6, 10, 14]

    def test_another_process_finds_what_was_compiled(self, tmp_path: Path) -> None:
        environment = os.environ | {"FOLDBATCH_CACHE": str(tmp_path)}
        times = []
        for _ in range(2):
            subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True)
            times.append({path.name: path.stat().st_ino for path in tmp_path.iterdir()})
        assert len(times[0]) == 3
        assert times[0] == times[1]

    def test_processes_may_write_at_once(self, tmp_path: Path) -> None:
        """All compile, all succeed, and the files are whole."""
        environment = os.environ | {"FOLDBATCH_CACHE": str(tmp_path)}
        running = [subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment) for _ in range(3)]
        assert [process.wait() for process in running] == [0] * 3
        assert len([path for path in tmp_path.iterdir() if path.suffix == ".o"]) == 3

    @pytest.mark.parametrize("obstacle", ["a file", "no directory at all"])
    def test_a_cache_that_does_not_work_is_done_without(self, obstacle, tmp_path, monkeypatch):
        directory = tmp_path / "cache"
        monkeypatch.setenv("FOLDBATCH_CACHE", "" if obstacle == "no directory at all" else str(directory))
        if obstacle == "a file":
            directory.write_text("")
        forget_functions(monkeypatch)
        with pytest.warns(CacheWarning) if obstacle == "a file" else nullcontext():
            run_twice(7.0)

    def test_a_person_who_waits_sees_a_line_that_vanishes(self, monkeypatch, capsys):
        monkeypatch.setenv("FOLDBATCH_CACHE", "")
        monkeypatch.setattr(compiling, "_spent", [9.0])
        timed(int)
        assert capsys.readouterr().err == ""  # this is no terminal
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        timed(int)
        line = "foldbatch: compiling kernel 3, not kept on disk"
        assert capsys.readouterr().err == f"\r\x1b[K{line}\r\x1b[K"
        monkeypatch.setattr(compiling, "_spent", [])
        timed(int)
        assert capsys.readouterr().err == ""  # this took no time

    def test_functions_that_loops_call_are_part_of_the_key(self, tmp_path, monkeypatch):
        """Or a new tanh would not reach the loops compiled with the old one."""
        monkeypatch.setenv("FOLDBATCH_CACHE", str(tmp_path))
        forget_functions(monkeypatch)
        run_twice(2.0)
        forget_functions(monkeypatch)
        compiling._translation_digest.cache_clear()
        monkeypatch.setattr(compiling.inspect, "getsource", lambda module: "another")
        run_twice(2.0)
        monkeypatch.undo()
        compiling._translation_digest.cache_clear()
        assert len([path for path in tmp_path.iterdir() if path.is_file()]) == 2

    def test_functions_are_called_by_address_with_any_number_of_pointers(self, monkeypatch):
        monkeypatch.setenv("FOLDBATCH_CACHE", "")
        for count in (1, 40):
            names = [f"x{i}" for i in range(count)]
            lines = [
                "    for i in range(n):",
                f"        y[i] += i8(s[0]) * i8({' + '.join(f'{x}[i]' for x in names)})",
            ]
            text = "\n".join([f"# {'f8 ' * count}i8", f"def loop(n, {', '.join(names)}, y, s):", *lines, ""])
            xs, y = [np.arange(3.0) + i for i in range(count)], np.ones(3, np.int64)
            run_native(text, 2, [*xs, y], [5])
            assert y.tolist() == [1 + 5 * int(sum(x[i] for x in xs)) for i in range(2)] + [1]
            assert native(text).count == count + 1

    @pytest.mark.parametrize("damage", ["cut short", "another byte", "nothing", "another file", "a pipe"])
    def test_machine_code_that_is_damaged_is_made_anew(self, damage, tmp_path, monkeypatch):
        monkeypatch.setenv("FOLDBATCH_CACHE", str(tmp_path))
        forget_functions(monkeypatch)
        run_twice(2.0)
        (path,) = tmp_path.glob("native_*.o")
        whole = path.read_bytes()
        last = bytes([whole[-1] ^ 1])
        contents = {"cut short": whole[:100], "another byte": whole[:-1] + last, "nothing": b""}
        if damage == "a pipe":
            path.unlink()
            os.mkfifo(path)
        elif damage == "another file":
            path.unlink()
            run_twice(4.0)
            next(tmp_path.glob("native_*.o")).rename(path)
        else:
            path.write_bytes(contents[damage])
        forget_functions(monkeypatch)
        with mock.patch.object(machine_module(), "assemble", wraps=machine_module().assemble) as assemble:
            run_twice(2.0)
            assert assemble.call_count == 1
            assert path.read_bytes() == whole
            forget_functions(monkeypatch)
            run_twice(2.0)
            assert assemble.call_count == 1

    def test_machine_code_is_kept_apart_by_processor(self, tmp_path, monkeypatch):
        """Or a machine that shares the directory would stop at instructions that it does not know."""
        monkeypatch.setenv("FOLDBATCH_CACHE", str(tmp_path))
        forget_functions(monkeypatch)
        run_twice(3.0)
        forget_functions(monkeypatch)
        monkeypatch.setattr(machine_module(), "identity", lambda: "another processor")
        run_twice(3.0)
        assert len(list(tmp_path.glob("native_*.o"))) == 2

    def test_threads_make_one_function(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FOLDBATCH_CACHE", "")
        forget_functions(monkeypatch)
        with (
            mock.patch.object(machine_module(), "assemble", wraps=machine_module().assemble) as assemble,
            ThreadPoolExecutor(4) as pool,
        ):
            addresses = set(pool.map(lambda _: native(TWICE.format(factor=4.0)).address, range(8)))
        assert len(addresses) == assemble.call_count == 1

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
    def test_a_forked_process_compiles_though_a_thread_was_compiling(self, monkeypatch):
        monkeypatch.setenv("FOLDBATCH_CACHE", "")
        run_twice(5.0)
        held, done = Event(), Event()

        def hold() -> None:
            with compiling._loaded.lock:
                held.set()
                done.wait()

        thread = Thread(target=hold)
        thread.start()
        held.wait()
        child = os.fork()
        if not child:
            signal.alarm(20)
            run_twice(6.0)
            os._exit(0)
        done.set()
        thread.join()
        assert os.waitpid(child, 0)[1] == 0


TWICE = """# f8 f8
def loop(n, x, y, s):
    for i in range(n):
        y[i] = x[i] * {factor}
"""


def run_twice(factor: float) -> None:
    """Compile a text, or read it, and look at what it computes."""
    native.cache_clear()
    x, y = np.arange(3.0), np.zeros(3)
    run_native(TWICE.format(factor=factor), 3, [x, y], [])
    assert y.tolist() == (x * factor).tolist()


def forget_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    native.cache_clear()
    monkeypatch.setattr(compiling, "_loaded", compiling._Loaded())


def machine_module() -> Any:
    from foldbatch.loops import machine  # noqa: PLC0415 - it needs llvmlite

    return machine
