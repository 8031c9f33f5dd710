"""The command ``foldbatch predict``: classes or numbers of new data, as JSON lines or drawn."""

import gzip
import sys
from argparse import ArgumentParser
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from io import TextIOWrapper
from typing import IO, Any

import msgspec

from foldbatch.commands.options import add
from foldbatch.errors import ReadError, counted, shortened
from foldbatch.program.predicting import predictions
from foldbatch.recipes.configuration import Configuration, Data, check_arity
from foldbatch.recipes.data import unlike
from foldbatch.recipes.fitting import drawing, load_any
from foldbatch.schema import Schema
from foldbatch.trees.formats import Named, structures_of

STANDARD_INPUT = "-"


def main(arguments: Sequence[str], prog: str) -> int:
    """Print a line of JSON for each example; return the exit status."""
    what = "Print a line of JSON for each example of files or of the standard input: label and probabilities."
    parser = ArgumentParser(prog=prog, description=what)
    add(parser, "model")
    what = "in the format that it was trained on, labels or not; by default -, the standard input"
    parser.add_argument("files", nargs="*", default=[STANDARD_INPUT], metavar="FILE", help=what)
    parser.add_argument("--nodes", action="store_true", help="add the label of every node")
    parser.add_argument("--draw", action="store_true", help="draw trees instead of JSON")
    what = "refuse a record that has a field which training had not, or none that it had"
    parser.add_argument("--strict", action="store_true", help=what)
    add(parser, "--backend", "--trust")
    options = parser.parse_intermixed_args(arguments)
    programs, notes, configuration = load_any(options.model, options.backend, options.trust)
    schema = Schema.from_plain(notes["schema"]) if "schema" in notes else None
    if options.strict and schema is None:
        fix = "leave it out"
        raise ReadError("--strict", "a model of records that foldbatch train wrote", "another one", fix)
    counts, fields = Counter[str](), dict[str, None]()  # of records unlike those of training
    nodes = options.nodes or (options.draw and notes["task"] == "nodes")
    for name in options.files:
        waiting: deque[Named] = deque()  # what is read and not yet told
        read = _structures(name, configuration)
        if schema is not None:
            read = _looked_at(read, schema, counts, fields, name, configuration.data, strict=options.strict)
        structures = _remembered(read, waiting)
        for told in predictions(programs, notes, structures, nodes=nodes):
            label, structure = waiting.popleft()
            if options.draw:
                print(*([label] if label else []), drawing(structure, told), sep="\n")
            else:
                print(msgspec.json.encode(({"name": label} if label else {}) | told).decode())
    if counts:
        nothing = f"; in {counts['empty']} nothing was known" if counts["empty"] else ""
        unknown = f" (fields that training had not: {shortened(fields)})" if fields else ""
        message = f"{counted(counts['odd'], 'record')} unlike those of training{unknown}{nothing}"
        print(f"warning: {message}; --strict refuses them", file=sys.stderr)
    return 0


def _looked_at(
    named: Iterable[Named],
    schema: Schema,
    counts: Counter[str],
    fields: dict[str, None],
    where: str,
    data: Data,
    *,
    strict: bool,
) -> Iterator[Named]:
    """Yield records; count those that are unlike training's, and note fields that it had not."""
    for place, (label, record) in enumerate(named, 1):
        found, known, unknown = unlike(schema, record, data)
        if found and strict:
            name = f"{'standard input' if where == STANDARD_INPUT else where}, record {place}"
            fix = "look at the names, or leave --strict out"
            raise ReadError(name, "fields that training had", found, fix)
        if found:
            counts.update(odd=1, empty=not known)
            fields |= dict.fromkeys(unknown)
        yield label, record


def _remembered(named: Iterable[Named], waiting: deque[Named]) -> Iterator[Any]:
    """Yield structures; put each with its name into a queue."""
    for pair in named:
        waiting.append(pair)
        yield pair[1]


def _structures(name: str, configuration: Configuration) -> Iterator[Named]:
    """Yield the examples of a file, or of the standard input."""
    read = structures_of(configuration.data.format)
    where = "standard input" if name == STANDARD_INPUT else name
    try:
        with _opened(name) as lines:
            for place, (label, structure) in enumerate(read(lines, where), 1):
                check_arity(configuration, structure, f"{where}, tree {place}")
                yield label, structure
    except UnicodeDecodeError as error:
        found = f"the byte 0x{error.object[error.start]:02x} ({error.reason})"
        raise ReadError(where, "text in UTF-8", found, "save it as UTF-8") from None
    except EOFError as error:
        raise ReadError(where, "a whole file", str(error), "fetch it again") from None


def _opened(name: str) -> AbstractContextManager[Iterable[str]]:
    if name != STANDARD_INPUT:
        text: IO[str] = (gzip.open if name.endswith(".gz") else open)(name, "rt", encoding="utf-8-sig")
        return text
    if sys.stdin is None:  # it was closed
        raise ReadError("standard input", "lines of text", "nothing", "name a file, or pipe text into it")
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")
    return nullcontext(sys.stdin)
