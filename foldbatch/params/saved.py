"""Files of programs, as far as parameters go: arrays by name, with a header that tells which are none."""

import os
from collections.abc import Callable
from typing import TypeVar

import msgspec

from foldbatch.errors import ReadError
from foldbatch.params.parameters import Array
from foldbatch.system import files

KIND = "model"
HEADER_VERSION = 2
MODEL_FILE = "a model that foldbatch wrote"
ANEW = "save the model anew"


class ArraysHeader(msgspec.Struct):
    """The header of a file, for a reader of its arrays alone."""

    version: int  # of this form
    constants: list[str]  # the arrays that are no parameters, by name


H = TypeVar("H", bound=msgspec.Struct)


def read(
    path: str | os.PathLike[str],
    header: type[H],
    renewed: Callable[[files.Header], files.Header] = lambda data: data,
) -> tuple[dict[str, Array], H]:
    """Return the arrays and the header of a file that `Program.save` wrote, the header as a struct of a type.

    `renewed` returns the header of an older file as one of this version.

    Raises:
        ReadError: when the file is damaged or was changed, holds something else, or was written by a newer
            version.
        OSError: when there is no such file, or it cannot be read.
    """
    arrays, data = files.read(path, KIND, ANEW)
    where, version = os.fspath(path), data.get("version")
    if isinstance(version, int) and version > HEADER_VERSION:
        actual = f"one of a newer version ({version}, this is {HEADER_VERSION})"
        raise ReadError(where, MODEL_FILE, actual, "install a newer foldbatch")
    try:
        return arrays, msgspec.convert(renewed(data), header)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ReadError(where, MODEL_FILE, f"a header that does not fit: {error}", ANEW) from error


def read_parameters(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Return the numbers of the parameters in a file, by full name; errors are those of `read`."""
    arrays, header = read(path, ArraysHeader)
    return {name: arrays[name] for name in sorted(arrays.keys() - header.constants)}
