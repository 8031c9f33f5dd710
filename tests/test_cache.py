"""The cache on disk: the user's directory, its entries, and what leaves it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from foldbatch import cache


def test_the_directory_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of our own goes before the desktop's, and may say that there is none."""
    monkeypatch.setenv("HOME", "/home/anna")
    monkeypatch.delenv("FOLDBATCH_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache.cache_directory() == Path("/home/anna/.cache/foldbatch")
    monkeypatch.setenv("XDG_CACHE_HOME", "/shared")
    assert cache.cache_directory() == Path("/shared/foldbatch")
    monkeypatch.setenv("FOLDBATCH_CACHE", "/mine")
    assert cache.cache_directory() == Path("/mine")
    monkeypatch.setenv("FOLDBATCH_CACHE", "")
    assert cache.cache_directory() is None


def test_without_a_home_there_is_none_and_one_warning(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """As in a container whose user has no name."""
    for name in ("FOLDBATCH_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    pwd = pytest.importorskip("pwd")

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    cache._warn_of_no_home.cache_clear()
    assert [cache.cache_directory() for _ in range(3)] == [None] * 3
    assert len(recwarn) == 1
    assert "no home directory, so compiled loops are not kept; set FOLDBATCH_CACHE" in str(recwarn[0].message)


def filled(directory: Path, names: str = "abc", size: int = 1000) -> Path:
    """Make entries of some bytes each; the first was used last."""
    (directory / "__pycache__").mkdir(parents=True)
    now = time.time()
    for i, name in enumerate(names):
        for path in (directory / f"{name}.py", directory / "__pycache__" / f"{name}.loop-2.py311.nbi"):
            path.write_bytes(b" " * (size // 2))
            os.utime(path, (now - i - 10, now - i - 10))
    return directory


def test_entries_are_texts_with_what_was_compiled_of_them(tmp_path: Path) -> None:
    entries = cache.entries(filled(tmp_path))
    assert sorted(entries) == ["a", "b", "c"]
    assert [(len(entry.files), entry.size) for entry in entries.values()] == [(2, 1000)] * 3
    assert cache.entries(tmp_path / "nowhere") == {}


def test_what_was_least_recently_used_leaves_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Using an entry does not change what Numba compares: the text's time of change."""
    filled(tmp_path)
    changed = (tmp_path / "c.py").stat().st_mtime_ns
    cache.used(tmp_path / "c.py")
    assert (tmp_path / "c.py").stat().st_mtime_ns == changed
    cache.tidy(tmp_path)
    assert len(cache.entries(tmp_path)) == 3
    monkeypatch.setattr(cache, "LIMIT", 2500)
    cache.tidy(tmp_path)
    assert sorted(cache.entries(tmp_path)) == ["a", "c"]
    cache.used(tmp_path / "gone.py")


def test_temporary_files_that_nobody_writes_to_are_removed(tmp_path: Path) -> None:
    filled(tmp_path)
    old, fresh = tmp_path / "a.123.tmp", tmp_path / "__pycache__" / "a.loop-2.nbi.tmp.456"
    old.touch()
    fresh.touch()
    os.utime(old, (0, 0))
    cache.tidy(tmp_path)
    assert not old.exists()
    assert fresh.exists()


def test_kernels_of_a_gpu_are_entries_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the log beside them; and so is what the emulator compiled."""
    filled(tmp_path)
    for i, name in enumerate(["d.cubin", "d.log", "e.so"]):
        cache.write_bytes(tmp_path / name, b" " * 500)
        os.utime(tmp_path / name, (i, i))
    entries = cache.entries(tmp_path)
    assert {name: entry.size for name, entry in entries.items()} == {**dict.fromkeys("abcd", 1000), "e": 500}
    cache.used(tmp_path / "d.cubin")
    monkeypatch.setattr(cache, "LIMIT", 4000)
    cache.tidy(tmp_path)
    assert sorted(cache.entries(tmp_path)) == ["a", "b", "d"]  # 0.8 of the limit, the last used
    cache.clear(tmp_path)
    assert cache.entries(tmp_path) == {}


def test_a_file_that_cannot_be_written_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache.write_bytes(tmp_path / "file" / "a.cubin", b"content")
    (tmp_path / "b.cubin").mkdir()  # in the way of the new file
    cache.write_bytes(tmp_path / "b.cubin", b"content")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.cubin", "file"]


def test_a_file_is_replaced_by_a_later_one(tmp_path: Path) -> None:
    for content in (b"old", b"new"):
        cache.write_bytes(tmp_path / "new" / "a.cubin", content)
        assert (tmp_path / "new" / "a.cubin").read_bytes() == content
    assert len(list((tmp_path / "new").iterdir())) == 1


def test_clearing_removes_entries_and_nothing_else(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.py").touch()
    cache.clear(tmp_path)
    assert cache.entries(tmp_path) == {}
    assert (tmp_path / "mine" / "a.py").exists()
