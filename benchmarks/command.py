"""The command ``python -m benchmarks``: one of the `CASES` is run, printed, if asked written and drawn."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Sequence

from rich.console import Console

from benchmarks import deciding, figures, one, sequences, sst_tables
from benchmarks.case import Case
from benchmarks.figures import plot_file
from benchmarks.machine import machine
from foldbatch.errors import FoldbatchError
from foldbatch.system.files import output_file, write_whole

CASES: tuple[Case, ...] = (sst_tables.CASE, sequences.CASE, one.CASE, deciding.CASE)


def main(arguments: Sequence[str] | None = None, prog: str = "python -m benchmarks") -> int:
    """Run a benchmark; return the exit status: 0, or 2 for what the user can mend.

    Args:
        arguments: the case and its options, those of the process by default; without the name of a
            case it is the first.
        prog: what help and errors call the command.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or (given[0].startswith("-") and given[0] not in ("-h", "--help")):
        given.insert(0, CASES[0].name)
    options = _parser(prog).parse_args(given)
    case = next(case for case in CASES if case.name == options.case)
    console, host = Console(), machine()
    try:
        with Console(stderr=True).status(f"{case.name}: measuring"):
            outcome = case.run(options)
        console.print(str(host), highlight=False, markup=False)
        for part in case.tables(outcome):  # before anything can go wrong with files
            console.print(part, highlight=False, markup=False)
        if options.json:
            found = {"case": case.name, "machine": host.as_dict(), **case.as_dict(outcome)}
            write_whole(options.json, (json.dumps(found, indent=1) + "\n").encode())
        if options.plot:
            figures.write(case.figure(outcome), options.plot)
    except (FoldbatchError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


def _parser(prog: str) -> ArgumentParser:
    parser = ArgumentParser(
        prog=prog,
        description="Measure what batching gains on this machine, beside other libraries.",
        epilog=f"Without a case, options are those of {CASES[0].name}. {prog} CASE --help lists them.",
    )
    cases = parser.add_subparsers(dest="case", metavar="CASE", required=True)
    for case in CASES:
        own = cases.add_parser(case.name, help=case.summary, description=case.summary)
        case.add_arguments(own)
        own.add_argument(
            "--json", type=output_file, metavar="FILE", help="write all figures to a file, for programs"
        )
        own.add_argument(
            "--plot", type=plot_file, metavar="FILE", help="draw a picture, PNG or SVG by the name's suffix"
        )
    return parser
