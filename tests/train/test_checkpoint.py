"""Checkpoint files: any plain data with arrays in it comes back as it was."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest

from foldbatch import files
from foldbatch.engines.pending import Pending
from foldbatch.errors import ReadError, TrainingError
from foldbatch.train import checkpoint


def test_a_state_comes_back(tmp_path):
    state = {
        "numbers": [0, -1, 2**63, 0.1, -0.0, 5e-324, math.inf, -math.inf, True, None],
        "text": {"": "", "$": "a", "é": "\n"},
        "arrays": {"a": {"b": np.zeros(())}, "a/b": np.arange(6)[::2], "t": np.ones((2, 3), np.float32).T},
        "list": [np.zeros((0, 2)), [[]], {}],
    }
    checkpoint.write(tmp_path / "x", state)
    read = checkpoint.read(tmp_path / "x")
    np.testing.assert_equal(read, state)
    assert math.copysign(1, read["numbers"][4]) == -1
    assert read["arrays"]["t"].dtype == np.float32
    assert "arrays/t" in files.read(tmp_path / "x", "checkpoint", "")[0]


def test_numbers_of_others_become_plain(tmp_path):
    given = {"x": [np.float32(0.5), np.int64(3), np.bool_(True), Pending(lambda: 1.5), math.nan, (1, 2)]}
    checkpoint.write(tmp_path / "x", given)
    read = checkpoint.read(tmp_path / "x")["x"]
    assert [type(x) for x in read] == [float, int, bool, float, float, list]
    assert read[:4] == [0.5, 3, True, 1.5]
    assert math.isnan(read[4])


@pytest.mark.parametrize("value", [object(), {1: 2}, b"bytes", {3}, 1j])
def test_what_is_no_plain_data_is_refused(tmp_path, value):
    with pytest.raises(TrainingError, match="checkpoint at callbacks/Own/x/0: expected plain data"):
        checkpoint.write(tmp_path / "x", {"callbacks": {"Own": {"x": [value]}}})
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_none_is_refused(tmp_path):
    files.write(tmp_path / "x", "model", {}, {})
    with pytest.raises(ReadError, match="a checkpoint that foldbatch wrote, found a model"):
        checkpoint.read(tmp_path / "x")
    files.write(tmp_path / "x", "checkpoint", {}, {"w": {"$array": "w"}})
    with pytest.raises(ReadError, match="does not fit its arrays"):
        checkpoint.read(tmp_path / "x")


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path):
    folder, link, pipe, lost = (tmp_path / name for name in ("folder", "link", "pipe", "lost"))
    folder.mkdir()
    link.symlink_to(link)
    os.mkfifo(pipe)
    lost.symlink_to(tmp_path / "none")
    for path in (folder, link, pipe, lost):
        with pytest.raises(ReadError, match=f"{path}: expected a file, found a folder, a pipe"):
            checkpoint.read(path)
    with pytest.raises(FileNotFoundError):
        checkpoint.read(tmp_path / "none")
