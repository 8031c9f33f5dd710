"""`Limits`: how much a client may ask for, how much may wait, and how large a batch is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds the memory and the time of a server.

    Attributes:
        head: bytes of a request's head: address and headers.
        body: bytes of a request.
        held: bytes of all requests that are being read or answered; one more is asked to come again later.
        examples: of a request.
        nodes: of an example: nodes of a tree, words of a list, values of a record.
        depth: of an example: levels below its topmost node or value.
        batch: examples that run together.
        batch_nodes: nodes that run together; a larger example runs alone.
        queue_nodes: nodes that wait; a request for which there is no room is asked to come again later.
        deadline: seconds that a request may take, unless it asks for fewer.
        connections: that may be open; one more is refused.
        idle: seconds in which a connection must send its next head, or take some of its answer.

    >>> Limits(batch=64).batch
    64
    """

    head: int = 16_384
    body: int = 4_000_000
    held: int = 64_000_000
    examples: int = 1_000
    nodes: int = 10_000
    depth: int = 2_000
    batch: int = 256
    batch_nodes: int = 32_768
    queue_nodes: int = 262_144
    deadline: float = 10.0
    connections: int = 1_000
    idle: float = 10.0
