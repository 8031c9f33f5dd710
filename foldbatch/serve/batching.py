"""Batches across requests: a batch leaves when the engine is free, and takes what waits.

Requests come from one asyncio loop; the engine runs in a thread of its own. While a batch runs, the next one
gathers, so batches grow with the load and nobody waits for a batch to fill.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Protocol

from foldbatch.errors import FoldbatchError
from foldbatch.serve.limits import Limits
from foldbatch.serve.queue import Entry, Queue, Request

Answer = Callable[[list[Any], bool], Sequence[Any]]  # of structures, and whether of their nodes, too
SMOOTHING = 0.2  # the share of the newest batch in the mean of nodes a second


class DeadlineError(FoldbatchError, TimeoutError):
    """The answers of a request were not there in time."""


class Observer(Protocol):
    """What is told of each batch that has run."""

    def batch(self, examples: int, nodes: int, seconds: float) -> None:
        """Take note of a batch: its size, and how long it ran."""


class Batching:
    """Runs the examples of requests together.

    Args:
        answer: the engine: returns an answer for each structure, in order.
        limits: of batches and of the queue.
        observer: is told of each batch.

    Attributes:
        queue: what waits.
        running: whether a batch runs.

    >>> async def ask(words):
    ...     batching = Batching(lambda structures, nodes: [len(word) for word in structures], Limits())
    ...     batching.start()
    ...     answers = await batching.ask(Request(words, [1] * len(words), batching.now() + 1))
    ...     batching.stop()
    ...     return answers
    >>> asyncio.run(ask(["a", "film"]))
    [1, 4]
    """

    def __init__(self, answer: Answer, limits: Limits, observer: Observer | None = None) -> None:
        self.queue = Queue(limits.queue_nodes)
        self._answer = answer
        self._limits = limits
        self._observer = observer
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
        """Let the examples of a request run; return the future of their answers, in order.

        Where the future is cancelled, what still waits of the request is forgotten. It raises `DeadlineError`
        when the deadline of the request passes.

        Raises:
            QueueFullError: when too much waits already; nothing of the request runs then.
        """
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
        """Give the engine a batch, if it is free and something waits."""
        if self.running:
            return
        batch = self.queue.take(self.now(), self._limits.batch, self._limits.batch_nodes)
        if batch:
            self.running = True
            self._batches.put(batch)

    def _work(self) -> None:
        """Run batches; the engine's thread."""
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
        """Hand out the answers of a batch, and begin the next."""
        self.running = False
        self._next()
        nodes = 0
        for (request, number), answer in zip(batch, answers, strict=True):
            nodes += request.sizes[number]
            request.answers[number] = answer
            request.missing -= 1
            if not request.missing and not request.done.done():
                request.done.set_result(request.answers)
        pace = nodes / max(seconds, 1e-6)
        self._pace += (pace - self._pace) * (SMOOTHING if self._pace else 1.0)
        if self._observer is not None:
            self._observer.batch(len(batch), nodes, seconds)


def _pass(request: Request) -> None:
    """End the wait of a request whose deadline has passed."""
    if not request.done.done():
        fix = "ask for fewer examples, or give it more time"
        found = f"{request.missing} of {len(request.answers)} still to come"
        request.done.set_exception(DeadlineError("deadline", "all answers in time", found, fix))
