"""The command ``foldbatch data``: files of trees counted, checked, converted and split."""

import gzip
import json
import os
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foldbatch.commands.options import at_least_0, whole_number
from foldbatch.errors import BlockUseError, FoldbatchError, UnknownNameError, counted, shortened, with_nearest
from foldbatch.recipes.configuration import Data
from foldbatch.recipes.data import Origin, without
from foldbatch.schema import infer
from foldbatch.system.files import write_whole
from foldbatch.trees import Tree, read_jsonlines, tree_statistics, write_json
from foldbatch.trees.formats import FORMATS, RECORDS, Names, format_of

PARTS = ("train", "dev", "test")
PACKED = ".gz"
SHOWN_PAIRS = 10  # labels, arities and words that are printed
FIX = "name another folder"
SCHEMA = "print what the records of a file hold, as foldbatch train will read them"
LABEL = "label"
OF_TEXTS = "are read as any text is, by n-grams of characters; write numbers as numbers to have them read so"
READERS = [name for name, format_ in FORMATS.items() if format_.read]
WRITERS = {name: format_.write for name, format_ in FORMATS.items() if format_.write}


def main(arguments: Sequence[str], prog: str) -> int:
    """Run one of the five tasks; return the exit status: 1 where a check failed."""
    options = _parser(prog).parse_args(arguments)
    tasks = {"stats": _stats, "check": _check, "convert": _convert, "split": _split, "schema": _schema}
    return tasks[options.task](options)


def _stats(options: Namespace) -> int:
    """Print the statistics of the trees in files; return the exit status."""
    figures = tree_statistics(tree for path in options.files for tree in _read(path, options.format))
    if options.json:
        print(json.dumps(figures))
        return 0
    for name, value in figures.items():
        pairs = list(value.items()) if isinstance(value, dict) else []
        ending = f" and {len(pairs) - SHOWN_PAIRS} more" if len(pairs) > SHOWN_PAIRS else ""
        listed = ", ".join(f"{key} {number:,.4g}" for key, number in pairs[:SHOWN_PAIRS])
        print(f"{name}: {listed + ending if pairs else value}")
    return 0


def _check(options: Namespace) -> int:
    """Read every file to its end, or to its first fault."""
    status = 0
    for path in options.files:
        try:
            name = options.format or format_of(path)
            count = sum(1 for _ in _read(path, name))
        except (FoldbatchError, OSError) as error:
            print(f"error: {error}", file=sys.stderr)
            status = 1
        else:
            print(f"{path}: {counted(count, 'record' if name in RECORDS else 'tree')}")
    return status


def _convert(options: Namespace) -> int:
    """Convert a file of trees to another format; return the exit status."""
    writer, number = _writer(options.output, options.to), 0

    def written(tree: Tree) -> str:
        """Return a tree as text of the output's format; errors name its place in the input."""
        nonlocal number
        number += 1
        try:
            return writer(tree)
        except FoldbatchError as error:
            place = Origin(str(options.file), Data(format=options.format or format_of(options.file)))
            where = f"{place.place(number)} {error.where}"
            raise type(error)(where, error.expected, error.found, error.fix) from None

    _write(options.output, _read(options.file, options.format), written)
    return 0


def _schema(options: Namespace) -> int:
    """Print the schema of the records in a file; return the exit status."""
    records = list(read_jsonlines(options.file))
    if not records:
        raise FoldbatchError(str(options.file), "one record or more", "none", "check the path")
    there = dict.fromkeys(str(key) for record in records if isinstance(record, dict) for key in record)
    label = LABEL if options.label is None else options.label
    for key in [*options.leave_out, *([] if options.label is None else [label])]:
        if key not in there:
            expected = f"a key of its records: {shortened(there)}"
            raise UnknownNameError(str(options.file), expected, with_nearest(key, there))
    schema = infer(without(records, [*options.leave_out, label]))
    print(schema)
    if spelled_out := schema.texts_of_values():
        print(f"note: texts of dates or numbers, such as {shortened(spelled_out)}, {OF_TEXTS}")
    return 0


def _split(options: Namespace) -> int:
    """Write the examples of a file to train, dev and test, at random; those of a part keep their order."""
    name = options.format or format_of(options.file)
    format_, packed = FORMATS[name], PACKED * (options.file.suffix == PACKED)
    written: Callable[[Any], str] = format_.write or write_json
    ending = Path(options.file.name.removesuffix(packed)).suffix + packed if format_.write else ".jsonl"
    examples = list(_read(options.file, name))  # all of it, before anything is written
    if format_.samples and format_.separator:  # labels that no tree has
        examples, written = _texts(options.file, format_.separator), str
        ending = format_.ending + packed
    paths = [options.folder / f"{part}{ending}" for part in PARTS]
    if os.path.realpath(options.file) in map(os.path.realpath, paths):
        raise BlockUseError(str(options.folder), "a folder to write to", "that of FILE, which is a part", FIX)
    if not 0 < sum(options.shares) < np.inf:
        raise BlockUseError("--shares", "shares with a sum above 0", str(sum(options.shares)), "say 80 10 10")
    shares = np.array(options.shares) / sum(options.shares)
    ends = np.round(np.cumsum(shares) * len(examples)).astype(int)
    order = np.random.default_rng(options.seed).permutation(len(examples))
    options.folder.mkdir(parents=True, exist_ok=True)
    for path, numbers in zip(paths, np.split(order, ends[:2]), strict=True):
        _write(path, [examples[number] for number in sorted(numbers)], written)
        print(f"{path}: {counted(len(numbers), 'record' if name in RECORDS else 'tree')}")
    return 0


def _texts(path: Path, end: str) -> list[str]:
    """Return the text of each example of a file, ended by a line or by an empty one."""
    with (gzip.open if path.suffix == PACKED else open)(path, "rt", encoding="utf-8-sig") as file:
        texts = "\n".join(line.rstrip() for line in file).split(end)
    return [text.strip("\n") + end[1:] for text in texts if re.search("(?m)^[^#\n]", text)]


def _read(path: Path, format_: str | None) -> Iterable[Any]:
    """Return the examples of a file, by default in the format that its ending says."""
    name = format_ or format_of(path)
    if name in RECORDS:
        return read_jsonlines(path)
    read = FORMATS[name].read
    assert read is not None
    return read(path)


def _writer(path: Path, format_: str | None) -> Callable[[Tree], str]:
    name = format_ or format_of(path)
    if name not in WRITERS:
        expected = f"a format that is written: {', '.join(WRITERS)}"
        raise UnknownNameError(str(path), expected, name, "name a file .jsonl, or give --to")
    return WRITERS[name]


def _write(path: Path, trees: Iterable[object], writer: Callable[[Any], str]) -> None:
    text = "".join(f"{writer(tree)}\n" for tree in trees).encode()
    write_whole(path, gzip.compress(text, mtime=0) if path.suffix == PACKED else text)


def _parser(prog: str) -> ArgumentParser:
    """Return the parser of the arguments of ``foldbatch data``, with a subparser for each task."""
    parser = ArgumentParser(prog=prog, description="Count, check, convert and split files of examples.")
    tasks = parser.add_subparsers(dest="task", required=True, metavar="stats|check|convert|split|schema")

    def task(name: str, purpose: str, formats: Sequence[str] = ()) -> ArgumentParser:
        command: ArgumentParser = tasks.add_parser(name, help=purpose, description=purpose)
        names = Names([*READERS, *formats])
        command.add_argument("--format", choices=names, help="by default what the ending says")
        return command

    stats = task("stats", "sizes, heights, arities, labels and words of all files together")
    stats.add_argument("files", nargs="+", type=Path, metavar="FILE")
    stats.add_argument("--json", action="store_true", help="print them as JSON")
    check = task("check", "read files to their end; name the first fault of each, and fail", RECORDS)
    check.add_argument("files", nargs="+", type=Path, metavar="FILE")
    convert = task("convert", "write the trees of a file as brackets or as lines of JSON")
    convert.add_argument("file", type=Path, metavar="FILE")
    convert.add_argument("output", type=Path, metavar="OUTPUT")
    convert.add_argument("--to", choices=WRITERS, help="by default what the ending of OUTPUT says")
    schema = tasks.add_parser("schema", help=SCHEMA, description=SCHEMA)
    schema.add_argument("file", type=Path, metavar="FILE.jsonl")
    help_text = f"of the label, which is not read (default {LABEL}, where there is one)"
    schema.add_argument("--label", metavar="KEY", help=help_text)
    help_text = "of the records, to leave out; training does so by --data.leave_out"
    schema.add_argument("--leave-out", nargs="*", default=[], metavar="KEY", help=help_text)
    split = task("split", "write the examples of a file to train, dev and test, at random", RECORDS)
    split.add_argument("file", type=Path, metavar="FILE")
    split.add_argument("folder", type=Path, metavar="FOLDER")
    shares = "of train, dev and test (default 80 10 10)"
    split.add_argument("--shares", nargs=3, type=at_least_0, default=(80, 10, 10), metavar="N", help=shares)
    split.add_argument("--seed", type=whole_number(0), default=0, help="of the draw (default 0)")
    return parser
