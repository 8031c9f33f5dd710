"""Batches across requests: a batch leaves when the engine is free, and takes what waits.

Where the model decides by what it computes, nothing waits for a batch to end: each example joins the one that
is under way, see `foldbatch.serve.continuous`.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeAlias

from foldbatch.errors import FoldbatchError, counted
from foldbatch.serve.continuous import Join
from foldbatch.serve.service import Limits


class QueueFullError(FoldbatchError):
    """There is no room for the examples of a request."""


@dataclass(slots=True, eq=False)
class Request:
    """The examples of a request, from its arrival to its last answer."""

    structures: Sequence[Any]  # the examples, as the model reads them
    sizes: Sequence[int]  # the nodes of each
    deadline: float  # the time after which nobody waits for answers any more
    nodes: bool = False  # whether an answer is wanted for each node, too
    answers: list[Any] = field(init=False)  # one for each example, None where it is still to come
    taken: int = field(init=False, default=0)  # how many examples have left the queue
    missing: int = field(init=False)  # how many answers are still to come
    dropped: bool = field(init=False, default=False)  # whether nobody waits for answers any more
    done: Any = None  # what the asker waits on

    def __post_init__(self) -> None:
        self.answers = [None] * len(self.structures)
        self.missing = len(self.structures)


Entry: TypeAlias = tuple[Request, int]  # an example: its request, and its number there


class Queue:
    """Requests in the order of their arrival.

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
        """Let the examples of a request wait, all of them or none."""
        nodes = sum(request.sizes)
        if self.nodes and self.nodes + nodes > self.limit:
            waiting = f"{counted(self.nodes, 'node')} that wait"
            expected = f"room for {counted(nodes, 'node')} in a queue of {self.limit:,}"
            raise QueueFullError("queue", expected, waiting, "ask again later, as Retry-After says")
        self.nodes += nodes
        self.examples += len(request.structures)
        self._requests.append(request)

    def take(self, now: float, examples: int, nodes: int) -> list[Entry]:
        """Return the examples of the next batch, those that have waited longest; they leave the queue."""
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


Answer = Callable[[list[Any], bool], Sequence[Any]]  # of structures, and whether of their nodes, too
SMOOTHING = 0.2  # the share of the newest batch in the mean of nodes a second


class DeadlineError(FoldbatchError, TimeoutError):
    """The answers of a request were not there in time."""


class Batching:
    """Runs the examples of requests together.

    >>> async def ask(words):
    ...     batching = Batching(lambda structures, nodes: [len(word) for word in structures], Limits())
    ...     batching.start()
    ...     answers = await batching.ask(Request(words, [1] * len(words), batching.now() + 1))
    ...     batching.stop()
    ...     return answers
    >>> asyncio.run(ask(["a", "film"]))
    [1, 4]
    """

    def __init__(
        self,
        answer: Answer,
        limits: Limits,
        batch_done: Callable[[int, int, float], object] = lambda examples, nodes, seconds: None,
        joining: Callable[[], Join | None] = lambda: None,
    ) -> None:
        self.queue = Queue(limits.queue_nodes)
        self._answer = answer
        self._joining = joining  # what lets an example join; None where batches run one after the other
        self._under_way = 0  # examples that have joined
        self._limits = limits
        self._batch_done = batch_done  # is told of each batch that has run: examples, nodes and seconds
        self._pace = 0.0  # nodes a second
        self.running = False
        self._batches: SimpleQueue[list[Entry] | None] = SimpleQueue()

    def start(self) -> None:
        """Start the engine's thread; call it in the loop from which requests come."""
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self._thread = threading.Thread(target=self._work, name="foldbatch engine", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the engine's thread after the batch that runs."""
        self._batches.put(None)
        self._thread.join()

    def seconds(self) -> float:
        """Return how long what waits will take, as far as known; 1 before the first batch."""
        return self.queue.nodes / self._pace if self._pace else 1.0

    def ask(self, request: Request) -> asyncio.Future[list[Any]]:
        """Let the examples of a request run; return the future of their answers, in order."""
        self.queue.put(request)
        done: asyncio.Future[list[Any]] = self._loop.create_future()
        request.done = done
        timer = self._loop.call_at(request.deadline, _pass, request)

        def end(_: asyncio.Future[list[Any]]) -> None:
            timer.cancel()
            self.queue.drop(request)

        done.add_done_callback(end)
        self._loop.call_soon(self._next)  # requests that came together leave together
        return done

    def _next(self) -> None:
        if self.running:
            return
        if (join := self._joining()) is not None:
            room, now = self._limits.batch - self._under_way, self.now()
            for request, number in self.queue.take(now, room, self._limits.batch_nodes) if room else ():
                self._under_way += 1
                ended = partial(self._left, request, number, now)
                join(request.structures[number]).add_done_callback(partial(self._later, ended))
            return
        batch = self.queue.take(self.now(), self._limits.batch, self._limits.batch_nodes)
        if batch:
            self.running = True
            self._batches.put(batch)

    def _work(self) -> None:
        while (batch := self._batches.get()) is not None:
            start = self.now()
            answers: list[Any] = [None] * len(batch)
            for nodes in (False, True):
                places = [k for k, (request, _) in enumerate(batch) if request.nodes is nodes]
                if places:
                    structures = [batch[k][0].structures[batch[k][1]] for k in places]
                    for place, answer in zip(places, self._answers(structures, nodes=nodes), strict=True):
                        answers[place] = answer
            self._loop.call_soon_threadsafe(self._finish, batch, answers, self.now() - start)

    def _answers(self, structures: list[Any], *, nodes: bool) -> Sequence[Any]:
        try:
            return self._answer(structures, nodes)
        except Exception as error:  # noqa: BLE001 - the server goes on
            return [error] * len(structures)

    def _finish(self, batch: list[Entry], answers: list[Any], seconds: float) -> None:
        self.running = False
        self._next()
        for (request, number), answer in zip(batch, answers, strict=True):
            _tell(request, number, answer)
        self._observe(len(batch), sum(request.sizes[number] for request, number in batch), seconds)

    def _later(self, ended: Callable[[Future[Any]], None], answer: Future[Any]) -> None:
        self._loop.call_soon_threadsafe(ended, answer)

    def _left(self, request: Request, number: int, joined: float, answer: Future[Any]) -> None:
        self._under_way -= 1
        self._next()
        error = answer.exception()
        _tell(request, number, answer.result() if error is None else error)
        self._observe(1, request.sizes[number], self.now() - joined)

    def _observe(self, examples: int, nodes: int, seconds: float) -> None:
        pace = nodes / max(seconds, 1e-6)
        self._pace += (pace - self._pace) * (SMOOTHING if self._pace else 1.0)
        self._batch_done(examples, nodes, seconds)


def _tell(request: Request, number: int, answer: Any) -> None:
    request.answers[number] = answer
    request.missing -= 1
    if not request.missing and not request.done.done():
        request.done.set_result(request.answers)


def _pass(request: Request) -> None:
    if not request.done.done():
        fix = "ask for fewer examples, or give it more time"
        found = f"{request.missing} of {len(request.answers)} still to come"
        request.done.set_exception(DeadlineError("deadline", "all answers in time", found, fix))
