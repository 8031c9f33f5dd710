"""Files of arrays: what is read is what was written, and whatever was changed is refused in one line."""

import json
import os
import stat
import tracemalloc
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.commands.saved import _structures
from foldbatch.errors import ReadError
from foldbatch.recipes.configuration import read_configuration
from foldbatch.system import files
from foldbatch.trees.formats import FORMATS

ARRAYS: dict[str, Any] = {
    "rows": np.arange(6, dtype=np.int32).reshape(2, 3),
    "none": np.zeros((0, 2)),
    "flags": np.array([True, False]),
    "turned": np.arange(6.0, dtype=np.float32).reshape(2, 3).T,
    "every second": np.arange(8, dtype=np.int64)[::2],
    "scalar": np.float64(2.5),
}
HEADER = {"names": ["a", "ß"], "rate": 0.1, "more": {"nothing": None, "yes": True}}


def refused(path, kind="numbers"):
    with pytest.raises(ReadError) as caught:
        files.read(path, kind, "write it anew")
    return str(caught.value)


@pytest.fixture
def path(tmp_path):
    files.write(tmp_path / "a", "numbers", ARRAYS, HEADER)
    return tmp_path / "a"


def test_what_is_read_is_what_was_written(path):
    arrays, header = files.read(path, "numbers", "")
    assert header == HEADER
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], np.asarray(array), strict=True)
        assert arrays[name].flags.writeable
    assert [entry.name for entry in path.parent.iterdir()] == ["a"]  # nothing else is left


def test_a_flipped_bit_anywhere_and_a_truncation_are_refused(path):
    data = path.read_bytes()
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ (1 << place % 8)]) + data[place + 1 :])
        assert f"{path}: expected a numbers that foldbatch wrote, found" in refused(path)
    for place in range(0, len(data), 7):
        path.write_bytes(data[:place])
        assert "damaged" in refused(path)


@settings(max_examples=25)
@given(st.binary(max_size=200))
def test_other_bytes_are_refused(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("bytes") / "a"
    path.write_bytes(data)
    assert "damaged, or of another kind" in refused(path)


def test_another_kind_and_a_newer_version_are_named(path, monkeypatch):
    assert refused(path, "model") == (
        f"{path}: expected a model that foldbatch wrote, found a numbers; give a file of a model"
    )
    monkeypatch.setattr(files, "VERSION", 2)
    files.write(path, "numbers", {}, {})
    monkeypatch.undo()
    assert "found one of a newer version (2, this is 1); install a newer foldbatch" in refused(path)


def test_a_header_that_is_no_json_leaves_the_old_file(path):
    before = path.read_bytes()
    with pytest.raises(TypeError):
        files.write(path, "numbers", {}, {"no": object()})
    assert path.read_bytes() == before


def test_a_file_that_cannot_be_written_leaves_nothing(path, monkeypatch):
    def fails(*_):
        raise OSError("disk full")

    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(OSError, match="disk full"):
        files.write(path, "numbers", {}, {})
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == ["a"]


def test_a_file_keeps_its_mode(path):
    path.chmod(0o600)
    files.write(path, "numbers", {}, {})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_folder_that_may_not_be_read_is_written_to(path, monkeypatch):
    """Its name is not waited for then. (Who is root may read all folders.)"""
    monkeypatch.setattr("os.open", Mock(side_effect=PermissionError))
    files.write(path, "numbers", {}, {})
    monkeypatch.undo()
    assert files.read(path, "numbers", "") == ({}, {})


def test_no_file_is_the_systems_own_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        files.read(tmp_path / "none", "model", "")
    for wrong in (None, b"bytes", 3):
        with pytest.raises(ReadError, match="path: expected the path of a model, found a"):
            files.read(wrong, "model", "")


def lying(path, **changes):
    """Change what the file says of the array ``rows``."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + length])
    head["rows"] |= changes
    text = json.dumps(head).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [10**12]},
        {"shape": [2**62, 2**62]},
        {"shape": [-6]},
        {"shape": [2]},
        {"shape": "x"},
        {"dtype": "F64"},
        {"dtype": "O"},
        {"dtype": "BF16", "shape": [12]},
        {"data_offsets": [0, 10**12]},
        {"data_offsets": [10**12, 10**12 + 24]},
        {"data_offsets": [24, 0]},
        {"data_offsets": [0, 24]},
    ],
    ids=repr,
)
def test_heads_that_lie_are_refused_in_little_memory(path, changes):
    lying(path, **changes)
    tracemalloc.start()
    text = refused(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "damaged" in text or "changed" in text
    assert peak < 10 * path.stat().st_size + 1_000_000


def test_arrays_take_no_more_memory_than_the_file(tmp_path):
    files.write(tmp_path / "a", "numbers", {"a": np.zeros(1_000_000)}, {})
    tracemalloc.start()
    files.read(tmp_path / "a", "numbers", "")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * (tmp_path / "a").stat().st_size


def test_a_file_of_many_gigabytes_that_is_none_of_ours_is_not_read(path):
    """Also one that begins like one of ours."""
    for end in (200, 0):
        with path.open("r+b") as file:
            file.truncate(end)
            file.truncate(2**40)  # without a block on the disk
        assert "damaged, or of another kind" in refused(path)


def test_what_does_not_fit_into_memory_is_told(path, monkeypatch):
    monkeypatch.setattr(files, "_cover", Mock(side_effect=MemoryError))
    size = f"{path.stat().st_size:,}"
    assert f"expected a file that fits into memory, found {size} bytes" in refused(path)


READERS = {
    "lines": lambda path: list(fb.trees.read_brackets(path)),
    "vectors": fb.trees.read_vectors,
    "python": FORMATS["python"].read,
    "configuration": lambda path: read_configuration(path, {}),
    "predict": lambda path: next(_structures(str(path), read_configuration(None, {}))),
    "model": fb.load,
}


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_with_a_name_is_refused_and_not_waited_for(reader, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ReadError, match="found a pipe or a device"):
        READERS[reader](tmp_path / "pipe")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux")
def test_a_pipe_that_the_process_has_open_is_read():
    reads, writes = os.pipe()
    os.write(writes, b"(1 a)")
    os.close(writes)
    (tree,) = fb.trees.read_brackets(f"/proc/self/fd/{reads}")
    os.close(reads)
    assert tree.words() == ("a",)


def test_a_name_twice_and_a_nest_without_end_are_refused(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + length])
    twice = json.dumps(head)[:-1] + ', "rows": ' + json.dumps(head["none"]) + "}"
    nest = json.dumps({"__metadata__": {"foldbatch": '{"header": ' + "[" * 10**5}})
    for text in (twice.encode(), nest.encode()):
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
        refused(path)
