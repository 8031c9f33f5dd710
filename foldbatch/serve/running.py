"""The server's process: its routes, a socket that listens, models that are read anew, a graceful end."""

import asyncio
import errno
import os
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

import foldbatch
from foldbatch.errors import FoldbatchError, ReadError
from foldbatch.serve.connection import Connection
from foldbatch.serve.inference import ServerMetadata, form, metadata
from foldbatch.serve.openapi import document, sample_of
from foldbatch.serve.page import POLICY, page
from foldbatch.serve.predict import Predict, ServerMetrics
from foldbatch.serve.service import Batching, Limits, RefusedError, Service, log, state_of

HOST = re.compile(  # RFC 3986's host, which may be empty, and a port
    rb"(\[[0-9A-Fa-fv:.~!$&'()*+,;=_-]+\]|[0-9A-Za-z.~!$&'()*+,;=_%-]*)(:[0-9]*)?"
)
UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")  # characters of names that addresses do not have
BACKLOG = 2048  # connections that the system holds until they are taken
SPARE_FILES = 16  # files and sockets a server opens without asking: its loop's, a client's, the model's anew


INTERRUPTED = 130  # the exit status after Ctrl-C


class Server(uvicorn.Server):  # type: ignore[misc]
    """A server that a second Ctrl-C ends at once, and in a line: uvicorn's shows two tracebacks."""

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


def configuration_of(app: object, limits: Limits, grace: float, **options: Any) -> uvicorn.Config:
    """Return uvicorn's options for an application of ASGI, or for a function that makes it; see `run`."""
    return uvicorn.Config(
        app,
        http=partial(Connection, limits=limits),
        ws="none",
        log_config=None,
        log_level="error",  # clients that send no HTTP fill no log
        access_log=False,
        lifespan="on",
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=limits.idle,
        timeout_graceful_shutdown=grace,
        **options,
    )


def address_of(listening: socket.socket) -> str:
    """Return the address of a server that listens at a socket."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def run(
    service: Service,
    limits: Limits,
    listening: socket.socket,
    *,
    grace: float,
    started: Callable[[str], None],
    **options: Any,
) -> None:
    """Serve a model until SIGTERM; requests that wait then are answered first.

    Args:
        service: the model.
        limits: of requests.
        listening: the socket at which clients ask.
        grace: seconds that requests have at the end.
        started: is called with the server's address when it takes requests.
        options: of `application`.
    """

    def draining() -> bool:
        ending: bool = server.should_exit
        return ending

    address = address_of(listening)
    app = application(service, limits, started=lambda: started(address), draining=draining, **options)
    server = Server(configuration_of(app, limits, grace))
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
    watch: float | None = None,
    name: str = "",
) -> Any:
    """Return the application of ASGI that serves a model.

    Args:
        service: the model.
        limits: of requests.
        started: is called when requests are taken.
        draining: whether the server ends.
        watch: seconds between two looks at the model's files, which are read anew where they have changed;
            None for no looks.
        name: that addresses have for the model; by default that of its kind.
    """
    metrics = ServerMetrics()
    batching = Batching(service.answer, limits, metrics.batch, service.joining, metrics.queue)
    predict = Predict(service, batching, limits, metrics)
    name = name or UNSAFE.sub("-", service.model.name).strip("-")[:80] or "model"

    async def figures(request: Request) -> Response:
        return Response(metrics.text(), headers={"content-type": metrics.content_type})

    async def infer(scope: Any, receive: Any, send: Any) -> None:
        await predict.answer(form(name, service.model), scope, receive, send)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        """Start batching and the reloading on SIGHUP; stop both when the server ends."""
        batching.start()
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()
        # only the main thread hears signals, and Windows has no SIGHUP
        with suppress(AttributeError, NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(signal.SIGHUP, asked.set)
        tasks = [asyncio.create_task(_reload_when_asked(service, metrics, asked))]
        if watch is not None:
            tasks.append(asyncio.create_task(_ask_when_changed(service, asked, watch)))
        started()
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.to_thread(batching.stop)
            service.close()

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.scope["path"]  # not of request.url, which a Host such as [x] keeps from being read
        text = f"request: expected POST /predict, found {request.method} {path}; GET /docs says more"
        return JSONResponse({"error": text}, error.status_code, error.headers)

    routes = Starlette(
        routes=[
            Route("/predict", predict, methods=["POST"]),
            Route("/metrics", figures),
            Route(f"/v2/models/{name}/infer", _Infer(infer), methods=["POST"]),
            *_states(name, batching, draining),
            *_descriptions(name, service, limits),
        ],
        lifespan=lifespan,
        exception_handlers={HTTPException: refused},
    )
    routes.router.redirect_slashes = False

    async def app(scope: Any, receive: Any, send: Any) -> None:
        # the way through the routes would cost a request as much as its own work here
        hot = scope["type"] == "http" and scope["path"] == "/predict" and scope["method"] == "POST"
        chosen = predict if hot else routes
        if scope["type"] == "http" and (error := _head_error(scope, limits)):
            chosen = JSONResponse({"error": str(error)}, error.status, {"connection": "close"})
        await chosen(scope, receive, send)

    return app


def _states(name: str, batching: Batching, draining: Callable[[], bool]) -> list[Route]:
    """Return the routes that say whether the server lives, and whether it takes requests."""

    async def live(request: Request) -> Response:
        return JSONResponse({"status": "alive"}) if batching.alive else JSONResponse({"status": "ended"}, 503)

    async def ready(request: Request) -> Response:
        """Answer whether requests are taken."""
        if not batching.alive:
            return JSONResponse({"status": "ended"}, 503)
        return JSONResponse({"status": "draining"}, 503) if draining() else JSONResponse({"status": "ready"})

    return [
        Route("/healthz", live),
        Route("/readyz", ready),
        Route("/v2/health/live", live),
        Route("/v2/health/ready", ready),
        Route(f"/v2/models/{name}/ready", ready),
    ]


def _descriptions(name: str, service: Service, limits: Limits) -> list[Route]:
    """Return the routes that describe the server and the model that answers now."""

    async def about(request: Request) -> Response:
        """Answer with the model's name, task, classes and a sample of its format."""
        model = service.model
        return JSONResponse(
            {
                "foldbatch": foldbatch.__version__,
                "format": model.configuration.data.format,
                "name": name,
                "model": model.name,
                "task": model.notes["task"],
                "classes": model.notes.get("classes"),
                "example": sample_of(model),
                "docs": "/docs",
            }
        )

    async def openapi(request: Request) -> Response:
        return _json(document(name, service.model, limits))

    async def docs(request: Request) -> Response:
        text = page(document(name, service.model, limits))
        return HTMLResponse(text, headers={"content-security-policy": POLICY})

    async def server(request: Request) -> Response:
        return _json(ServerMetadata("foldbatch", foldbatch.__version__))

    async def inputs(request: Request) -> Response:
        return _json(metadata(name, service.model))

    return [
        Route("/", about),
        Route("/openapi.json", openapi),
        Route("/docs", docs),
        Route("/v2", server),
        Route(f"/v2/models/{name}", inputs),
    ]


class _Infer:
    """An application of ASGI as an object: Starlette takes a function for one of a request."""

    def __init__(self, answer: Callable[[Any, Any, Any], Any]) -> None:
        self._answer = answer

    async def __call__(self, scope: Any, receive: object, send: object) -> None:
        await self._answer(scope, receive, send)


def _json(content: Any) -> Response:
    return Response(msgspec.json.encode(content), headers={"content-type": "application/json"})


def _head_error(scope: Any, limits: Limits) -> RefusedError | None:
    """Return why the head of a request is refused: it is too long, or has not one Host.

    Source: RFC 9112, 3.2; a proxy before the server may have read another Host.
    """
    headers = scope["headers"]
    size = (
        len(scope["raw_path"])
        + len(scope["query_string"])
        + sum(len(key) + len(text) + 4 for key, text in headers)
    )
    if size > limits.head:
        expected, fix = f"{limits.head:,} bytes or fewer", "send shorter headers, or raise --head"
        return RefusedError(431, "head", expected, "more", fix)
    hosts = [text for key, text in headers if key == b"host"]
    if len(hosts) == 1 and HOST.fullmatch(hosts[0]):
        return None
    if not hosts and scope["http_version"] == "1.0":
        return None
    actual = repr(hosts[0][:100].decode("latin-1")) if len(hosts) == 1 else str(len(hosts) or "none")
    fix = "send Host: NAME once, as RFC 9112 says"
    return RefusedError(400, "request", "one Host header", actual, fix)


async def _ask_when_changed(service: Service, asked: asyncio.Event, seconds: float) -> None:
    """Ask for the model to be read anew where its files are others than those read, and no longer written."""
    seen = service.state
    while True:
        await asyncio.sleep(seconds)
        state = await asyncio.to_thread(state_of, service.path)
        if state is not None and state == seen and state != service.state:
            asked.set()
        seen = state


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
