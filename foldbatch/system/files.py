"""Files of arrays: named arrays and a JSON header in one file of the safetensors format, with a digest.

Source: https://github.com/huggingface/safetensors, whose format has no digest of its own.
"""

import hashlib
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import safetensors
from numpy.typing import ArrayLike, NDArray
from safetensors.numpy import load, save

from foldbatch.errors import ReadError
from foldbatch.system.output import write_whole

Array = NDArray[Any]
VERSION = 1
KEY = "foldbatch"  # of the one text that the format's own header holds for us
LENGTH = struct.Struct("<Q")  # of the format's own header, which comes first


class Cover(msgspec.Struct):
    """What a file says of itself: the version of its form, its kind, a digest, and the caller's header."""

    version: int
    kind: str
    digest: str
    header: msgspec.Raw


def write(
    path: str | os.PathLike[str], kind: str, arrays: Mapping[str, ArrayLike], header: Mapping[str, Any]
) -> None:
    """Write arrays and a header to a file; where that fails, a former file of the name stays as it was."""
    # the format's writer would store an array that is not contiguous in the wrong order
    plain = {name: np.require(array, requirements="C") for name, array in arrays.items()}
    text = msgspec.Raw(msgspec.json.encode(header))
    cover = Cover(VERSION, kind, _digest(kind, bytes(text), plain), text)
    write_whole(Path(path), save(plain, {KEY: msgspec.json.encode(cover).decode()}))


def read(path: str | os.PathLike[str], kind: str, fix: str) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays and the header that `write` wrote to a file. The arrays may be written to.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(Path(folder, "numbers"), "numbers", {"a": np.arange(3)}, {"unit": "m"})
    ...     read(Path(folder, "numbers"), "numbers", "write it anew")
    ({'a': array([0, 1, 2])}, {'unit': 'm'})
    """
    where, expected = os.fspath(path), f"a {kind} that foldbatch wrote"
    if Path(path).is_dir():
        raise ReadError(where, expected, "a folder", "name a file in it; that of a run is model.safetensors")
    data = Path(path).read_bytes()
    cover = _cover(data)
    if cover is None:
        raise ReadError(where, expected, "a file that is damaged, or of another kind", fix)
    if cover.version > VERSION:
        found = f"one of a newer version ({cover.version}, this is {VERSION})"
        raise ReadError(where, expected, found, "install a newer foldbatch")
    if cover.kind != kind:
        raise ReadError(where, expected, f"a {cover.kind}", f"give a file of a {kind}")
    try:
        arrays = load(data)
    except (safetensors.SafetensorError, LookupError, TypeError, ValueError) as error:
        raise ReadError(where, expected, "a file that is damaged", fix) from error
    if cover.digest != _digest(kind, bytes(cover.header), arrays):
        raise ReadError(where, expected, "a file that was changed since it was written", fix)
    return dict(sorted(arrays.items())), msgspec.json.decode(cover.header)  # the format keeps no order


def _cover(data: bytes) -> Cover | None:
    """Return what a file says of itself, if it is one of ours."""
    if len(data) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack_from(data)
    try:
        text = msgspec.json.decode(data[LENGTH.size : LENGTH.size + length])["__metadata__"][KEY]
        return msgspec.json.decode(text, type=Cover)
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError, OverflowError, RecursionError):
        return None


def _digest(kind: str, header: bytes, arrays: Mapping[str, Array]) -> str:
    """Return a digest of all that a file holds. It finds changes, and is no signature."""
    whole = hashlib.blake2b(digest_size=32)
    whole.update(repr((kind, len(header))).encode())
    whole.update(header)
    for name in sorted(arrays):
        array = arrays[name]
        whole.update(repr((name, array.dtype.str, array.shape)).encode())
        whole.update(array.data if array.size else b"")
    return whole.hexdigest()
