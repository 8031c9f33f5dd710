"""Files that commands write: refused before a long run where that is impossible, complete or not there."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path
from uuid import uuid4


def output_file(text: str) -> Path:
    """Read the name of a file to write; what it is for takes long, so a wrong one is refused before.

    Raises:
        ArgumentTypeError: when its folder does not exist, or it is a folder itself.

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
    """Write a file; where that fails, a former file of the name stays as it was.

    Raises:
        OSError: when it cannot be written.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():  # a pipe, or a terminal
        target.write_bytes(content)
        return
    temporary = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        temporary.write_bytes(content)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
