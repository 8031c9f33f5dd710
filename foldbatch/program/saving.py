"""Programs as files, which hold a block or a walk as plain data, its parameters and its options.

The file is one of `foldbatch.system.files`, of the kind ``model``. Nothing in it is code.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import msgspec

from foldbatch.blocks.plain import Plain
from foldbatch.engines.runner import Options
from foldbatch.errors import ModelError, ReadError
from foldbatch.functions.saving import WrittenWalk
from foldbatch.model.tracer import Tracer
from foldbatch.params.parameters import Array, Parameter
from foldbatch.system import files
from foldbatch.types import describe_value

KIND = "model"
VERSION = 1  # of the header
WHAT = "a model that foldbatch wrote"
ANEW = "save the model anew"
Notes: TypeAlias = dict[str, Any]


class Kept(msgspec.Struct, forbid_unknown_fields=True):
    """Options that a program is compiled with wherever it is loaded; see `foldbatch.compile`."""

    policy: str
    layout: str
    batched: bool
    share: str | None
    kept_bytes: int | None
    max_calls: int
    precision: str
    seed: Annotated[int, msgspec.Meta(ge=0)]


class Header(msgspec.Struct, forbid_unknown_fields=True):
    """What a file says besides arrays.

    Attributes:
        version: of this form.
        block: the block as plain data, or None where it cannot be written as such.
        lost: why not: functions without an import path.
        constants: the arrays that are no parameters, by name.
        options: of the program.
        step: the number of the next step, from which random numbers are drawn.
        notes: the caller's.
        walk: the plain function, in place of a block.
    """

    version: int
    block: Plain | None
    lost: list[str]
    constants: list[str]
    options: Kept
    step: Annotated[int, msgspec.Meta(ge=0)]
    notes: Notes
    walk: WrittenWalk | None = None


def write(
    path: str | os.PathLike[str],
    tracer: Tracer,
    parameters: Mapping[str, Parameter],
    options: Options,
    seed: int,
    step: int,
    notes: Notes | None,
) -> None:
    """Write a program; `foldbatch.Program.save` says of what, and its errors."""
    notes = _checked({} if notes is None else notes)
    arrays = {name: parameter.fitting(parameter.value, name) for name, parameter in parameters.items()}
    written = tracer.written(parameters)
    kept = Kept(
        policy=options.policy,
        layout=options.layout,
        batched=options.batched,
        share=options.share,
        kept_bytes=tracer.model.kept_bytes,
        max_calls=tracer.max_calls,
        precision=options.precision,
        seed=seed,
    )
    plain, constants = (None, {}) if written.lost else (written.plain, written.arrays)
    of_walk = isinstance(plain, WrittenWalk)
    block, walk = (None, plain) if of_walk else (plain, None)
    header = Header(VERSION, block, written.lost, list(constants), kept, step, notes, walk)
    files.write(path, KIND, arrays | constants, msgspec.to_builtins(header))


def read_notes(path: str | os.PathLike[str]) -> Notes:
    """Return the notes that `Program.save` was given for a file.

    Raises:
        ReadError: when the file is damaged or was changed, holds something else, or was written by a newer
            version.
        OSError: when there is no such file, or it cannot be read.
    """
    return read(path)[1].notes


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Array], Header]:
    """Return the arrays of a file and what it says besides; errors are those of `read_notes`."""
    arrays, data = files.read(path, KIND, ANEW)
    where, version = os.fspath(path), data.get("version")
    if isinstance(version, int) and version > VERSION:
        found = f"one of a newer version ({version}, this is {VERSION})"
        raise ReadError(where, WHAT, found, "install a newer foldbatch")
    try:
        return arrays, msgspec.convert(data, Header)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ReadError(where, WHAT, f"a header that does not fit: {error}", ANEW) from error


def _checked(notes: Any) -> Notes:
    """Return notes, refusing what would be read as something else."""
    try:
        same = isinstance(notes, dict) and msgspec.json.decode(msgspec.json.encode(notes)) == notes
    except (TypeError, ValueError, RecursionError):
        same = False
    if not same:
        expected = (
            "JSON data: a dict with keys of str, of lists, dicts, strings, finite numbers, bools and None"
        )
        fix = "for example {'classes': ['neg', 'pos']}"
        raise ModelError("notes", expected, describe_value(notes), fix)
    checked: Notes = notes
    return checked
