"""The command ``foldbatch``: a table of its commands, each a function of its arguments."""

from __future__ import annotations

import sys
from argparse import REMAINDER, ArgumentParser
from collections.abc import Callable, Sequence

Command = Callable[[Sequence[str]], int]


def _bench(arguments: Sequence[str]) -> int:
    from foldbatch.gain.command import main as bench  # noqa: PLC0415 - only what is called is imported

    return bench(arguments, "foldbatch bench")


COMMANDS: dict[str, tuple[str, Command]] = {
    "bench": ("measure what batching gains on a block and examples of yours", _bench),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status.

    Args:
        arguments: the command and its own arguments; those of the process by default.
    """
    parser = ArgumentParser(
        prog="foldbatch", description="Models whose shape changes with every example, batched."
    )
    listed = "; ".join(f"{name}: {what}" for name, (what, _) in COMMANDS.items())
    parser.add_argument("command", choices=COMMANDS, help=listed)
    parser.add_argument("arguments", nargs=REMAINDER, help="its own; COMMAND --help lists them")
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    _, run = COMMANDS[options.command]
    return run(options.arguments)


if __name__ == "__main__":
    sys.exit(main())
