"""The command ``foldbatch``: a table of its commands, each a function of its arguments."""

import os
import sys
import warnings
from argparse import REMAINDER, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from contextlib import suppress
from errno import ENOENT
from importlib import import_module
from io import StringIO, TextIOWrapper

from foldbatch import __version__
from foldbatch.errors import told_of

Command = Callable[[Sequence[str]], int]


def _cache(arguments: Sequence[str]) -> int:
    """Show or clear the cache of compiled loops; return the exit status."""
    from foldbatch.system.cache import MAX_BYTES, clear, entries, place  # noqa: PLC0415

    help_text = "Show where compiled loops are kept between runs (FOLDBATCH_CACHE), how many and how large."
    parser = ArgumentParser(prog="foldbatch cache", description=help_text)
    parser.add_argument("--clear", action="store_true", help="remove them all")
    options = parser.parse_args(arguments)
    directory, fault = place()
    if fault is not None and options.clear:
        raise fault
    if directory is None:
        print(f"directory: none; {fault or 'set FOLDBATCH_CACHE to one'}")
        return 0
    if options.clear:
        clear(directory)
    listed = entries(directory).values()
    print(f"directory: {directory}{'' if fault is None else ' (not used)'}")
    if fault is not None:
        print(f"why not: {fault}")
    print(f"entries: {len(listed)}")
    print(f"size: {sum(entry.size for entry in listed) / 1e6:.1f} MB of at most {MAX_BYTES / 1e6:.0f} MB")
    return 0


def _of(place: str, name: str) -> Command:
    """Return a command that imports its module only when it runs."""

    def run(arguments: Sequence[str]) -> int:
        module, _, function = place.partition(":")
        status: int = getattr(import_module(module), function or "main")(arguments, f"foldbatch {name}")
        return status

    return run


MODULES = {
    "train": ("train, test and save a model as a configuration says", "foldbatch.commands.train"),
    "eval": ("the figures of a saved model on labelled data", "foldbatch.commands.saved:print_figures"),
    "predict": ("what a saved model tells of new data, as JSON lines", "foldbatch.commands.saved:predict"),
    "serve": ("predictions of a saved model over HTTP", "foldbatch.commands.serve"),
    "export": ("write a saved model as an ONNX graph", "foldbatch.commands.saved:export"),
    "inspect": ("a model, its parameters, and how examples run", "foldbatch.commands.saved:inspect"),
    "data": ("count, check, convert and split files of examples", "foldbatch.commands.data"),
    "compare": ("does structure pay on your data? models beside baselines", "foldbatch.commands.compare"),
    "bench": ("measure what batching gains on a block and examples of yours", "foldbatch.commands.bench"),
}
COMMANDS: dict[str, tuple[str, Command]] = {
    **{name: (summary, _of(place, name)) for name, (summary, place) in MODULES.items()},
    "cache": ("show or empty the directory of compiled loops", _cache),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status.

    It is 0, or 1 for a check that failed, 2 for wrong input (with one line that says what), 130 where Ctrl-C
    ended it, 143 where SIGTERM did, and 141 where nobody reads the output any more.
    """
    parser = ArgumentParser(
        prog="foldbatch", description="Models whose shape changes with every example, batched."
    )
    parser.add_argument("--version", action="version", version=f"foldbatch {__version__}")
    listed = "\n".join(f"  {name:8} {purpose}" for name, (purpose, _) in COMMANDS.items())
    parser.epilog, parser.formatter_class = f"commands:\n{listed}", RawDescriptionHelpFormatter
    parser.add_argument("command", choices=COMMANDS, help="one of those below")
    parser.add_argument("arguments", nargs=REMAINDER, help="its own; COMMAND --help lists them")
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    _, run = COMMANDS[options.command]
    _write_any_text()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            status = run(options.arguments)
        if sys.stdout is not None:  # it was closed
            sys.stdout.flush()  # a reader that is gone is noticed here
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _drop_output()
        return 141
    except OSError as error:
        where = error.filename or ("output" if error.errno != ENOENT else "working directory")
        actual = error.strerror or str(error)
        expected, fix = "a file that can be read or written", "check its path, permissions and disk"
        print(f"error: {where}: expected {expected}, found {actual}; {fix}", file=sys.stderr)
        return 2
    except MemoryError as error:
        actual, fix = str(error) or "none left", "make batches smaller"
        print(f"error: memory: expected enough of it, found {actual}; {fix}", file=sys.stderr)
        return 2
    except Exception as error:
        if (reported := told_of(error)) is None:
            raise
        print(f"error: {reported}", file=sys.stderr)
        return 2
    return status


def _write_any_text() -> None:
    """Let the output replace what its encoding lacks, such as the lines of a drawn tree in ASCII.

    Where there is no standard error, `print` would write what is for it to the output.
    """
    sys.stderr = sys.stderr or StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning as one line, without the place in foldbatch that gave it."""
    print(f"warning: {message}", file=sys.stderr)


def _drop_output() -> None:
    """Send what is still to be written to nobody, so that Python does not complain when it ends."""
    null_device = os.open(os.devnull, os.O_WRONLY)
    with suppress(OSError):  # an output without a number, as in a notebook
        os.dup2(null_device, sys.stdout.fileno())
    os.close(null_device)


if __name__ == "__main__":
    sys.exit(main())
