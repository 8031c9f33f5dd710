"""Saving: a program as one file, which holds its block as plain data, its parameters and its options.

The file is one of `foldbatch.files`, of the kind ``model``. Nothing in it is code.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, TypeAlias

import msgspec

from foldbatch import files
from foldbatch.blocks.lower import Lowered
from foldbatch.blocks.plain import Plain, to_plain
from foldbatch.engines.runner import Options
from foldbatch.errors import ModelError
from foldbatch.store import ParameterStore
from foldbatch.types import describe_value

KIND = "model"
VERSION = 1  # of the header
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
    """

    version: int
    block: Plain | None
    lost: list[str]
    constants: list[str]
    options: Kept
    step: Annotated[int, msgspec.Meta(ge=0)]
    notes: Notes


class Savable:
    """A program that can be written to a file; see `foldbatch.loading` for the way back."""

    lowered: Lowered
    options: Options
    seed: int
    _params: ParameterStore
    steps_drawn: int

    def save(self, path: str | os.PathLike[str], notes: Notes | None = None) -> None:
        """Write the program to a file, for `foldbatch.load`: its block, parameters and options, and no code.

        Functions are written by their import paths. Where one has none, as a lambda has, the file holds the
        parameters only: `Block.load_parameters` reads them, and `foldbatch.load` says which functions it
        lacks. The file is complete under its name, or the former one stays. ``.safetensors`` is its usual
        ending.

        Args:
            path: of the file.
            notes: data of yours, as the names of classes, for `foldbatch.loading.read_notes`: a dict of what
                JSON has.

        Raises:
            ModelError: when the notes are not JSON data; no file has been touched then.
            OSError: when the file cannot be written.

        >>> import tempfile; import foldbatch as fb
        >>> program = fb.compile(fb.Vector(2) >> fb.Linear(1, init="ones"), "numpy")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     program.save(f"{folder}/sum.safetensors")
        ...     fb.load(f"{folder}/sum.safetensors", "numpy").run([[1, 2]])
        [array([3.], dtype=float32)]
        """
        notes = _checked({} if notes is None else notes)
        names = self._params.parameters
        written = to_plain(self.lowered.block, names)
        options = self.options
        kept = Kept(
            policy=options.policy,
            layout=options.layout,
            batched=options.batched,
            share=options.share,
            kept_bytes=self.lowered.model.kept_bytes,
            max_calls=self.lowered.tracer.max_calls,
            precision=options.precision,
            seed=self.seed,
        )
        plain, constants = (None, {}) if written.lost else (written.plain, written.arrays)
        header = Header(VERSION, plain, written.lost, list(constants), kept, self.steps_drawn, notes)
        files.write(path, KIND, {**self._params, **constants}, msgspec.to_builtins(header))


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
