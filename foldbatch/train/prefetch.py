"""Prefetching: the next batches are traced and planned in a thread while one runs."""

from __future__ import annotations

import operator
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from foldbatch.engines.planned import Planned
from foldbatch.errors import TrainingError
from foldbatch.program import Program
from foldbatch.types import describe_value

END: Final = object()  # stands for the batch after the last


def prefetched(program: Program, batches: Iterable[Any], ahead: int = 2) -> Iterator[Planned]:
    """Yield every batch planned, in order; one thread reads and plans those that follow.

    The thread starts with the first batch asked for, and has ended when the iterator has, also when
    that is closed early or dropped. It is in that thread that `batches` is read and that functions of
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

    def plan_next() -> Any:
        batch: Any = next(source, END)
        return batch if batch is END else program.plan(batch)

    workers: list[threading.Thread] = []
    # One worker, so batches keep their order; the pool's own exit handler ends it with the interpreter.
    pool = ThreadPoolExecutor(1, "foldbatch-prefetch", lambda: workers.append(threading.current_thread()))
    try:
        waiting = deque(pool.submit(plan_next) for _ in range(ahead))
        while (planned := waiting.popleft().result()) is not END:
            waiting.append(pool.submit(plan_next))
            yield planned
    finally:
        # The collector may find a dropped iterator in any thread, and the worker cannot wait for itself.
        pool.shutdown(wait=threading.current_thread() not in workers, cancel_futures=True)
