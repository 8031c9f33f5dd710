"""The server's process: its routes, a socket that listens, uvicorn's connections with bounds, a graceful end.

uvicorn closes a connection whose client has said that it sends no more, waits for a head as long as some
byte of it comes, and for ever for a client that does not read its answer. Here

- a client that sends no more gets what it has asked for;
- a head that is too long, too slow or malformed, or has not one Host, is refused in JSON;
- a connection that moves nothing for a while is closed, and one too many is refused;
- who sends a request before the last one is answered must send it again: the answer says "close";
- at the server's end, requests that are just being sent are answered, too.
"""

import asyncio
import errno
import os
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from types import FrameType
from typing import Any

import httptools
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

import foldbatch
from foldbatch.errors import FoldbatchError, ReadError
from foldbatch.serve.predict import Predict, ServerMetrics
from foldbatch.serve.service import Batching, Limits, RefusedError, Service, log
from foldbatch.trees.formats import FORMATS

LINGER = 1.0  # seconds in which a request may still come when the server ends

MALFORMED = RefusedError(400, "request", "HTTP/1.1", "something else", "send it as RFC 9112 says")
HOST = re.compile(  # RFC 3986's host, which may be empty, and a port
    rb"(\[[0-9A-Fa-fv:.~!$&'()*+,;=_-]+\]|[0-9A-Za-z.~!$&'()*+,;=_%-]*)(:[0-9]*)?"
)
TAKEN = RefusedError(503, "server", "a free connection", "none", "ask again later, or raise --connections")


class StopParsingError(Exception):
    """A request is refused; raised within the parser, which stops at it."""


def connections(limits: Limits) -> type[HttpToolsProtocol]:
    """Return a class of connections for uvicorn, with the limits `head`, `connections` and `idle`."""
    return type("LimitedConnection", (Connection,), {"limits": limits})


class Connection(HttpToolsProtocol):  # type: ignore[misc]
    """A connection; see the module."""

    limits = Limits()

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)
        self.timeout_keep_alive = self.limits.idle
        self._head = 0  # bytes of the head that is being read, as far as the parser has told of them
        self._raw = 0  # bytes that came since it began, while it alone came
        self._reading_head = True
        self._refusal = MALFORMED
        self._last = False  # whether no more requests are taken
        self._ending = False  # whether the server ends
        self._reader: asyncio.TimerHandle | None = None

    # from the transport

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take a connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(TAKEN)
        else:
            self._wait(self.limits.idle)

    def data_received(self, data: bytes) -> None:
        """Read received bytes; refuse bytes that are no request, or too many."""
        if self._last:
            return
        self._raw += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._end()  # there is no other protocol; the request itself has been read
        except httptools.HttpParserError:
            self._refuse(self._refusal)
        else:
            if self._reading_head and self._raw > self.limits.head:
                self._refuse(self._too_long())

    def eof_received(self) -> bool:
        """Keep the connection where a whole request waits for its answer: the client only sends no more."""
        waits = self._reading_head and not self._idle()
        if waits:
            self._end()
        return waits

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_keepalive_if_required()
        if self._reader is not None:
            self._reader.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Note that the client does not take its answer; it has a while to go on."""
        super().pause_writing()
        self._watch_reader()

    # from the parser

    def on_message_begin(self) -> None:
        if not self._idle():
            raise StopParsingError
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Read a field of the head, or of the trailer after a body in chunks."""
        self._count(len(name) + len(value) + len(": \r\n"))
        if self._reading_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the answer of a request, unless its Host is missing, doubled or malformed."""
        self._check_host()
        self._reading_head = False
        self._unset_keepalive_if_required()
        super().on_headers_complete()
        if self._ending:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._reading_head = True
        self._head = self._raw = 0

    # from uvicorn

    def on_response_complete(self) -> None:
        """Wait for the next request; where there will be none, what is written is still to be taken."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_reader()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection whose next head did not come in time; answer 408 where it had begun."""
        if self._raw and self._reading_head and not self._ending:
            expected, actual = f"a head in {self.limits.idle:g} s", f"{self._raw:,} bytes of it"
            self._refuse(RefusedError(408, "head", expected, actual, "send it faster"))
        else:
            self._close()

    def shutdown(self) -> None:
        """End: after the answer that is due; or else when no request has come for a moment."""
        self._ending = True
        if self._idle():
            self._unset_keepalive_if_required()
            self._wait(LINGER)
        else:
            self.cycle.keep_alive = False

    # our own

    def _check_host(self) -> None:
        """Refuse a head as RFC 9112 demands, 3.2: a proxy before the server may have read another Host."""
        hosts = [value for name, value in self.headers if name == b"host"]
        if len(hosts) == 1 and HOST.fullmatch(hosts[0]):
            return
        if not hosts and self.parser.get_http_version() == "1.0":
            return
        actual = repr(hosts[0][:100].decode("latin-1")) if len(hosts) == 1 else str(len(hosts) or "none")
        fix = "send Host: NAME once, as RFC 9112 says"
        self._refusal = RefusedError(400, "request", "one Host header", actual, fix)
        raise StopParsingError

    def _idle(self) -> bool:
        return self.cycle is None or bool(self.cycle.response_complete)

    def _end(self) -> None:
        """Take no more requests; the connection ends with the answer that is due."""
        self._last, self.cycle.keep_alive = True, False

    def _refuse(self, error: RefusedError) -> None:
        """Refuse the request that is being read; the one before, if there is any, is answered."""
        if self._reading_head and not self._idle():
            self._end()
            return
        self._last = True
        if self._idle() or not self.cycle.response_started:
            body = msgspec.json.encode({"error": str(error)})
            size = b"content-length: %d" % len(body)
            head = [b"content-type: application/json", b"connection: close", size, b"", b""]
            self.transport.write(STATUS_LINE[error.status] + b"\r\n".join(head) + body)
        self._close()

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > self.limits.head:
            self._refusal = self._too_long()
            raise StopParsingError

    def _too_long(self) -> RefusedError:
        expected, fix = f"{self.limits.head:,} bytes or fewer", "send shorter headers, or raise --head"
        return RefusedError(431, "head", expected, "more", fix)

    def _close(self) -> None:
        self.transport.close()
        self._watch_reader()

    def _watch_reader(self, former_size: int | None = None) -> None:
        """Abort a connection whose client has read nothing of its answer for a while."""
        now = self.transport.get_write_buffer_size()
        if former_size is not None and now >= former_size:
            self.transport.abort()
        elif now and (former_size is not None or self._reader is None):
            self._reader = self.loop.call_later(self.limits.idle, self._watch_reader, now)
        elif former_size is not None:
            self._reader = None

    def _wait(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)


BACKLOG = 2048  # connections that the system holds until they are taken
SPARE_FILES = 16  # files and sockets a server opens without asking: its loop's, a client's, the model's anew
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

    >>> with listen("127.0.0.1", 0) as listening:
    ...     listening.getsockname()[0]
    '127.0.0.1'
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with ExitStack() as room:
            for _ in range(SPARE_FILES):
                room.enter_context(socket.socket(family))
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        actual, expected = error.strerror or str(error), "an address that is free"
        fix = "give another --host or --port; --port 0 is any that is free"
        if error.errno == errno.EMFILE:
            expected, fix = (
                f"{SPARE_FILES} more files and sockets at once",
                "allow them, as by ulimit -n 1024",
            )
        raise ReadError(f"{host}:{port}", expected, actual, fix) from None


def server_of(app: object, limits: Limits, grace: float) -> Server:
    """Return a server of an application of ASGI; see `run`."""
    config = uvicorn.Config(
        app,
        http=connections(limits),
        ws="none",
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
    grace: float,
    started: Callable[[str], None],
) -> None:
    """Serve a model until SIGTERM; requests that wait then are answered first."""
    host, port = listening.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def draining() -> bool:
        ending: bool = server.should_exit
        return ending

    app = application(service, limits, started=lambda: started(address), draining=draining)
    server = server_of(app, limits, grace)
    # uvicorn ends gracefully on SIGTERM and then raises it again, but a graceful end is no failure
    former = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        server.run([listening])
    finally:
        signal.signal(signal.SIGTERM, former)
        listening.close()


def application(
    service: Service,
    limits: Limits,
    *,
    started: Callable[[], None] = lambda: None,
    draining: Callable[[], bool] = lambda: False,
) -> Any:
    """Return the application of ASGI that serves a model."""
    metrics = ServerMetrics()
    batching = Batching(service.answer, limits, metrics.batch, service.joining)
    predict = Predict(service, batching, limits, metrics)
    metrics.watch_queue(lambda: batching.examples, lambda: batching.nodes)

    async def about(request: Request) -> Response:
        """Answer with the model's name, task, classes and a sample of its format."""
        model = service.model
        return JSONResponse(
            {
                "foldbatch": foldbatch.__version__,
                "format": model.configuration.data.format,
                "model": model.name,
                "task": model.notes["task"],
                "classes": model.notes.get("classes"),
                "example": FORMATS[model.configuration.data.format].sample,
            }
        )

    async def health(request: Request) -> Response:
        ending = draining()
        return JSONResponse({"status": "draining" if ending else "ready"}, 503 if ending else 200)

    async def figures(request: Request) -> Response:
        return Response(metrics.text(), headers={"content-type": metrics.content_type})

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        """Start batching and the reloading on SIGHUP; stop both when the server ends."""
        batching.start()
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()
        with suppress(NotImplementedError, RuntimeError, ValueError):  # only the main thread hears signals
            loop.add_signal_handler(signal.SIGHUP, asked.set)
        reader = asyncio.create_task(_reload_when_asked(service, metrics, asked))
        started()
        try:
            yield
        finally:
            reader.cancel()
            await asyncio.to_thread(batching.stop)
            service.close()

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.scope["path"]  # not of request.url, which a Host such as [x] keeps from being read
        text = f"request: expected POST /predict, found {request.method} {path}; GET / says more"
        return JSONResponse({"error": text}, error.status_code, error.headers)

    routes = Starlette(
        routes=[
            Route("/", about),
            Route("/predict", predict, methods=["POST"]),
            Route("/healthz", health),
            Route("/metrics", figures),
        ],
        lifespan=lifespan,
        exception_handlers={HTTPException: refused},
    )
    routes.router.redirect_slashes = False

    async def app(scope: Any, receive: Any, send: Any) -> None:
        # the way through the routes would cost a request as much as its own work here
        hot = scope["type"] == "http" and scope["path"] == "/predict" and scope["method"] == "POST"
        await (predict if hot else routes)(scope, receive, send)

    return app


async def _reload_when_asked(service: Service, metrics: ServerMetrics, asked: asyncio.Event) -> None:
    """Reload the model at each request for it; log whether that succeeded."""
    while await asked.wait():
        asked.clear()
        try:
            await asyncio.to_thread(service.reload)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - a file may make functions of its own raise anything
            metrics.reloads.labels("failed").inc()
            text = str(error) if isinstance(error, FoldbatchError | OSError) else repr(error)
            log(f"{service.path}: not read anew, the former model answers on: {text}")
        else:
            metrics.reloads.labels("ok").inc()
            log(f"{service.path}: read anew")
