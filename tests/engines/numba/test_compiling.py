"""Compiling: in memory once, on disk safely, elsewhere not at all; in the directory that the user names."""

from __future__ import annotations

import builtins
import errno
import linecache
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from threading import Event, Thread
from typing import Any
from unittest import mock

import numpy as np
import pytest

from foldbatch.engines.numba import compiling
from foldbatch.engines.numba.compiling import compile_loop, compile_text, native
from foldbatch.errors import BackendError
from foldbatch.system.cache import CacheWarning
from tests.engines.numba.walking import run_native

TEXT = """# i8, f4[1], f4[1]w
def loop(n, x0, x1):
    a0 = flat(x0)
    a1 = flat(x1)
    for j0 in range(u8(n)):
        t0 = a0[j0]
        a1[j0] = t0 * f4({factor}.0)
"""
PROGRAM = f"""
from foldbatch.engines.numba.compiling import compile_loop
import numpy as np
text = {TEXT!r}
for factor in range(3):
    y = np.zeros(2, "float32")
    compile_loop(text.format(factor=factor))(2, np.ones(2, "float32"), y)
    assert y.tolist() == [factor] * 2
"""
needs_numba = pytest.mark.numba


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    compile_loop.cache_clear()
    yield
    compile_loop.cache_clear()


def _runs(function: Any, factor: float) -> None:
    x, y = np.arange(5, dtype="float32"), np.zeros(5, "float32")
    function(5, x, y)
    np.testing.assert_array_equal(y, x * factor)


def test_without_numba_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name == "numba":
            raise ImportError("No module named 'numba'")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(
        BackendError, match=r"backend numba: expected Numba .*; pip install 'foldbatch\[numba\]'"
    ):
        compile_loop(TEXT.format(factor=2))


@needs_numba
class TestCompiled:
    """With Numba."""

    @pytest.fixture(autouse=True)
    def _needs_numba(self) -> None:
        pytest.importorskip("numba", reason="numba is not installed")

    def test_a_text_is_compiled_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FOLDBATCH_CACHE", str(tmp_path))
        first = compile_loop(TEXT.format(factor=2))
        assert compile_loop(TEXT.format(factor=2)) is first
        assert compile_loop(TEXT.format(factor=3)) is not first
        _runs(first, 2)

    def test_types_are_fixed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """So nothing is ever compiled while a batch runs."""
        monkeypatch.setenv("FOLDBATCH_CACHE", "")
        function = compile_loop(TEXT.format(factor=2))
        with pytest.raises(TypeError, match="No matching definition"):
            function(2, np.zeros(2), np.zeros(2))

    def test_another_process_finds_what_was_compiled(self, tmp_path: Path) -> None:
        program = PROGRAM + "print(sum(compile_loop(text.format(factor=2)).stats.cache_hits.values()))\n"
        environment = os.environ | {"FOLDBATCH_CACHE": str(tmp_path)}
        found = [
            subprocess.run(
                [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
            ).stdout.strip()
            for _ in range(2)
        ]
        assert found == ["0", "1"]

    def test_numba_reads_from_no_other_directory(self, tmp_path: Path) -> None:
        """Whatever its own variables say: nobody has looked whose that is."""
        program = PROGRAM + "print(np.__name__)\n"
        ours, other = tmp_path / "ours", tmp_path / "other"
        environment = os.environ | {"FOLDBATCH_CACHE": str(ours), "NUMBA_CACHE_DIR": str(other)}
        subprocess.run(
            [sys.executable, "-c", program], env=environment, check=True, stdout=subprocess.DEVNULL
        )
        assert not [path for path in other.rglob("*") if path.is_file()]

    def test_processes_may_write_at_once(self, tmp_path: Path) -> None:
        """All compile, all succeed, and the files are whole."""
        environment = os.environ | {"FOLDBATCH_CACHE": str(tmp_path)}
        running = [subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment) for _ in range(3)]
        assert [process.wait() for process in running] == [0] * 3
        found = [path for path in tmp_path.iterdir() if path.is_file()]
        assert sorted(path.read_text() for path in found) == [TEXT.format(factor=i) for i in range(3)]

    @pytest.mark.parametrize("obstacle", ["a file", "a broken index", "no directory at all"])
    def test_a_cache_that_does_not_work_is_done_without(
        self, obstacle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        directory = tmp_path / "cache"
        monkeypatch.setenv("FOLDBATCH_CACHE", "" if obstacle == "no directory at all" else str(directory))
        if obstacle == "a file":
            directory.write_text("")
        elif obstacle == "a broken index":
            compile_loop(TEXT.format(factor=7))
            compile_loop.cache_clear()
            for path in directory.rglob("*.nb[ic]"):
                path.chmod(path.stat().st_mode | stat.S_IWUSR)
                path.write_bytes(path.read_bytes()[:40])
        with pytest.warns(CacheWarning) if obstacle == "a file" else nullcontext():
            _runs(compile_loop(TEXT.format(factor=7)), 7)
        if obstacle == "a broken index":  # the entry has been made anew
            compile_loop.cache_clear()
            again: Any = compile_loop(TEXT.format(factor=7))
            assert sum(again.stats.cache_hits.values()) == 1

    def test_what_does_not_fit_on_the_disk_leaves_nothing_there(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FOLDBATCH_CACHE", str(tmp_path))
        full = OSError(errno.ENOSPC, "No space left on device")
        with mock.patch("os.link", side_effect=full):
            assert compile_text("a", "", lambda name, keep: (name, keep)) == ("<foldbatch a>", False)
        assert list(tmp_path.iterdir()) == []

    def test_a_process_tidies_up_when_it_first_compiles(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FOLDBATCH_CACHE", str(tmp_path))
        left = tmp_path / "loop_1.abc.tmp"
        left.touch()
        os.utime(left, (0, 0))
        compile_text("a", "", lambda name, keep: keep)
        assert not left.exists()

    def test_a_person_who_waits_sees_a_line_that_vanishes(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("FOLDBATCH_CACHE", "")
        monkeypatch.setattr(compiling, "_spent", [9.0])
        compile_text("a", "", lambda name, keep: keep)
        assert capsys.readouterr().err == ""  # this is no terminal
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        compile_text("b", "", lambda name, keep: keep)
        line = "foldbatch: compiling kernel 3, not kept on disk"
        assert capsys.readouterr().err == f"\r\x1b[K{line}\r\x1b[K"
        monkeypatch.setattr(compiling, "_spent", [])
        compile_text("c", "", lambda name, keep: keep)
        assert capsys.readouterr().err == ""  # this took no time

    def test_the_text_can_be_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """On disk, or among the lines that tracebacks show."""
        for directory in ("", str(tmp_path)):
            compile_loop.cache_clear()
            monkeypatch.setenv("FOLDBATCH_CACHE", directory)
            function: Any = compile_loop(TEXT.format(factor=5))
            name = function.py_func.__code__.co_filename
            assert "t0 * f4(5.0)" in linecache.getline(name, 7)

    def test_functions_that_loops_call_are_part_of_the_key(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Or a new tanh would not reach the loops compiled with the old one."""
        monkeypatch.setenv("FOLDBATCH_CACHE", str(tmp_path))
        compile_loop(TEXT.format(factor=2))
        compile_loop.cache_clear()
        monkeypatch.setattr(compiling.inspect, "getsource", lambda module: "another")
        compile_loop(TEXT.format(factor=2))
        assert len([path for path in tmp_path.iterdir() if path.is_file()]) == 2

    def test_functions_are_called_by_address_with_any_number_of_pointers(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
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

    @pytest.mark.parametrize("damage", ["cut short", "another byte", "nothing"])
    def test_machine_code_that_is_damaged_is_made_anew(
        self, damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FOLDBATCH_CACHE", str(tmp_path))
        forget_functions(monkeypatch)
        run_twice(2.0)
        (path,) = tmp_path.glob("native_*.o")
        whole = path.read_bytes()
        last = bytes([whole[-1] ^ 1])
        path.write_bytes(
            {"cut short": whole[:100], "another byte": whole[:-1] + last, "nothing": b""}[damage]
        )
        forget_functions(monkeypatch)
        with mock.patch.object(machine_module(), "assemble", wraps=machine_module().assemble) as assemble:
            run_twice(2.0)
            assert assemble.call_count == 1
            assert path.read_bytes() == whole
            forget_functions(monkeypatch)
            run_twice(2.0)
            assert assemble.call_count == 1

    def test_machine_code_is_kept_apart_by_processor(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
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
    def test_a_forked_process_compiles_though_a_thread_was_compiling(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
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
    """Let functions be read from disk once more, beside those in memory."""
    native.cache_clear()
    monkeypatch.setattr(compiling, "_loaded", compiling._Loaded())


def machine_module() -> Any:
    from foldbatch.engines.numba import machine  # noqa: PLC0415 - it needs Numba

    return machine
