"""Files that commands write: refused before a long run where that is impossible, complete or not there."""

import os
from argparse import ArgumentTypeError
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from foldbatch.errors import BlockValueError


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
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # so that the name, too, is there after a crash of the machine
    finally:
        os.close(folder)


def write_picture(path: str | os.PathLike[str], text: str, ending: str = ".svg") -> None:
    """Write a picture that is text whole, to a name that says what it is."""
    if Path(path).suffix.lower() != ending:
        raise BlockValueError(
            "path", f"a name that ends in {ending}", repr(str(path)), "browsers show such files"
        )
    write_whole(Path(path), text.encode())


def remove_partial(folder: Path, names: Iterable[str]) -> None:
    """Remove what processes that were killed while they wrote files of these names have left in a folder."""
    for name in names:
        for left in folder.glob(f".{name}.*.partial"):
            left.unlink(missing_ok=True)
