"""A connection of HTTP as uvicorn reads it, with bounds on what a client may hold: heads, time, a place.

uvicorn closes a connection whose client has said that it sends no more, waits for a head as long as some
byte of it comes, and for ever for a client that does not read its answer. Here

- a client that sends no more gets what it has asked for;
- a head that is too long, too slow or malformed is refused in JSON, after the answers to what came before it;
- a connection that moves nothing for a while is closed, and one too many is refused;
- at the server's end, requests that are just being sent are answered, too.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from foldbatch.errors import FoldbatchError
from foldbatch.serve.service import Limits

FEW = 16  # requests of a connection that may wait for the answer to the one before them
LINGER = 1.0  # seconds in which a request may still come when the server ends

MALFORMED = FoldbatchError("request", "HTTP/1.1", "what is none", "send it as RFC 9112 says")
TAKEN = FoldbatchError("server", "a free connection", "none", "ask again later, or raise --connections")


class TooMuchError(Exception):
    """A client has sent more than the server takes; raised within the parser, which stops at it."""


def connections(limits: Limits) -> type[HttpToolsProtocol]:
    """Return a class of connections for uvicorn, with the limits `head`, `connections` and `idle`."""
    return type("LimitedConnection", (Connection,), {"limits": limits})


class Connection(HttpToolsProtocol):  # type: ignore[misc]
    """A connection; see the module."""

    limits = Limits()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head = 0  # bytes of the head that is being read, as far as the parser has told of them
        self._raw = 0  # bytes that came since it began, while it alone came
        self._heads = 0  # that have been read
        self._reading_head = True
        self._refusal = 400, MALFORMED
        self._last = False  # whether no more requests are taken
        self._ending = False  # whether the server ends
        self._running: Any = None  # the request that is being answered
        self._timer: asyncio.TimerHandle | None = None
        self._reader: asyncio.TimerHandle | None = None

    # from the transport

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take a connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(503, TAKEN)
        else:
            self._wait(self.limits.idle, self._head_is_late)

    def data_received(self, data: bytes) -> None:
        """Read what came; what is no request, or too much, is refused."""
        if self._last:
            return
        self._unset_keepalive_if_required()
        heads = self._heads if self._reading_head else -1
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._end()  # there is no other protocol; the request itself has been read
        except httptools.HttpParserError:
            self._refuse(*self._refusal)
        else:
            if self._heads == heads:
                self._raw += len(data)
                if self._raw > self.limits.head:
                    self._refuse(*self._too_long())

    def eof_received(self) -> bool:
        """Keep the connection where a whole request waits for its answer: the client only sends no more."""
        self._end()
        return not self.transport.is_closing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request that is being answered; uvicorn tells the newest one only."""
        self._stop_waiting()
        if self._reader is not None:
            self._reader.cancel()
        self.pipeline.clear()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Note that the client does not take its answer; it has a while to go on."""
        super().pause_writing()
        self._watch_reader()

    # from the parser

    def on_message_begin(self) -> None:
        """Begin a request."""
        if len(self.pipeline) >= FEW:
            raise TooMuchError
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Read a part of the address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Read a field of the head, or of what stands behind a body in chunks."""
        self._count(len(name) + len(value) + len(": \r\n"))
        if self._reading_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer."""
        self._heads += 1
        self._reading_head = False
        self._stop_waiting()
        super().on_headers_complete()
        if self._ending:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """Wait for the next head."""
        super().on_message_complete()
        self._reading_head = True
        self._head = self._raw = 0

    # from uvicorn

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Wait for the next request, or end where there will be none."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_reader()  # what is written is still to be taken
        elif self._idle():
            self._wait(self.limits.idle, self._head_is_late)

    def shutdown(self) -> None:
        """End: after the answers that are due; or else when no request has come for a moment."""
        self._ending = True
        if not self._idle():
            self.cycle.keep_alive = False
        else:
            self._wait(LINGER, self._close)

    # our own

    def _idle(self) -> bool:
        return self.cycle is None or bool(self.cycle.response_complete)

    def _end(self) -> None:
        """Take no more requests; close the connection when all whole ones are answered."""
        self._last = True
        if not self._reading_head and self.pipeline:  # what is missing of the newest one will never come
            self.pipeline.popleft()
            self.cycle = self.pipeline[0][0] if self.pipeline else self._running
        elif not self._reading_head or self._idle():
            self._close()
            return
        self.cycle.keep_alive = False

    def _refuse(self, status: int, error: FoldbatchError) -> None:
        """Refuse the request that is being read, where the client can know that it is meant."""
        its_turn = self.cycle is self._running and not self._reading_head
        if self._idle() or (its_turn and not self.cycle.response_started):
            body = msgspec.json.encode({"error": str(error)})
            size = b"content-length: %d" % len(body)
            head = [b"content-type: application/json", b"connection: close", size, b"", b""]
            self.transport.write(STATUS_LINE[status] + b"\r\n".join(head) + body)
            self._last = True
            self._close()
        else:
            self._end()

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > self.limits.head:
            self._refusal = self._too_long()
            raise TooMuchError

    def _too_long(self) -> tuple[int, FoldbatchError]:
        expected, fix = f"{self.limits.head:,} bytes or fewer", "send shorter headers, or raise --head"
        return 431, FoldbatchError("head", expected, "more", fix)

    def _head_is_late(self) -> None:
        if self._raw and self._reading_head:
            expected, found = f"a head in {self.limits.idle:g} s", f"{self._raw:,} bytes of it"
            self._refuse(408, FoldbatchError("head", expected, found, "send it faster"))
        else:
            self._close()

    def _close(self) -> None:
        self.transport.close()
        self._watch_reader()

    def _watch_reader(self, left: int | None = None) -> None:
        """Give a client up that takes nothing of its answer for a while; who takes some has more time."""
        now = self.transport.get_write_buffer_size()
        if left is not None and now >= left:
            self.transport.abort()
        elif now and (left is not None or self._reader is None):
            self._reader = self.loop.call_later(self.limits.idle, self._watch_reader, now)
        elif left is not None:
            self._reader = None

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(seconds, then)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
