"""The command ``foldbatch compare``: does structure pay on a file of the user's?"""

from argparse import ArgumentParser
from collections.abc import Sequence

import msgspec

from foldbatch.commands.options import count, number, whole_number
from foldbatch.contest.comparing import MODULES, compare
from foldbatch.contest.reading import FORMATS_READ, read
from foldbatch.system.files import output_file, write_whole


def main(arguments: Sequence[str], prog: str) -> int:
    """Read, compare, print and write; return the exit status."""
    options = _parser(prog).parse_args(arguments)
    examples = read(options.data, format=options.format, label=options.label, task=options.task)
    outcome = compare(
        examples,
        minutes=options.minutes,
        seed=options.seed,
        contenders=[name for name in MODULES if name not in options.without],
        limit=options.examples,
        report=lambda sentence: print(sentence, flush=True),
    )
    print(f"\n{outcome.summary()}")  # before anything can go wrong with files
    if options.html:
        outcome.html(options.html)
        print(f"page: {options.html}")
    if options.json:
        write_whole(
            options.json, msgspec.json.format(msgspec.json.encode(outcome.as_dict()), indent=1) + b"\n"
        )
    return 0


def _parser(prog: str) -> ArgumentParser:
    """Return the parser of the arguments of ``foldbatch compare``."""
    parser = ArgumentParser(
        prog=prog,
        description="Train a model of structure and usual baselines on a file of yours, with one split and "
        "one clock, and say whether structure pays there.",
    )
    help_text = (
        "a file of trees, records or rows, a folder with a folder of files for each class, or functions or "
        "expressions, which need no file"
    )
    parser.add_argument("data", metavar="DATA", help=help_text)
    help_text = f"one of {', '.join(FORMATS_READ)} (default: as the ending says)"
    parser.add_argument("--format", metavar="NAME", help=help_text)
    help_text = "the field of labels (default: one that looks like it, which is told)"
    parser.add_argument("--label", "--target", metavar="KEY", help=help_text)
    help_text = "whether labels are classes or numbers (default: as they look)"
    parser.add_argument("--task", choices=("class", "number"), help=help_text)
    minutes = number("minutes above 0", above=True)
    help_text = "that it may take (default 5); of more examples than fit, some are drawn"
    parser.add_argument("--minutes", type=minutes, default=5.0, metavar="N", help=help_text)
    help_text = "compare at most so many examples (default: as many as the time allows)"
    parser.add_argument("--examples", type=count, metavar="N", help=help_text)
    help_text = "of the split and of all contenders (default 0)"
    parser.add_argument("--seed", type=whole_number(0), default=0, metavar="N", help=help_text)
    help_text = "contenders that do not run"
    parser.add_argument("--without", choices=tuple(MODULES), nargs="+", default=[], help=help_text)
    page = "write a page with plots and examples of both sides' mistakes"
    parser.add_argument("--html", type=output_file, metavar="FILE", help=page)
    parser.add_argument("--json", type=output_file, metavar="FILE", help="write all figures, for programs")
    return parser
