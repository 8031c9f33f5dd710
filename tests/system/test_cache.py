"""The cache on disk: the user's directory, its entries, and what leaves it."""

import errno
import os
import stat
import time
import warnings
from pathlib import Path

import pytest

from foldbatch.system import cache

PARTS = ["above", "above/cache", "above/cache/a.cubin"]


def test_the_directory_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of our own goes before the desktop's, and may say that there is none."""
    monkeypatch.setenv("HOME", "/home/anna")
    monkeypatch.delenv("FOLDBATCH_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache.place() == (Path("/home/anna/.cache/foldbatch"), None)
    monkeypatch.setenv("XDG_CACHE_HOME", "/shared")
    assert cache.place() == (Path("/shared/foldbatch"), None)
    monkeypatch.setenv("FOLDBATCH_CACHE", "~/mine")
    assert cache.place() == (Path("/home/anna/mine"), None)
    monkeypatch.setenv("FOLDBATCH_CACHE", "")
    assert cache.place() == (None, None)
    assert cache.cache_directory() is None


def test_without_a_home_there_is_none_and_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user has no name."""
    for name in ("FOLDBATCH_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    pwd = pytest.importorskip("pwd")

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.warns(cache.CacheWarning, match="home directory.*; set FOLDBATCH_CACHE") as warned:
        assert [cache.cache_directory() for _ in range(3)] == [None] * 3
    assert len(warned) == 1


def why_not(directory: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return why a directory is not used, as a warning and as what is shown say it; "" where it is used."""
    monkeypatch.setenv("FOLDBATCH_CACHE", str(directory))
    cache._warn.cache_clear()
    cache._fault_once.cache_clear()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found = {cache.cache_directory() for _ in range(3)}
    fault = cache.place()[1]
    assert [str(each.message) for each in warned] == ([] if fault is None else [str(fault)])
    assert found == {directory if fault is None else None}
    return "" if fault is None else str(fault)


def test_a_directory_is_made_for_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is missing above it, too, and whatever the process lets others do with its files."""
    former = os.umask(0)
    try:
        assert why_not(tmp_path / "above" / "cache", monkeypatch) == ""
    finally:
        os.umask(former)
    made = [tmp_path / "above", tmp_path / "above" / "cache"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o700] * 2


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o702, 0o720, 0o1777])
@pytest.mark.parametrize("part", PARTS)
def test_what_others_may_write_to_is_not_used(part, mode, tmp_path, monkeypatch):
    directory = tmp_path / "above" / "cache"
    filled(directory)
    assert why_not(directory, monkeypatch) == ""
    (tmp_path / part).chmod(mode)
    if (part, mode) == ("above", 0o1777):  # as /tmp: only who owns a file there can move it
        assert why_not(directory, monkeypatch) == ""
    else:
        why = why_not(directory, monkeypatch)
        assert why.startswith(f"{tmp_path / part}: expected a directory for compiled loops that this user")
        assert f"others may write to (mode {mode:o}); remove {directory} if nothing else is in it" in why


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("owner", [12345, 0])
@pytest.mark.parametrize("part", [*PARTS, "above/link"])
def test_what_belongs_to_another_user_is_not_used(part, owner, tmp_path, monkeypatch):
    """Root is another user, too, but may own what is above."""
    directory = tmp_path / "above" / "cache"
    filled(directory)
    (tmp_path / "above" / "link").symlink_to("cache")
    user = 12345 - owner
    for path in (tmp_path / "above").rglob("*"):
        os.chown(path, user, -1, follow_symlinks=False)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    named = tmp_path / "above" / "link" if part == "above/link" else directory
    assert why_not(named, monkeypatch) == ""
    os.chown(tmp_path / part, owner, -1, follow_symlinks=False)
    why = why_not(named, monkeypatch)
    if owner == 0 and part in ("above", "above/link"):
        assert why == ""
    else:
        assert why.startswith(f"{tmp_path / part}: expected a directory for compiled loops that this user")
        assert f"found what belongs to user {owner}" in why


def test_links_are_followed_to_where_they_lead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "relative").symlink_to("open/../mine")
    (tmp_path / "absolute").symlink_to(tmp_path / "relative")
    assert why_not(tmp_path / "absolute", monkeypatch) == ""
    (tmp_path / "open").chmod(0o777)  # somebody may put a link in its place, or not: it is on the way
    assert f"{tmp_path / 'open'}: " in why_not(tmp_path / "absolute", monkeypatch)
    (tmp_path / "open").chmod(0o700)
    (tmp_path / "open" / "link").symlink_to(tmp_path / "mine")
    assert why_not(tmp_path / "open" / "link", monkeypatch) == ""
    (tmp_path / "round").symlink_to("round")
    assert os.strerror(errno.ELOOP) in why_not(tmp_path / "round", monkeypatch)


def test_what_is_no_directory_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_bytes(b"")
    assert os.strerror(errno.ENOTDIR) in why_not(tmp_path / "cache", monkeypatch)


def filled(directory: Path, names: str = "abc", size: int = 1000) -> Path:
    """Make entries of some bytes each; the first was used last."""
    directory.mkdir(parents=True, exist_ok=True)
    now = time.time()
    for i, name in enumerate(names):
        for path in (directory / f"{name}.cubin", directory / f"{name}.log"):
            path.write_bytes(b" " * (size // 2))
            os.utime(path, (now - i - 10, now - i - 10))
    return directory


def test_entries_are_all_files_of_a_name(tmp_path: Path) -> None:
    entries = cache.entries(filled(tmp_path))
    assert sorted(entries) == ["a", "b", "c"]
    assert [(len(entry.files), entry.size) for entry in entries.values()] == [(2, 1000)] * 3
    assert cache.entries(tmp_path / "nowhere") == {}


def test_what_was_least_recently_used_leaves_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)
    cache.used(tmp_path / "c.cubin")
    cache.tidy(tmp_path)
    assert len(cache.entries(tmp_path)) == 3
    monkeypatch.setattr(cache, "MAX_BYTES", 2500)
    cache.tidy(tmp_path)
    assert sorted(cache.entries(tmp_path)) == ["a", "c"]
    cache.used(tmp_path / "gone.o")


def test_temporary_files_that_nobody_writes_to_are_removed(tmp_path: Path) -> None:
    filled(tmp_path)
    old, fresh = tmp_path / "a.123.tmp", tmp_path / "a.o.456.tmp"
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
    monkeypatch.setattr(cache, "MAX_BYTES", 4000)
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
        cache.write_bytes(tmp_path / "a.cubin", content)
        assert (tmp_path / "a.cubin").read_bytes() == content
    assert len(list(tmp_path.iterdir())) == 1


def test_clearing_removes_entries_and_nothing_else(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.o").touch()
    cache.clear(tmp_path)
    assert cache.entries(tmp_path) == {}
    assert (tmp_path / "mine" / "a.o").exists()
