"""The command ``foldbatch bench``: the gain of batching on a block and examples that import paths name."""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from foldbatch.blocks import Block
from foldbatch.commands.options import count
from foldbatch.errors import BlockUseError, UnknownNameError
from foldbatch.functions.modules import is_walk
from foldbatch.gain import bench
from foldbatch.program.program import Program
from foldbatch.system.files import output_file, write_whole
from foldbatch.system.showing import arguments_of

FORM = "package.module:attribute or path/to/file.py:attribute"


def named(path: str) -> Any:
    """Return the value that an import path names; modules are looked for in the working directory, too."""
    where, colon, attribute = path.rpartition(":")
    if not colon or not where or not attribute:
        raise UnknownNameError(path, FORM, "no colon between two names", "name both")
    module = _of_file(Path(where), path) if where.endswith(".py") else _of_name(where, path)
    value: Any = module
    for name in attribute.split("."):
        if not hasattr(value, name):
            near = get_close_matches(
                name, [candidate for candidate in dir(value) if not candidate.startswith("_")]
            )
            expected = f"a name that {where} defines"
            raise UnknownNameError(path, expected, repr(name), f"did you mean {near[0]!r}?" if near else "")
        value = getattr(value, name)
    return value


def _of_file(file: Path, path: str) -> ModuleType:
    """Import a file; modules that it imports are also searched in its folder, as when Python runs it."""
    if not file.is_file():
        raise UnknownNameError(path, f"the file {file} to exist", "none", f"name it as {FORM}")
    resolved = file.resolve()
    name = f"foldbatch bench {resolved}"  # none that anyone imports
    if name not in sys.modules:
        spec = spec_from_file_location(name, resolved)
        assert spec is not None, "it ends in .py"
        assert spec.loader is not None, "it is a file"
        module = module_from_spec(spec)
        _search(resolved.parent)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _of_name(name: str, path: str) -> ModuleType:
    """Import a module by its name; refuse a name that leads to none."""
    _search(Path.cwd())
    missing = UnknownNameError(path, f"a module {name} that can be imported", "none", f"name it as {FORM}")
    if not all(part.isidentifier() for part in name.split(".")):
        raise missing
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # what the module itself imports is missing
        raise missing from None


def _search(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def main(arguments: Sequence[str], prog: str) -> int:
    """Measure and print; return the exit status."""
    options = _parser(prog).parse_args(arguments)
    outcome = bench(
        _model(options.block),
        _value_of(options.examples),
        options.batch_sizes,
        options.repeats,
        backend=options.backend,
        threads=options.threads,
        train=options.train,
    )
    print(outcome)  # before anything can go wrong with the file
    if options.json:
        write_whole(options.json, f"{outcome.to_json()}\n".encode())
    return 0


def _model(path: str) -> Any:
    """Return the model that an import path names: a function of one example, or the result of `_value_of`."""
    value = named(path)
    return value if is_walk(value) and _takes_one(value) else _value_of(path)


def _takes_one(function: object) -> bool:
    required = [x for x in arguments_of(function).parameters.values() if x.default is x.empty]
    return len(required) == 1 and required[0].kind in (
        required[0].POSITIONAL_ONLY,
        required[0].POSITIONAL_OR_KEYWORD,
    )


def _value_of(path: str) -> Any:
    """Return the value that an import path names; of a function without arguments, its result."""
    value = named(path)
    if isinstance(value, Block | Program) or not callable(value):
        return value
    try:
        return value()
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise  # from within
        fix = "name a function that takes none, or what it returns"
        raise BlockUseError(path, "a value, or a function without arguments", str(error), fix) from None


def _parser(prog: str) -> ArgumentParser:
    """Return the parser of the arguments of ``foldbatch bench``."""
    parser = ArgumentParser(
        prog=prog,
        description="Measure what batching gains on a block of yours and examples of yours.",
        epilog="To measure foldbatch itself beside other libraries: python -m benchmarks, in a checkout.",
    )
    help_text = f"{FORM}: a block, a program, a function of one example, or one that returns one of these"
    parser.add_argument("block", help=help_text)
    help_text = "the same way: examples in any iterable, or a function that returns one"
    parser.add_argument("examples", help=help_text)
    sizes = "sizes of batches (default 1, 16, 64 and 256, as far as there are examples)"
    parser.add_argument("--batch-sizes", type=count, nargs="+", metavar="N", help=sizes)
    repeats = "timed runs of each task (default 5)"
    parser.add_argument("--repeats", type=count, default=5, metavar="N", help=repeats)
    parser.add_argument("--backend", help="what computes: auto, cuda, llvm or numpy (default auto)")
    threads = "into how many parts a large batch is cut (default: the cores at hand)"
    parser.add_argument("--threads", type=count, metavar="N", help=threads)
    task = parser.add_mutually_exclusive_group()
    only = "measure {} only (default: both, as far as the block has losses)"
    task.add_argument("--train", action="store_const", const=True, help=only.format("training steps"))
    task.add_argument(
        "--infer", dest="train", action="store_const", const=False, help=only.format("inference")
    )
    figures = "write all figures to a file, for programs"
    parser.add_argument("--json", type=output_file, metavar="FILE", help=figures)
    return parser
