"""Archives: what is read is what was written, and a file cannot ask for more memory than it has bytes."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foldbatch.errors import ReadError
from foldbatch.train.archive import read_arrays, write_arrays

ARRAYS: dict[str, Any] = {
    "rows": np.arange(6, dtype=np.int32).reshape(2, 3),
    "none": np.zeros((0, 2)),
    "flags": np.array([True, False]),
    "turned": np.arange(6.0).reshape(2, 3).T,
}


def npy(array: Any, **fields: Any) -> bytes:
    """Return the text of an array; `fields` stand in its head instead of what is true."""
    text = io.BytesIO()
    np.save(text, array, allow_pickle=True)
    head, body = text.getvalue().split(b"\n", 1)
    for name, value in fields.items():
        truth = {"shape": array.shape, "descr": array.dtype.str, "fortran_order": False}[name]
        longer = head.replace(f"'{name}': {truth!r}".encode(), f"'{name}': {value!r}".encode())
        head = longer.rstrip().ljust(len(head))
    return head + b"\n" + body


def test_what_is_read_is_what_was_written(tmp_path):
    write_arrays(tmp_path / "a", ARRAYS)
    read = read_arrays(tmp_path / "a", "arrays")
    assert read.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(read[name], array, strict=True)
        assert read[name].flags.writeable
    write_arrays(tmp_path / "a", {})
    assert read_arrays(tmp_path / "a", "arrays") == {}


def test_a_change_is_found_whatever_checksums_say(tmp_path):
    write_arrays(tmp_path / "a", ARRAYS)
    with zipfile.ZipFile(tmp_path / "a") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for name in members:
        for changed in (members[name][:-1] + bytes([members[name][-1] ^ 1]), None):
            with zipfile.ZipFile(tmp_path / "a", "w") as archive:
                for other, data in members.items():
                    if other != name or changed is not None:
                        archive.writestr(other, changed if other == name and changed else data)
            with pytest.raises(ReadError, match="found (a file that|one of another kind)"):
                read_arrays(tmp_path / "a", "arrays")


def refused(path: Path, members: list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> None:
    """Check that a file of these members is refused, in no more memory than some times its size."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members:
            archive.writestr(name, data)
    tracemalloc.start()
    with pytest.raises(ReadError, match="expected arrays, found a file that is damaged, or of another kind"):
        read_arrays(path, "arrays")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * path.stat().st_size + 1_000_000


def test_compressed_members_are_refused_before_they_are_unpacked(tmp_path):
    refused(tmp_path / "a", [("a.npy", npy(np.zeros(3_000_000)))], zipfile.ZIP_DEFLATED)


@pytest.mark.parametrize(
    "head",
    [
        {"shape": (10**12,)},
        {"shape": (10**30,)},
        {"shape": (-3,)},
        {"shape": (2,)},
        {"descr": "<i8"},
        {"descr": "|O"},
        {"fortran_order": True},
    ],
    ids=repr,
)
def test_heads_that_lie_are_refused(tmp_path, head):
    refused(tmp_path / "a", [("a.npy", npy(np.zeros(3, np.int32), **head))])


def test_a_name_twice_and_members_that_lie_on_each_other_are_refused(tmp_path):
    one = npy(np.zeros(100_000))
    with pytest.warns(UserWarning, match="Duplicate name"):
        refused(tmp_path / "a", [("a.npy", one), ("a.npy", one)])
    with zipfile.ZipFile(tmp_path / "a", "w") as archive:
        archive.writestr("a.npy", one)
        for number in range(50):
            again = zipfile.ZipInfo(f"{number}.npy")
            again.file_size = again.compress_size = len(one)
            again.CRC, again.header_offset = archive.infolist()[0].CRC, 0
            archive.filelist.append(again)
    with pytest.raises(ReadError, match="found a file that is damaged"):
        read_arrays(tmp_path / "a", "arrays")
