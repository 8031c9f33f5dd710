"""The command ``foldbatch serve``: predictions of a saved model over HTTP."""

import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Sequence
from dataclasses import fields
from importlib.util import find_spec

from foldbatch.commands.options import add, count, number, seconds, whole_number
from foldbatch.errors import BackendError, install
from foldbatch.serve.service import Limits, Settings

LIBRARIES = ("starlette", "uvicorn", "prometheus_client")
HOST, PORT, GRACE = "127.0.0.1", 8000, 10.0
WATCH = 1.0  # seconds between two looks at the model's file


def main(arguments: Sequence[str], prog: str) -> int:
    """Serve a model until SIGTERM or Ctrl-C; return the exit status."""
    options = _parser(prog, Limits()).parse_args(arguments)
    limits = Limits(**{field.name: getattr(options, field.name) for field in fields(Limits)})
    missing = [name for name in LIBRARIES if not find_spec(name)]
    if missing:
        raise BackendError(prog, ", ".join(LIBRARIES), f"no {missing[0]}", install("serve"))
    from foldbatch.serve.running import listen, run  # noqa: PLC0415 - needs the extra

    watch = WATCH if options.watch else None
    trust = tuple(options.trust)
    settings = Settings(options.model, options.backend, trust, limits, watch, options.name or "")

    def started(address: str) -> None:
        print(f"{options.model}: served at {address}", flush=True)

    with listen(options.host, options.port) as listening:  # before the model is loaded, which takes longer
        if options.workers > 1:
            from foldbatch.serve.workers import run_workers  # noqa: PLC0415

            return run_workers(settings, options.workers, listening, grace=options.grace, started=started)
        extras = {"watch": watch, "name": settings.name}
        run(settings.service(), limits, listening, grace=options.grace, started=started, **extras)
    return 0


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]+", text):
        raise ArgumentTypeError(f"expected letters, digits, '.', '_' and '-', found {text!r}")
    return text


def _host(text: str) -> str:
    if not text.strip():  # such as of a variable that is not set; the system would take it for every address
        raise ArgumentTypeError("expected an address, found none; 0.0.0.0 lets others ask, too")
    return text


def _parser(prog: str, limits: Limits) -> ArgumentParser:
    """Return the parser of the arguments of ``foldbatch serve``, with an option for each limit."""
    help_text = "Serve predictions of a saved model over HTTP, in batches across requests."
    parser = ArgumentParser(prog=prog, description=help_text)
    add(parser, "model")
    help_text = f"address to listen at (default {HOST}: this machine alone)"
    parser.add_argument("--host", type=_host, default=HOST, help=help_text)
    parser.add_argument(
        "--port",
        type=whole_number(0, 65535, "a port from 0 to 65535"),
        default=PORT,
        help=f"0: any that is free (default {PORT})",
    )
    help_text = "processes at the port, each with a model and its share of the cores (default 1)"
    parser.add_argument("--workers", type=count, default=1, metavar="N", help=help_text)
    help_text = "read the model anew whenever its file has changed; one that cannot be read changes nothing"
    parser.add_argument("--watch", action="store_true", help=help_text)
    help_text = "of the model in addresses of the Open Inference Protocol (default: of its kind)"
    parser.add_argument("--name", type=_name, metavar="NAME", help=help_text)
    add(parser, "--backend", "--trust")
    deadline = number("seconds above 0", above=True)
    for field in fields(limits):
        default = getattr(limits, field.name)
        kind, metavar = (count, "N") if isinstance(default, int) else (deadline, "SECONDS")
        help_text = f"{field.metadata['help']} (default {default})"
        name = f"--{field.name.replace('_', '-')}"
        parser.add_argument(name, type=kind, default=default, metavar=metavar, help=help_text)
    help_text = f"seconds that SIGTERM leaves to what waits (default {GRACE:g})"
    parser.add_argument("--grace", type=seconds, default=GRACE, metavar="SECONDS", help=help_text)
    return parser
