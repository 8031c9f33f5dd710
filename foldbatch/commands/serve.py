"""The command ``foldbatch serve``: predictions of a saved model over HTTP."""

import warnings
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Sequence
from dataclasses import fields
from importlib.util import find_spec

from foldbatch.commands.options import add, count, number, seconds, whole_number
from foldbatch.errors import BackendError, UnlikeSamplesWarning, install
from foldbatch.serve.service import Limits
from foldbatch.system.processes import set_aside

LIBRARIES = ("starlette", "uvicorn", "prometheus_client")
HOST, PORT, GRACE = "127.0.0.1", 8000, 10.0


def main(arguments: Sequence[str], prog: str) -> int:
    """Serve a model until SIGTERM or Ctrl-C; return the exit status."""
    options = _parser(prog, Limits()).parse_args(arguments)
    limits = Limits(**{field.name: getattr(options, field.name) for field in fields(Limits)})
    missing = [name for name in LIBRARIES if not find_spec(name)]
    if missing:
        raise BackendError(prog, ", ".join(LIBRARIES), f"no {missing[0]}", install("serve"))
    from foldbatch.serve.running import listen, run  # noqa: PLC0415 - needs the extra
    from foldbatch.serve.service import Service  # noqa: PLC0415

    def started(address: str) -> None:
        print(f"{options.model}: served at {address}", flush=True)

    with listen(options.host, options.port) as listening:  # before the model is loaded, which takes longer
        service = Service(options.model, options.backend, set_aside, options.trust)
        if service.model.schema is not None:  # each answer says what is odd of its record
            warnings.simplefilter("ignore", UnlikeSamplesWarning)
        run(service, limits, listening, grace=options.grace, started=started)
    return 0


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
