"""Loading: from a file that `Program.save` wrote to a compiled program, or to the parameters of a block.

A file may come from anywhere: what it holds is checked before anything is made of it, it names no function
that could do harm unless the caller trusts it, and no parameter is larger than its array in the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import msgspec

from foldbatch import files
from foldbatch.blocks.block import RUNNERS, AnyBlock, as_block
from foldbatch.blocks.lower import Lowered, lower
from foldbatch.blocks.paths import Trusted, trust_in
from foldbatch.blocks.plain import from_plain
from foldbatch.blocks.values import refuse_no_count
from foldbatch.compiling import prepare
from foldbatch.engines.engine import check_precision, choose_engine
from foldbatch.engines.runner import Options
from foldbatch.errors import BackendError, FoldbatchError, ReadError, UnknownNameError, shortened
from foldbatch.params import Array
from foldbatch.program import Program
from foldbatch.saving import KIND, VERSION, Header, Kept, Notes
from foldbatch.scheduler.policies import find_policy
from foldbatch.store import ParameterStore, name_parameters

WHAT = "a model that foldbatch wrote"
ANEW = "save the model anew"
OPTIONS = {*Kept.__struct_fields__, "debug", "threads"}


def load(
    path: str | os.PathLike[str],
    backend: str = "auto",
    *,
    trust: Iterable[Trusted] = (),
    **options: Any,
) -> Program:
    """Return the program that `Program.save` wrote to a file.

    It computes what the saved one did, to the last bit on the same backend and machine. It trains on from
    the same step, and frozen parameters stay frozen. A file may name functions of this package, and a few of
    Python and NumPy that only compute. It may call functions of yours only where `trust` has them.

    Args:
        path: of the file.
        backend: as of `foldbatch.compile`.
        trust: modules, functions and classes that the file may name, or their names: ``("mymodels",)`` for a
            module and those below it, ``("mymodels:clean",)`` for a function, ``(__name__,)`` for the script
            that calls. Modules are imported when the file asks for them.
        options: other options of `foldbatch.compile`, in place of those that the program was saved with.

    Raises:
        ReadError: when the file is damaged or was changed, holds something else, or was written by a newer
            version; or when functions of the model are not found, or not trusted: the message says how to
            trust them, or that `Block.load_parameters` fills a block that a script makes.
        OSError: when there is no such file, or it cannot be read.
        FoldbatchError: when an option is wrong, as of `foldbatch.compile`, or `trust` has something else.

    >>> import tempfile; import foldbatch as fb
    >>> words = fb.trees.Vocabulary(["good", "bad"])
    >>> ids = fb.Map(fb.InputTransform(words) >> fb.Scalar("int32"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fb.compile(ids, "numpy").save(f"{folder}/ids.safetensors", {"language": "en"})
    ...     program, notes = fb.load(f"{folder}/ids.safetensors"), read_notes(f"{folder}/ids.safetensors")
    >>> [int(x) for x in program.run([["bad", "day"]])[0]], notes
    ([2, 0], {'language': 'en'})
    """
    trusted = trust_in(trust)
    arrays, header = _read(path)
    where = os.fspath(path)
    if header.block is None:
        fix = "give them import paths, or make the block in a script and call block.load_parameters(path)"
        raise ReadError(where, "functions that have import paths", shortened(header.lost), fix)
    try:
        block, parameters = from_plain(header.block, arrays, trusted)
    except FoldbatchError as error:
        raise ReadError(f"{where}: {error.where}", error.expected, error.found, error.fix) from None
    unknown = options.keys() - OPTIONS
    if unknown:
        expected = f"options of fb.compile: {', '.join(sorted(OPTIONS))}"
        raise UnknownNameError("load", expected, shortened(sorted(unknown)))
    kept: dict[str, Any] = msgspec.structs.asdict(header.options)
    if "precision" not in options:
        kept["precision"] = _precision(header.options.precision, backend)
    kept |= options
    seed = kept.pop("seed")
    refuse_no_count("seed", seed, 0)
    lowered, ready = _lowered(where, block, backend, kept)
    if name_parameters(lowered.model.parameters) != parameters:
        raise ReadError(where, WHAT, "a block that has other parameters than the file", ANEW)
    program = Program(lowered, ready, seed)
    program.steps_drawn = header.step
    return program


def read_notes(path: str | os.PathLike[str]) -> Notes:
    """Return the notes that `Program.save` was given for a file.

    Raises:
        ReadError: when the file is damaged or was changed, holds something else, or was written by a newer
            version.
        OSError: when there is no such file, or it cannot be read.
    """
    return _read(path)[1].notes


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Array], Header]:
    arrays, data = files.read(path, KIND, ANEW)
    where, version = os.fspath(path), data.get("version")
    if isinstance(version, int) and version > VERSION:
        found = f"one of a newer version ({version}, this is {VERSION})"
        raise ReadError(where, WHAT, found, "install a newer foldbatch")
    try:
        return arrays, msgspec.convert(data, Header)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ReadError(where, WHAT, f"a header that does not fit: {error}", ANEW) from error


def _precision(precision: str, backend: str) -> str:
    """Return the precision of the file where a backend has it, and the common one elsewhere."""
    try:
        check_precision(precision, choose_engine(backend))
    except BackendError:
        return "fp32"
    return precision


def _lowered(where: str, block: AnyBlock, backend: str, options: dict[str, Any]) -> tuple[Lowered, Options]:
    """Lower a block of a file; what cannot be lowered is an error of the file."""
    try:
        return prepare(block, backend, **options)
    except FoldbatchError:
        raise
    except Exception as error:
        found = f"a block that raises {type(error).__name__}: {error}"
        raise ReadError(where, WHAT, found, ANEW) from error


def _load_parameters(block: Any, path: str | os.PathLike[str]) -> None:
    arrays, header = _read(path)
    store = ParameterStore(name_parameters(lower(as_block(block), find_policy("auto")).model.parameters))
    names = sorted(arrays.keys() - header.constants)
    store.update({name: arrays[name] for name in names}, strict=True)


RUNNERS["load_parameters"] = _load_parameters
