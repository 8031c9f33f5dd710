"""The server's process: its routes, a socket that listens, uvicorn above it, and a graceful end."""

import asyncio
import math
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

import foldbatch
from foldbatch.errors import FoldbatchError, ReadError
from foldbatch.serve.batching import Batching
from foldbatch.serve.connection import connections
from foldbatch.serve.openapi import document, page
from foldbatch.serve.predict import Predict, ServerMetrics
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
    """Serve a model until SIGTERM; what waits then is answered first."""
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


def application(
    service: Service,
    limits: Limits,
    *,
    watch: float = 0.0,
    started: Callable[[], None] = lambda: None,
    draining: Callable[[], bool] = lambda: False,
) -> Any:
    """Return the application of ASGI that serves a model."""
    metrics = ServerMetrics()
    batching = Batching(service.answer, limits, metrics.batch, service.joining)
    predict = Predict(service, batching, limits, metrics)
    metrics.watch_queue(lambda: batching.queue.examples, lambda: batching.queue.nodes)
    described = document(service.model.configuration.data.format, limits)
    written = page(described)

    async def about(request: Request) -> Response:
        model = service.model
        return JSONResponse(
            {
                "foldbatch": foldbatch.__version__,
                "format": model.configuration.data.format,
                "model": model.name,
                "task": model.notes["task"],
                "classes": model.notes.get("classes"),
                "docs": "/docs",
            }
        )

    async def health(request: Request) -> Response:
        ending = draining()
        return JSONResponse({"status": "draining" if ending else "ready"}, 503 if ending else 200)

    async def figures(request: Request) -> Response:
        return Response(metrics.text(), headers={"content-type": metrics.content_type})

    async def openapi(request: Request) -> Response:
        return JSONResponse(described)

    async def docs(request: Request) -> Response:
        return HTMLResponse(written)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        batching.start()
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()
        with suppress(NotImplementedError, RuntimeError, ValueError):  # only the main thread hears signals
            loop.add_signal_handler(signal.SIGHUP, asked.set)
        watcher = asyncio.create_task(_reload_when_changed(service, metrics, asked, watch))
        started()
        try:
            yield
        finally:
            watcher.cancel()
            await asyncio.to_thread(batching.stop)
            service.close()

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        text = f"request: expected what /docs describes, found {request.method} here; look there"
        return JSONResponse({"error": text}, error.status_code, error.headers)

    routes = Starlette(
        routes=[
            Route("/", about),
            Route("/predict", predict, methods=["POST"]),
            Route("/healthz", health),
            Route("/metrics", figures),
            Route("/openapi.json", openapi),
            Route("/docs", docs),
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


async def _reload_when_changed(
    service: Service, metrics: ServerMetrics, asked: asyncio.Event, seconds: float
) -> None:
    """Read the model anew when its file has changed, or when somebody asks for it; whatever comes of it."""
    while True:
        with suppress(TimeoutError):
            await asyncio.wait_for(asked.wait(), seconds or None)
        if not asked.is_set() and not service.changed():
            continue
        asked.clear()
        try:
            await asyncio.to_thread(service.reload)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - a file may make functions of its own raise anything
            metrics.reloaded("failed")
            said = str(error) if isinstance(error, FoldbatchError | OSError) else repr(error)
            log(f"{service.path}: not read anew, the former model answers on: {said}")
        else:
            metrics.reloaded("ok")
            log(f"{service.path}: read anew")
