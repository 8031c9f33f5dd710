"""Prefetching: the next batches are traced and planned in a thread while one runs."""

from __future__ import annotations

import atexit
import operator
import sys
import threading
from collections.abc import Iterable, Iterator
from queue import SimpleQueue
from typing import Any, Final

from foldbatch.engines.planned import Planned
from foldbatch.errors import TrainingError
from foldbatch.program import Program
from foldbatch.types import describe_value

END: Final = object()  # stands for the batch after the last
PATIENCE = 1.0  # seconds that closing waits for the thread, whose source may block


def prefetched(program: Program, batches: Iterable[Any], ahead: int = 2) -> Iterator[Planned]:
    """Yield every batch planned, in order; one thread reads and plans those that follow.

    The thread starts with the first batch asked for, and has ended when the iterator has, also when
    that is closed early or dropped; but where reading `batches` blocks, only when that goes on, or with
    the process. It is in that thread that `batches` is read and that functions of
    the user's run while examples are traced. An error is raised where its batch would have come, with
    the traceback of where it arose; it ends the iterator, and so do batches that lie ready behind it.

    Args:
        program: the program that will run them.
        batches: of examples, as `foldbatch.Program.plan` takes them; it may be endless.
        ahead: how many batches may lie ready besides the one last yielded: memory for speed.

    Raises:
        TrainingError: when `ahead` is no whole number of 1 or more.
        ExampleError: when an example does not fit the block.

    >>> import foldbatch as fb
    >>> program = fb.compile(fb.Scalar() >> fb.Function(lambda x: x * x))
    >>> [[float(x) for x in program.run(plan)] for plan in prefetched(program, [[1, 2], [3]])]
    [[1.0, 4.0], [9.0]]
    """
    try:
        count = operator.index(ahead)
    except TypeError:
        count = 0
    if count < 1:
        expected = "a whole number of 1 or more"
        raise TrainingError("prefetched ahead", expected, describe_value(ahead), "2 is enough")
    return _prefetch(program, batches, count)


def _prefetch(program: Program, batches: Iterable[Any], ahead: int) -> Iterator[Planned]:
    source = iter(batches)
    ready: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
    wanted, closed = threading.Semaphore(ahead), threading.Event()

    def work() -> None:
        planned: Any = None
        error: BaseException | None = None
        while planned is not END and error is None and wanted.acquire() and not closed.is_set():
            try:
                batch: Any = next(source, END)
                planned = batch if batch is END else program.plan(batch)
            except BaseException as raised:  # noqa: BLE001 - it is raised where the batch would have come
                error = raised
            ready.put((planned, error))

    def close() -> None:
        closed.set()
        wanted.release()
        # The collector may find a dropped iterator in any thread, and the worker cannot wait for itself.
        if threading.current_thread() is not worker and not sys.is_finalizing():
            worker.join(PATIENCE)

    # A daemon, or the process could not end while the source blocks.
    worker = threading.Thread(target=work, name="foldbatch-prefetch", daemon=True)
    worker.start()
    atexit.register(close)
    try:
        while True:
            if not worker.is_alive() and ready.empty():
                expected, found = "the process that began to iterate", "a process forked from it"
                raise TrainingError("prefetched", expected, found, "begin in the process that trains")
            planned, error = ready.get()
            if error is not None:
                raise error
            if planned is END:
                return
            wanted.release()
            yield planned
    finally:
        atexit.unregister(close)
        close()
        error = None  # whose traceback holds this frame
