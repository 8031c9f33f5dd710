"""Checkpoint files: the state of a training, written whole or not at all, and read back as it was.

A state is plain data: dicts with keys of str, lists, strings, numbers, bools, None, and arrays. JSON has no
arrays, and no numbers that are not finite, so such a value is written as a dict with one key.
"""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from foldbatch import files
from foldbatch.errors import ReadError, TrainingError
from foldbatch.params import Array
from foldbatch.types import describe_value

KIND = "checkpoint"
ARRAY, FLOAT = "$array", "$float"  # the keys of dicts that stand for what JSON does not have
FIX = "delete it, and resume from another one or start anew"


def write(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Write a state to a file; where that fails, a former file of the name stays as it was.

    An array is named by the keys that lead to it, as in ``parameters/embedding.weight``. Numbers of NumPy
    become Python's, and tuples become lists.

    Raises:
        TrainingError: when the state holds something else than plain data and arrays.
        OSError: when the file cannot be written.
    """
    arrays: dict[str, Array] = {}
    header = {key: _plain(value, key, arrays) for key, value in state.items()}
    files.write(path, KIND, arrays, header)


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the state that `write` wrote to a file.

    Raises:
        ReadError: when the file is damaged, is no checkpoint, or was written by a newer version; when it is a
            folder, a pipe, or anything else that is no file.
        OSError: when there is no such file, or it cannot be read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(f"{folder}/last", {"w": np.ones(2), "history": [{"loss": math.inf}]})
    ...     read(f"{folder}/last")
    {'w': array([1., 1.]), 'history': [{'loss': inf}]}
    """
    if os.path.lexists(path) and not Path(path).is_file():
        fix = "delete it, or name another folder"
        raise ReadError(os.fspath(path), "a file", "a folder, a pipe, or a link that leads to no file", fix)
    arrays, header = files.read(path, KIND, FIX)
    try:
        return {key: _restored(value, arrays) for key, value in header.items()}
    except (LookupError, TypeError, ValueError) as error:
        expected = "a checkpoint that foldbatch wrote"
        raise ReadError(os.fspath(path), expected, "a header that does not fit its arrays", FIX) from error


def _plain(value: Any, where: str, arrays: dict[str, Array]) -> Any:
    """Return a value as JSON data; add its arrays to those of the file."""
    if isinstance(value, np.ndarray):
        while where in arrays:  # where names have slashes
            where += "'"
        arrays[where] = value
        return {ARRAY: where}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(entry, f"{where}/{key}", arrays) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry, f"{where}/{i}", arrays) for i, entry in enumerate(value)]
    if value is None or isinstance(value, str | bool | np.bool_):
        return bool(value) if isinstance(value, np.bool_) else value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        return number if math.isfinite(number) else {FLOAT: str(number)}
    fix = "a callback's state() returns dicts with keys of str, lists, numbers, strings and arrays"
    raise TrainingError(f"checkpoint at {where}", "plain data or an array", describe_value(value), fix)


def _restored(value: Any, arrays: Mapping[str, Array]) -> Any:
    """Return the value that `_plain` made JSON data of."""
    if isinstance(value, list):
        return [_restored(entry, arrays) for entry in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {ARRAY}:
        return arrays[value[ARRAY]]
    if value.keys() == {FLOAT}:
        return float(value[FLOAT])
    return {key: _restored(entry, arrays) for key, entry in value.items()}
