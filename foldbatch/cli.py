"""The command ``foldbatch``: a table of its commands, each a function of its arguments."""

from __future__ import annotations

import sys
from argparse import REMAINDER, ArgumentParser
from collections.abc import Callable, Sequence

from foldbatch import __version__

Command = Callable[[Sequence[str]], int]


def _bench(arguments: Sequence[str]) -> int:
    from foldbatch.gain.command import main as bench  # noqa: PLC0415 - only what is called is imported

    return bench(arguments, "foldbatch bench")


def _cache(arguments: Sequence[str]) -> int:
    from foldbatch.cache import LIMIT, cache_directory, clear, entries  # noqa: PLC0415

    what = "Show where compiled loops are kept between runs (FOLDBATCH_CACHE), how many and how large."
    parser = ArgumentParser(prog="foldbatch cache", description=what)
    parser.add_argument("--clear", action="store_true", help="remove them all")
    options = parser.parse_args(arguments)
    directory = cache_directory()
    if directory is None:
        print("directory: none; set FOLDBATCH_CACHE to one")
        return 0
    if options.clear:
        clear(directory)
    listed = entries(directory).values()
    print(f"directory: {directory}")
    print(f"entries: {len(listed)}")
    print(f"size: {sum(entry.size for entry in listed) / 1e6:.1f} MB of at most {LIMIT / 1e6:.0f} MB")
    return 0


COMMANDS: dict[str, tuple[str, Command]] = {
    "bench": ("measure what batching gains on a block and examples of yours", _bench),
    "cache": ("show or empty the directory of compiled loops", _cache),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status.

    Args:
        arguments: the command and its own arguments; those of the process by default.
    """
    parser = ArgumentParser(
        prog="foldbatch", description="Models whose shape changes with every example, batched."
    )
    parser.add_argument("--version", action="version", version=f"foldbatch {__version__}")
    listed = "; ".join(f"{name}: {what}" for name, (what, _) in COMMANDS.items())
    parser.add_argument("command", choices=COMMANDS, help=listed)
    parser.add_argument("arguments", nargs=REMAINDER, help="its own; COMMAND --help lists them")
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    _, run = COMMANDS[options.command]
    try:
        return run(options.arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
