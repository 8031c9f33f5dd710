"""The queue: examples of many requests, of which a batch takes those that have waited longest.

Neither HTTP nor a clock nor a thread is known here: times are arguments, and one thread calls all of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from foldbatch.errors import FoldbatchError, counted


class QueueFullError(FoldbatchError):
    """There is no room for the examples of a request."""


@dataclass(slots=True, eq=False)
class Request:
    """The examples of a request, from its arrival to its last answer.

    Attributes:
        structures: the examples, as the model reads them.
        sizes: the nodes of each.
        deadline: the time after which nobody waits for answers any more.
        nodes: whether an answer is wanted for each node, too.
        answers: one for each example, None where it is still to come.
        taken: how many examples have left the queue.
        missing: how many answers are still to come.
        dropped: whether nobody waits for answers any more.
        done: what the asker waits on.
    """

    structures: Sequence[Any]
    sizes: Sequence[int]
    deadline: float
    nodes: bool = False
    answers: list[Any] = field(init=False)
    taken: int = field(init=False, default=0)
    missing: int = field(init=False)
    dropped: bool = field(init=False, default=False)
    done: Any = None

    def __post_init__(self) -> None:
        self.answers = [None] * len(self.structures)
        self.missing = len(self.structures)


Entry: TypeAlias = tuple[Request, int]  # an example: its request, and its number there


class Queue:
    """Requests in the order of their arrival.

    Args:
        limit: of the nodes that wait. A request that is larger still waits where nothing else does.

    Attributes:
        nodes: that wait.
        examples: that wait.

    >>> queue = Queue(limit=100)
    >>> queue.put(Request(["a", "b"], [3, 3], deadline=9.0))
    >>> queue.put(Request(["c"], [1], deadline=9.0))
    >>> [request.structures[number] for request, number in queue.take(0.0, examples=2, nodes=50)]
    ['a', 'b']
    >>> queue.examples, queue.nodes
    (1, 1)
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.nodes = 0
        self.examples = 0
        self._requests: deque[Request] = deque()

    def put(self, request: Request) -> None:
        """Let the examples of a request wait, all of them or none.

        Raises:
            QueueFullError: when there is no room for them.
        """
        nodes = sum(request.sizes)
        if self.nodes and self.nodes + nodes > self.limit:
            waiting = f"{counted(self.nodes, 'node')} that wait"
            expected = f"room for {counted(nodes, 'node')} in a queue of {self.limit:,}"
            raise QueueFullError("queue", expected, waiting, "ask again later, as Retry-After says")
        self.nodes += nodes
        self.examples += len(request.structures)
        self._requests.append(request)

    def take(self, now: float, examples: int, nodes: int) -> list[Entry]:
        """Return the examples of the next batch, those that have waited longest; they leave the queue.

        An example never overtakes one that came before. Requests whose deadline has passed are dropped.

        Args:
            now: the time.
            examples: how many at most.
            nodes: how many at most; a first example that is larger is returned alone.
        """
        batch: list[Entry] = []
        room = nodes
        while self._requests and len(batch) < examples:
            request = self._requests[0]
            if request.deadline <= now:
                self.drop(request)
            if request.dropped or request.taken == len(request.structures):
                self._requests.popleft()
                continue
            size = request.sizes[request.taken]
            if batch and size > room:
                break
            batch.append((request, request.taken))
            request.taken += 1
            room -= size
            self.nodes -= size
            self.examples -= 1
        return batch

    def drop(self, request: Request) -> None:
        """Forget what of a request still waits."""
        if not request.dropped:
            request.dropped = True
            self.nodes -= sum(request.sizes[request.taken :])
            self.examples -= len(request.sizes) - request.taken
