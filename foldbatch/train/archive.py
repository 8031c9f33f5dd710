"""Archives: named arrays in one file with a digest, read without trusting what the file says of its sizes.

The file is what NumPy writes with `np.savez`: an uncompressed zip archive of arrays, and no code. Arrays are
read here because `np.load` would make room for any shape that a file declares.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import struct
import tokenize
import uuid
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from foldbatch.errors import ReadError

Array = NDArray[Any]
DIGEST = "digest"
SUFFIX = ".npy"
HEADER = 1000  # bytes that an array's header takes at most
# errors that reading a file raises when it is no zip archive of arrays, or a damaged one
DAMAGE = (
    zipfile.BadZipFile,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ArithmeticError,
    OSError,
    SyntaxError,
    tokenize.TokenError,
    struct.error,
    zlib.error,
)


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays to a file, which appears under its name when it is complete, or not at all.

    Raises:
        OSError: when the file cannot be written.
    """
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    digest = np.frombuffer(_digest(arrays), np.uint8)
    partial_file = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with partial_file.open("xb") as file:
            np.savez(file, **arrays, **{DIGEST: digest})  # type: ignore[arg-type]  # none is called allow_pickle
            file.flush()
            os.fsync(file.fileno())
        partial_file.replace(path)
    finally:
        partial_file.unlink(missing_ok=True)


def read_arrays(path: Path, what: str) -> dict[str, Array]:
    """Return the arrays that `write_arrays` wrote to a file, by name.

    All arrays together take no more memory than the file has bytes.

    Args:
        path: of the file.
        what: what the file should be, for errors.

    Raises:
        ReadError: when the file is damaged, was changed, or is of another kind.
        OSError: when there is no such file, or it cannot be opened.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_arrays(Path(folder, "numbers"), {"a": np.arange(3)})
    ...     read_arrays(Path(folder, "numbers"), "numbers")
    {'a': array([0, 1, 2])}
    """
    with path.open("rb") as file:
        try:
            arrays = _read(file)
            digest = arrays.pop(DIGEST, None)
            right = _digest(arrays)
        except DAMAGE as error:
            found = "a file that is damaged, or of another kind"
            raise ReadError(str(path), what, found, "prepare it anew") from error
    if digest is None or digest.tobytes() != right:
        changed, other = (
            "a file that was changed since it was written",
            "one of another kind or an older version",
        )
        found = other if digest is None else changed
        raise ReadError(str(path), what, found, "prepare it anew")
    return arrays


def _read(file: BinaryIO) -> dict[str, Array]:
    size = os.fstat(file.fileno()).st_size
    arrays: dict[str, Array] = {}
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        # stored as they are, and none twice, so they cannot be more than the file
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("compressed")
        if sum(max(member.file_size, member.compress_size) for member in members) > size:
            raise ValueError("members that are larger than the file")
        for member in members:
            name = member.filename.removesuffix(SUFFIX)
            if name in arrays:
                raise ValueError("a name twice")
            arrays[name] = _array(bytearray(archive.read(member)))
    return arrays


def _array(data: bytearray) -> Array:
    """Return the array in the text of a file of NumPy's, if it fills the text."""
    head = io.BytesIO(data[:HEADER])
    if npy.read_magic(head) != (1, 0):
        raise ValueError("another version")
    shape, fortran, dtype = npy.read_array_header_1_0(head, HEADER)
    if dtype.hasobject or fortran or math.prod(shape) * dtype.itemsize != len(data) - head.tell():
        raise ValueError("an array of another size, order or kind")
    return np.ndarray(shape, dtype, data, head.tell())


def _digest(arrays: Mapping[str, Array]) -> bytes:
    """Return a digest of names, dtypes, shapes and contents. It finds changes, and is no signature."""
    whole = hashlib.blake2b(digest_size=32)
    for name in sorted(arrays):
        array = arrays[name]
        whole.update(repr((name, array.dtype.str, array.shape)).encode())
        whole.update(array.data if array.size else b"")
    return whole.digest()
