"""Programs as files, which hold a block or a walk as plain data, its parameters and its options."""

import os
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias
from warnings import warn

import msgspec

from foldbatch.blocks.plain import Plain
from foldbatch.engines.runner import Options
from foldbatch.errors import ModelError, NotWholeWarning, frames_inside, shortened
from foldbatch.functions.saving import WrittenWalk
from foldbatch.model.tracer import Tracer, Written
from foldbatch.params.parameters import Array, Parameter
from foldbatch.params.saved import HEADER_VERSION, KIND, read
from foldbatch.system import files
from foldbatch.types import describe_value

IN_A_SCRIPT = "to read this file, make the model in a script and call block.load_parameters(path)"
Notes: TypeAlias = dict[str, Any]


class SavedOptions(msgspec.Struct, forbid_unknown_fields=True):
    """Options that a program is compiled with wherever it is loaded; see `foldbatch.compile`."""

    policy: str
    layout: str
    batched: bool
    share: str | None
    max_calls: int
    precision: str
    seed: Annotated[int, msgspec.Meta(ge=0)]


class Header(msgspec.Struct, forbid_unknown_fields=True):
    """The header of a file: all of a program but its arrays."""

    version: int  # of this form
    origin: Plain | WrittenWalk | None  # the block or function as plain data, or None where there are none
    lost: list[str]  # why not: functions without import path, parameters that only a function reads
    constants: list[str]  # the arrays that are no parameters, by name
    options: SavedOptions  # of the program
    # the number of the next step, from which random numbers are drawn
    step: Annotated[int, msgspec.Meta(ge=0)]
    notes: Notes  # the caller's


def write(
    path: str | os.PathLike[str],
    tracer: Tracer,
    parameters: Mapping[str, Parameter],
    options: Options,
    seed: int,
    step: int,
    notes: Notes | None,
) -> None:
    """Write a program to a file; arguments and errors are those of `foldbatch.Program.save`."""
    notes = _checked({} if notes is None else notes)
    arrays = {name: parameter.fitting(parameter.value, name) for name, parameter in parameters.items()}
    written = tracer.written(parameters)
    program_options: dict[str, Any] = {"max_calls": tracer.max_calls, "seed": seed}
    names = [name for name in SavedOptions.__struct_fields__ if name not in program_options]
    kept = SavedOptions(**program_options, **{name: getattr(options, name) for name in names})
    lost = left_out(written, parameters)
    origin, constants = (None, {}) if lost else (written.plain, written.arrays)
    header = Header(HEADER_VERSION, origin, lost, list(constants), kept, step, notes)
    files.write(path, KIND, arrays | constants, msgspec.to_builtins(header))
    if lost:
        expected, fix = "a model that a file can hold whole", f"{with_paths(lost)}; {IN_A_SCRIPT}"
        warning = NotWholeWarning(os.fspath(path), expected, shortened(lost), fix)
        warn(warning, stacklevel=frames_inside())


def read_header(path: str | os.PathLike[str]) -> tuple[dict[str, Array], Header]:
    """Return the arrays and the header of a file of any version; errors are those of `read_notes`."""
    return read(path, Header, _renewed)


def _renewed(header: dict[str, object]) -> dict[str, object]:
    """Return a header of version 1 as one of this version; others as they are.

    In version 1 blocks and walks stood under keys of their own, and two keys within them had other names.
    What does not fit stays as it is, to be refused.
    """
    if header.get("version") != 1:
        return header
    block, walk = header.get("block"), header.get("walk")
    origin = block if walk is None else walk
    if isinstance(walk, dict):
        cells = walk.get("cells")
        if isinstance(cells, list):
            cells = [_with_key(cell, "found", "place") for cell in cells]
        origin = {**walk, "cells": cells, "form": "walk"}
    elif isinstance(block, dict) and walk is None:
        origin = _with_key({**block, "form": "block"}, "things", "objects")
    fields = {key: x for key, x in header.items() if key not in ("block", "walk")}
    return {**fields, "version": HEADER_VERSION, "origin": origin}


def _with_key(data: object, former: str, name: str) -> object:
    """Return a dict with another name for a key; other data as they are."""
    return {name if key == former else key: x for key, x in data.items()} if isinstance(data, dict) else data


def left_out(written: Written, parameters: Mapping[str, Parameter]) -> list[str]:
    """Return the parts of a program that a file cannot hold, described for people; none if it holds all.

    Of `parameters`, by name, those that no block holds have no place in a file.
    """
    if written.lost or not isinstance(written.plain, Plain):  # a walk is written whole, or refused
        return written.lost
    stored = {obj.state["array"] for obj in written.plain.objects if obj.kind == "Parameter" and obj.state}
    return [
        f"the parameter {name!r}, which only a function reads" for name in parameters if name not in stored
    ]


def with_paths(lost: list[str]) -> str:
    """Return the fix for a program with parts that a file cannot hold."""
    if lost[0].startswith("the parameter"):
        return "make its layer a block of the model, or pass it to the function by functools.partial"
    return "write GetItem or a function of a module in place of a lambda"


def read_notes(path: str | os.PathLike[str]) -> Notes:
    """Return the notes that `Program.save` was given for a file.

    Raises:
        ReadError: when the file is damaged or was changed, holds something else, or was written by a newer
            version.
        OSError: when there is no such file, or it cannot be read.
    """
    return read_header(path)[1].notes


def _checked(notes: Any) -> Notes:
    """Return the user's notes for a file; raise `ModelError` if JSON cannot hold them."""
    try:
        is_json = isinstance(notes, dict) and msgspec.json.decode(msgspec.json.encode(notes)) == notes
    except (TypeError, ValueError, RecursionError):
        is_json = False
    if not is_json:
        expected = (
            "JSON data: a dict with keys of str, of lists, dicts, strings, finite numbers, bools and None"
        )
        fix = "for example {'classes': ['neg', 'pos']}"
        raise ModelError("notes", expected, describe_value(notes), fix)
    checked: Notes = notes
    return checked
