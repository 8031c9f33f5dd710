"""Continuous batching: examples of a walk that reads numbers join a batch, and leave it, between rounds."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from foldbatch.errors import FoldbatchError, WalkError
from foldbatch.functions.deciding import UnderWay
from foldbatch.functions.notes import session
from foldbatch.functions.suspended import Walked
from foldbatch.program.program import Program

Join: TypeAlias = Callable[[Any], Future[Any]]  # of an example, to its answer when it has left the batch
HELD: Final = 256_000_000  # bytes of values, after which all that is under way ends before more joins


class Continuous:
    """Answers examples of a program of a plain function, in a thread of its own.

    As long as a batch is under way, other programs of plain functions wait in this process.

    Args:
        program: the program; it infers with the parameters that it has at each round.
        most: how many examples are under way at once.
        round_done: is told of each round, how many examples were under way.

    Raises:
        BlockTypeError: when the program is one of a block.

    >>> import foldbatch as fb
    >>> def halvings(x):
    ...     value, times = fb.tensor(x), 0
    ...     while float(value) >= 1:
    ...         value, times = value * 0.5, times + 1
    ...     return times
    >>> with Continuous(fb.compile(halvings, "numpy")) as continuous:
    ...     answers = [continuous.ask(x) for x in (0.5, 5.0, 300.0)]
    ...     [answer.result() for answer in answers]
    [0, 3, 9]
    """

    def __init__(
        self, program: Program, most: int = 64, round_done: Callable[[int], object] = lambda count: None
    ) -> None:
        program._deciding.begun(program.lowered)  # refuses blocks
        self.program, self.most = program, most
        self._round_done = round_done
        self._queue: SimpleQueue[tuple[Any, Future[Any]] | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="foldbatch rounds", daemon=True)
        self._thread.start()

    def ask(self, example: Any) -> Future[Any]:
        """Return the future of an example's result; it raises what the walk raises.

        Raises:
            FoldbatchError: when this is closed.
        """
        if self._closed:
            raise FoldbatchError("Continuous.ask", "one that is open", "one that was closed", "make another")
        answer: Future[Any] = Future()
        self._queue.put((example, answer))
        return answer

    def close(self) -> None:
        """End when all that was asked has been answered."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._thread.join()

    def __enter__(self) -> Self:
        """Return this."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """Close."""
        self.close()

    def _work(self) -> None:
        """Run batches until this is closed: each goes on as long as examples come, and values have room."""
        while (first := self._queue.get()) is not None:
            under_way: dict[Walked, Future[Any]] = {}
            try:
                more = session(lambda: self._batch(first, under_way), None, ())
            except Exception as error:  # noqa: BLE001 - it is of all that were under way
                for answer in under_way.values():
                    answer.set_exception(error)
                more = True
            if not more:
                return

    def _batch(self, first: tuple[Any, Future[Any]], under_way: dict[Walked, Future[Any]]) -> bool:
        """Run a batch; return whether more may be asked."""
        more, come, asked = True, [first], 0
        batch = self.program._deciding.begun(self.program.lowered)
        with batch.noting(careful=True):
            while come or under_way:
                new = batch.join([example for example, _ in come], range(asked, asked + len(come)))
                asked += len(come)
                under_way |= zip(new, (answer for _, answer in come), strict=True)
                ended, batch.over = batch.over, []
                if not batch.go():
                    ended, batch.over = ended + batch.over, []
                    batch.compute()
                for walked in ended:
                    self._answer(under_way.pop(walked), walked, batch)
                self._round_done(len(under_way))
                come = []
                room = self.most - len(under_way) if batch.store.nbytes < HELD else 0
                while more and len(come) < room:
                    try:
                        entry = self._queue.get_nowait()
                    except Empty:
                        break
                    if entry is None:
                        more = False
                    else:
                        come.append(entry)
        return more

    def _answer(self, answer: Future[Any], walked: Walked, batch: UnderWay) -> None:
        if not answer.set_running_or_notify_cancel():
            return
        if walked.error is not None:
            answer.set_exception(walked.error)
            return
        try:
            answer.set_result(batch.shown(walked).result)
        except WalkError as error:
            answer.set_exception(error)
