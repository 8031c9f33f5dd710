"""Files: written whole or not at all, kept by one process; named arrays with a header and a digest in one.

Source: https://github.com/huggingface/safetensors, whose format has no digest of its own.
"""

import errno
import hashlib
import os
import stat
import struct
from argparse import ArgumentTypeError
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, TypeAlias
from uuid import uuid4

import msgspec
import numpy as np
import safetensors
from numpy.typing import ArrayLike, NDArray
from safetensors.numpy import load, save

from foldbatch.errors import BlockValueError, ReadError, TrainingError


def output_file(text: str) -> Path:
    """Read the name of a file to write; what it is for takes long, so a wrong one is refused before.

    >>> output_file("figures.json").name
    'figures.json'
    """
    path = Path(text)
    if not path.parent.is_dir():
        raise ArgumentTypeError(f"expected a file in a folder that exists, found {text}")
    if path.is_dir():
        raise ArgumentTypeError(f"expected a file, found the folder {text}")
    return path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file and wait until it is on the disk; a former file of the name stays where that fails.

    A process that is killed meanwhile may leave a file ``.NAME.*.partial`` beside it.
    """
    target = Path(os.path.realpath(path))  # which knows links that lead to themselves
    if target.exists() and not target.is_file():  # a pipe, or a terminal
        target.write_bytes(content)
        return
    temporary = target.with_name(f".{target.name}.{uuid4().hex}.partial")
    try:
        with temporary.open("xb") as file:
            if target.exists():  # the new file keeps its permissions
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:  # of the name that the user knows; a full disk would have no name at all
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):  # where no folder is, no file is left
            temporary.unlink(missing_ok=True)
    with suppress(PermissionError):  # of a folder that may be written to and not read
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # so that the name, too, is there after a crash of the machine
        finally:
            os.close(folder)


def write_picture(path: str | os.PathLike[str], text: str) -> None:
    """Write a picture that is text whole, to a name that says what it is."""
    if Path(path).suffix.lower() != ".svg":
        raise BlockValueError("path", "a name that ends in .svg", repr(str(path)), "browsers show such files")
    write_whole(Path(path), text.encode())


def refuse_endless(path: str | os.PathLike[str]) -> None:
    """Raise a ReadError for a pipe or a device that has a name: reading it may never end.

    What this process was given open is read, such as ``/dev/stdin``, or a shell's ``<(command)``.
    """
    is_, text = os.path, os.fspath(path)  # whose answers on any text are quiet
    if is_.exists(text) and not is_.isfile(text) and not is_.isdir(text) and is_.exists(is_.realpath(text)):
        raise ReadError(text, "a file", "a pipe or a device", "name a file, or use the standard input")


def remove_partial(folder: Path, names: Iterable[str]) -> None:
    """Remove what processes that were killed while they wrote files of these names have left in a folder."""
    for name in names:
        for leftover in folder.glob(f".{name}.*.partial"):
            leftover.unlink(missing_ok=True)


LOCK: Final = ".foldbatch.lock"  # the file in a folder that stands for it; it stays, and holds nothing
LOCKLESS: Final = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)  # of file systems


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep a folder for this process, within a ``with`` statement; the system lets go of it where it ends.

    A file in the folder is locked, by `filelock`. Where the folder's file system has no such locks, as some
    network file systems, nothing is.

    Raises:
        TrainingError: when another ``with`` statement holds the folder, here or in another process.
        OSError: when there is no such folder, or no file can be made in it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name, locked(Path(name)):
    ...     try:
    ...         with locked(Path(name)):
    ...             pass
    ...     except TrainingError as error:
    ...         print(str(error).partition(": ")[2].partition(";")[0])
    expected a folder that no other training writes to, found one that does
    """
    from filelock import FileLock, Timeout  # noqa: PLC0415 - what only reads and writes files need not wait

    folder.stat()  # some versions of the library would make it
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        fix = "wait for it or end it, or name another folder"
        expected = "a folder that no other training writes to"
        raise TrainingError(str(folder), expected, "one that does", fix) from None
    except OSError as error:
        if error.errno not in LOCKLESS:
            raise
    except NotImplementedError:  # what earlier versions of the library say of such file systems
        pass
    try:
        yield
    finally:
        with suppress(OSError):  # where there was no lock
            lock.release()


Array = NDArray[Any]
Header: TypeAlias = dict[str, Any]  # the caller's header of a file, data of JSON
VERSION = 1
KEY = "foldbatch"  # of the one text that the format's own header holds for us
LENGTH = struct.Struct("<Q")  # of the format's own header, which comes first
MAX_HEADER_BYTES = 100_000_000  # bytes of it that the format allows
DAMAGED = LookupError, TypeError, ValueError, AttributeError  # of what has another form than ours


class Cover(msgspec.Struct):
    """The description of a file in its header: format version, kind, digest, and the caller's header."""

    version: int
    kind: str
    digest: str
    header: msgspec.Raw


def write(
    path: str | os.PathLike[str], kind: str, arrays: Mapping[str, ArrayLike], header: Mapping[str, object]
) -> None:
    """Write arrays and a header to a file; where that fails, a former file of the name stays as it was."""
    _check_path(path, kind)
    # the format's writer would store an array that is not contiguous in the wrong order
    plain = {name: np.require(array, requirements="C") for name, array in arrays.items()}
    text = msgspec.Raw(msgspec.json.encode(header))
    cover = Cover(VERSION, kind, _digest(kind, bytes(text), plain), text)
    write_whole(Path(path), save(plain, {KEY: msgspec.json.encode(cover).decode()}))


def _check_path(path: object, kind: str) -> None:
    if not isinstance(path, str | os.PathLike) or "\0" in str(path):
        actual = repr(path) if isinstance(path, str) else f"a {type(path).__name__}"
        raise ReadError("path", f"the path of a {kind}", actual, "give a str or a Path")


def read(path: str | os.PathLike[str], kind: str, fix: str) -> tuple[dict[str, Array], Header]:
    """Return the arrays and the header that `write` wrote to a file. The arrays may be written to.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(Path(folder, "numbers"), "numbers", {"a": np.arange(3)}, {"unit": "m"})
    ...     read(Path(folder, "numbers"), "numbers", "write it anew")
    ({'a': array([0, 1, 2])}, {'unit': 'm'})
    """
    _check_path(path, kind)
    where, expected = os.fspath(path), f"a {kind} that foldbatch wrote"
    if Path(path).is_dir():
        raise ReadError(where, expected, "a folder", "name a file in it; that of a run is model.safetensors")
    if Path(path).exists() and not Path(path).is_file():  # it may have no end
        raise ReadError(where, expected, "a pipe or a device", "name a file")
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            cover = _cover(file, size)
            data = file.read() if cover else b""
        except MemoryError:
            raise ReadError(where, "a file that fits into memory", f"{size:,} bytes", "take more") from None
    if cover is None:
        raise ReadError(where, expected, "a file that is damaged, or of another kind", fix)
    if cover.version > VERSION:
        actual = f"one of a newer version ({cover.version}, this is {VERSION})"
        raise ReadError(where, expected, actual, "install a newer foldbatch")
    if cover.kind != kind:
        raise ReadError(where, expected, f"a {cover.kind}", f"give a file of a {kind}")
    try:
        arrays, header = load(data), msgspec.json.decode(cover.header, type=dict[str, Any])
    except (safetensors.SafetensorError, msgspec.MsgspecError, RecursionError, *DAMAGED) as error:
        raise ReadError(where, expected, "a file that is damaged", fix) from error
    if cover.digest != _digest(kind, bytes(cover.header), arrays):
        raise ReadError(where, expected, "a file that was changed since it was written", fix)
    return dict(sorted(arrays.items())), header  # the format keeps no order


def _cover(file: IO[bytes], size: int) -> Cover | None:
    """Return the description of a file of a size, if foldbatch wrote it; the file is then at its start.

    Nothing but its header is read here; its arrays end where it ends.
    """
    first = file.read(LENGTH.size)
    if len(first) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(first)
    data = size - LENGTH.size - length
    if data < 0 or length > MAX_HEADER_BYTES:
        return None
    try:
        entries = msgspec.json.decode(file.read(length))
        text = entries.pop("__metadata__")[KEY]
        if max((array["data_offsets"][1] for array in entries.values()), default=0) != data:
            return None
        file.seek(0)
        return msgspec.json.decode(text, type=Cover)
    except (msgspec.MsgspecError, RecursionError, *DAMAGED):
        return None


def _digest(kind: str, header: bytes, arrays: Mapping[str, Array]) -> str:
    """Return a digest of all that a file holds. It finds changes, and is no signature."""
    hashed = hashlib.blake2b(digest_size=32)
    hashed.update(repr((kind, len(header))).encode())
    hashed.update(header)
    for name in sorted(arrays):
        array = arrays[name]
        hashed.update(repr((name, array.dtype.str, array.shape)).encode())
        hashed.update(array.data if array.size else b"")
    return hashed.hexdigest()
