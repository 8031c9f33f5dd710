"""The bounds that uvicorn leaves out: silent and slow clients, heads without end, connections beyond a count.

uvicorn waits for ever for a head of which some byte has come, and for a client that does not read its answer;
with httptools it keeps a head of any length; and at its limit of connections it refuses requests of all of
them, those that were there before, too. ``docs/decisions/README.md`` names the test that shows it. All else
that happens on a connection is uvicorn's.
"""

import asyncio
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from foldbatch.serve.service import Limits, RefusedError


class Connection(HttpToolsProtocol):  # type: ignore[misc]
    """A connection of uvicorn within the limits `head`, `connections` and `idle`.

    Every `idle` seconds it is looked at: it ends where no request has begun since the last look, or the
    client has taken nothing of its answer.

    Args:
        arguments: those of uvicorn's class.
        limits: of the server.
        options: those of uvicorn's class.
    """

    def __init__(self, *arguments: object, limits: Limits, **options: object) -> None:
        super().__init__(*arguments, **options)
        self.limits = limits
        self._unread = 0  # bytes since the last head, piece of a body or end of one
        self._look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take a connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(
                503, "server", "a free connection", "none", "ask again later, or raise --connections"
            )
        self._look_later()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop looking."""
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read received bytes; end the connection where they are more than a head may have."""
        if self.transport.is_closing():
            return
        self._unread += len(data)
        super().data_received(data)
        if self._unread > self.limits.head:
            expected, fix = f"{self.limits.head:,} bytes or fewer", "send shorter headers, or raise --head"
            self._refuse(431, "head", expected, "more", fix)

    def on_headers_complete(self) -> None:
        """Take a head that has come."""
        self._unread = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Take the end of a request."""
        self._unread = 0
        super().on_message_complete()

    def _waits(self) -> bool:
        return self.cycle is None or bool(self.cycle.response_complete)

    def _refuse(self, *parts: Any) -> None:
        """End the connection, with an answer where no other one is due."""
        error = RefusedError(*parts)
        if self._waits() and not self.transport.is_closing():
            body = msgspec.json.encode({"error": str(error)})
            size = b"content-length: %d" % len(body)
            head = [b"content-type: application/json", b"connection: close", size, b"", b""]
            self.transport.write(STATUS_LINE[error.status] + b"\r\n".join(head) + body)
        self.transport.close()

    def _look_later(self) -> None:
        state = self.cycle, self._waits(), self.transport.get_write_buffer_size()
        self._look = self.loop.call_later(self.limits.idle, self._look_at, *state)

    def _look_at(self, cycle: object, waited: bool, unsent: int) -> None:  # noqa: FBT001 - a state
        """End a connection on which nothing has moved since the last look, when it had this state."""
        if self.transport.get_write_buffer_size() >= unsent > 0:
            self.transport.abort()
        elif waited and cycle is self.cycle:
            self.transport.close()
        self._look_later()
