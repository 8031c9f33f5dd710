"""The server's process: a socket that listens, uvicorn above it, and a graceful end."""

from __future__ import annotations

import math
import os
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn

from foldbatch.errors import ReadError
from foldbatch.serve.app import application
from foldbatch.serve.connection import connections
from foldbatch.serve.service import Limits, Service, log

BACKLOG = 2048  # connections that the system holds until they are taken
INTERRUPTED = 130  # the exit status after Ctrl-C


class Server(uvicorn.Server):  # type: ignore[misc]
    """A server that a second Ctrl-C ends at once."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End gracefully; or, where that takes too long for the user, without any more ado."""
        if self.should_exit and sig == signal.SIGINT:
            log("interrupted twice: what waits is not answered")
            os._exit(INTERRUPTED)
        super().handle_exit(sig, frame)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Args:
        host: an address of this machine.
        port: 0 is any that is free.

    Raises:
        ReadError: when the address is in use, or is none of this machine.

    >>> with listen("127.0.0.1", 0) as listening:
    ...     listening.getsockname()[0]
    '127.0.0.1'
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        fix = "give another --host or --port; --port 0 is any that is free"
        found = error.strerror or str(error)
        raise ReadError(f"{host}:{port}", "an address that is free", found, fix) from None


def server_of(app: Any, limits: Limits, grace: float) -> Server:
    """Return a server of an application of ASGI; see `run`."""
    config = uvicorn.Config(
        app,
        http=connections(limits),
        ws="none",
        timeout_keep_alive=math.ceil(limits.idle),
        log_config=None,
        access_log=False,
        lifespan="on",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=grace,
    )
    return Server(config)


def run(
    service: Service,
    limits: Limits,
    listening: socket.socket,
    *,
    watch: float,
    grace: float,
    started: Callable[[str], None],
) -> None:
    """Serve a model until SIGTERM; what waits then is answered first.

    Args:
        service: the model.
        limits: of requests, batches and the queue.
        listening: the socket; it is closed in the end.
        watch: seconds between two looks at the model's file; 0 for none.
        grace: seconds that are left to what waits when the server ends.
        started: is called with the server's address when requests are taken.

    Raises:
        KeyboardInterrupt: after Ctrl-C, which ends the server as gracefully.
    """
    host, port = listening.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def draining() -> bool:
        ending: bool = server.should_exit
        return ending

    app = application(service, limits, watch=watch, started=lambda: started(address), draining=draining)
    server = server_of(app, limits, grace)
    # uvicorn ends gracefully on SIGTERM and then raises it again, but a graceful end is no failure
    former = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        server.run([listening])
    finally:
        signal.signal(signal.SIGTERM, former)
        listening.close()
