"""Worker processes that read examples, trace, plan, and hand batches over in memory that both processes see.

Each worker opens the program's planning, see `foldbatch.program.opened`, and what its batches are read from.
It is begun anew (``spawn``): a fork would have copies of locks that threads of this process hold just then,
and a server of forks would be one process more. Batches are asked for in turn, one worker after the other, so
which batch a worker makes follows from its number alone. A message is a small pickle; the integers and data
of a batch lie in a block of memory, which its worker gets back when no array views it any more.

A worker ends when the connection to its parent does, however that ends.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Final, Protocol

import numpy as np

from foldbatch.engines.batch import Planned
from foldbatch.engines.carried import Header, arrived, carried
from foldbatch.errors import DecidingError, ModelError, ProcessError, TrainingError
from foldbatch.program.opened import AT_TOP, Description, Opened, described
from foldbatch.program.program import Program
from foldbatch.scheduler.trace import Form, pack
from foldbatch.system.shared import Block, Place, can_share, put, room_for, views
from foldbatch.train.resuming import AGAIN, Digests, digests, traced

END: Final = object()  # stands for the batch after the last
NEW_BLOCK = b"b"  # begins a message of a block; no pickle begins so
FIRST_SIZE = 1 << 20  # bytes of a block, before any batch has told how many it needs
SECONDS_TO_END = 5.0  # seconds that a worker has to end by itself
NO_WORKERS = "or leave workers at 0"


class Reading(Protocol):
    """Where a worker's batches come from. It is pickled, and so is a copy of its own in each worker."""

    def head(self) -> Sequence[Any]:
        """Return the first examples, which all processes trace alike; none where that is not known."""

    def begin(self, worker: int, workers: int, place: Any) -> None:
        """Begin to read at a place, as the reading understands it, one batch of so many."""

    def read(self, task: Any) -> tuple[Any, Sequence[Any]] | None:
        """Return facts about the batch of a task, and its examples; None after the last.

        Facts are plain data that the parent is given with the plan.
        """

    def parts(self, facts: Any, examples: Sequence[Any]) -> list[Sequence[Any]]:
        """Return the examples of a batch in the parts that are planned, each by itself."""

    def name(self, error: Exception, facts: Any, part: int) -> None:
        """Add to an error of a part's example which one it is in the user's order."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A batch as a worker has sent it."""

    plans: list[Planned] | None  # of its parts; None where this process has to plan it
    facts: Any  # of its `Reading`
    examples: Callable[[], Sequence[Any]]  # returns its examples: of a worker that reads, from there


class RemoteError(Exception):
    """The traceback of an error in a worker, as text: the cause of that error in this process."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


# -- in the parent


@dataclass(eq=False, slots=True)
class _Worker:
    """A worker, as its parent knows it."""

    process: Any
    messages: Connection
    blocks: Connection  # of new blocks of memory
    free: list[Block] = field(default_factory=list)
    numbers: dict[Block, int] = field(default_factory=dict)  # of all its blocks
    by_number: dict[int, Block] = field(default_factory=dict)
    replies: deque[Any] = field(default_factory=deque)  # that came before another one that was waited for
    opened: bool = False  # whether it has said that it could open everything


class Workers:
    """Processes that prepare batches for a program.

    Args:
        program: the program that will run the batches.
        reading: what they are read from.
        count: how many processes.
        ahead: how many batches are asked for before the first of them is taken.
        where: the name of the option that asked for them, for errors.
        head: the first examples, which all processes have to trace alike; what it holds is sent. None where
            `reading` has them.

    Raises:
        ModelError: when another process cannot open the program's model.
        TrainingError: when examples do not pickle, or the system cannot begin or connect processes.
    """

    def __init__(
        self,
        program: Program,
        reading: Reading,
        count: int,
        ahead: int,
        where: str,
        head: Sequence[Any] | None = None,
    ) -> None:
        if not can_share():
            expected, actual = "a system that passes memory between processes", "one that does not"
            raise TrainingError(where, expected, actual, "leave workers at 0")
        self._program, self._where, self._process = program, where, os.getpid()
        self._workers: list[_Worker] = []
        self._size = FIRST_SIZE
        self._asked = 0
        self._expected = traced(program, [*(reading.head() if head is None else head)][:AGAIN])
        self._owner, description = self._described()
        sample = None if head is None else list(head[:AGAIN])
        try:
            opening = pickle.dumps(("open", reading, description, sample), pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            actual = f"some that do not: {error}"
            fix = f"define their classes and functions at the top of a module, {NO_WORKERS}"
            raise TrainingError(where, "examples that pickle", actual, fix) from error
        try:
            for number in range(count):
                self._workers.append(self._begun(number, count, ahead // count + 3))
            for worker in self._workers:
                self._send_bytes(worker, opening)
        except BaseException:
            self.close()
            raise

    def _described(self) -> tuple[Any, Description]:
        """Return the program's model made ready, and its description."""
        program = self._program
        program._variants.full.all([])  # makes ready what was learnt last
        try:
            self._form = program.model.form
            return program._ready, described(program)
        except ModelError as error:
            place = error.where.removeprefix("workers: ").removeprefix("workers")
            where = f"{self._where}: {place}" if place else self._where
            fix = f"{error.fix}, {NO_WORKERS}"
            raise ModelError(where, error.expected, error.found, fix) from error

    def _begun(self, *numbers: int) -> _Worker:
        """Begin a process, with the numbers that `serve` takes; Ctrl-C in the terminal is not for it."""
        context = multiprocessing.get_context("spawn")
        (messages, its_messages), (blocks, its_blocks) = context.Pipe(), context.Pipe()
        arguments = its_messages, its_blocks, *numbers
        name = f"foldbatch-worker-{numbers[0]}"
        process = context.Process(target=serve, args=arguments, name=name, daemon=True)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            process.start()
        except (AssertionError, OSError, RuntimeError) as error:
            messages.close()
            blocks.close()
            reason = " ".join(str(error).split()).partition(". ")[0]
            expected, actual = "processes that this one can begin", f"none: {reason}"
            fix = f"put what the script runs under if __name__ == '__main__':, {NO_WORKERS}"
            raise TrainingError(self._where, expected, actual, fix) from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            its_messages.close()
            its_blocks.close()
        return _Worker(process, messages, blocks)

    def begin(self, place: Any = None) -> None:
        """Let all workers begin to read at a place; the next batch is asked of the first one."""
        self._asked = 0
        for worker in self._workers:
            self._send(worker, ("begin", place))

    def ask(self, task: Any = None) -> Asked:
        """Ask the worker whose turn it is for a batch; results must be taken in the order of asking."""
        self._refuse_fork()
        if self._program._ready is not self._owner:  # a batch that was planned here has brought new cells
            self._owner, description = self._described()
            for worker in self._workers:
                self._send(worker, ("model", description))
        worker = self._workers[self._asked % len(self._workers)]
        number, self._asked = self._asked, self._asked + 1
        block = worker.free.pop() if worker.free else self._new_block(worker)
        self._send(worker, ("batch", number, worker.numbers[block], task))
        return Asked(self, worker, self._owner, self._form, number)

    def _new_block(self, worker: _Worker) -> Block:
        """Return a new block that a worker has as well."""
        number = max(worker.by_number, default=-1) + 1
        self._send_bytes(worker, NEW_BLOCK + str(number).encode())
        try:
            block = Block.new(self._size, worker.blocks)
        except OSError as error:
            if worker.process.is_alive():
                expected = f"{self._size:,} bytes of memory for a batch"
                raise TrainingError(self._where, expected, f"none: {error}", "take fewer workers") from None
            raise self._ended(worker) from None
        worker.numbers[block], worker.by_number[number] = number, block
        return block

    def _send(self, worker: _Worker, message: object) -> None:
        """Send a message; refuse one that does not pickle."""
        try:
            data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            actual, fix = f"some that do not: {error}", f"give objects that pickle, {NO_WORKERS}"
            raise TrainingError(self._where, "examples that pickle", actual, fix) from error
        self._send_bytes(worker, data)

    def _send_bytes(self, worker: _Worker, data: bytes) -> None:
        try:
            worker.messages.send_bytes(data)
        except OSError:
            raise self._ended(worker) from None

    def _reply(self, worker: _Worker) -> Any:
        """Return the next reply of a worker to a task, with room made for a batch that needs more."""
        while True:
            try:
                reply = pickle.loads(worker.messages.recv_bytes())  # noqa: S301 - a child has written it
            except (EOFError, OSError):
                raise self._ended(worker) from None
            if reply[0] == "opened":
                worker.opened = True
                self._compare(reply[1])
            elif reply[0] == "short":
                _, number, needed = reply
                self._size = max(self._size, needed + needed // 4)
                del worker.numbers[worker.by_number.pop(number)]
                block = self._new_block(worker)
                self._send(worker, ("room", worker.numbers[block]))
            else:
                return reply

    def _compare(self, remote: Digests) -> None:
        """Refuse a worker that traces the first examples in another way than this process."""
        if len(remote) and len(self._expected) and not np.array_equal(remote, self._expected):
            expected, actual = "examples that are traced alike in each process", "others in a worker"
            fix = (
                "let functions of the model read nothing that this process alone has set, "
                f"nor draw random numbers, {NO_WORKERS}"
            )
            raise TrainingError(self._where, expected, actual, fix)

    def _result(self, asked: Asked) -> Any:
        """Return the `Arrival` that was asked for, or END."""
        self._refuse_fork()
        worker = asked.worker
        kind, *content = worker.replies.popleft() if worker.replies else self._reply(worker)
        match kind, content:
            case "planned", [number, places, headers, facts]:
                block = worker.by_number[number]
                plans = self._plans(asked, block.lent(worker.free), places, headers)
                return Arrival(plans, facts, lambda: self._examples(asked))
            case "unplanned", [number, facts]:
                worker.free.append(worker.by_number[number])
                return Arrival(None, facts, lambda: self._examples(asked))
            case "end", [number]:
                worker.free.append(worker.by_number[number])
                return END
        number, error, text = content
        worker.free.append(worker.by_number[number])
        error.__cause__ = RemoteError(text)
        raise error

    def _plans(
        self, asked: Asked, memory: Any, places: list[Place], headers: list[list[Header]]
    ) -> list[Planned]:
        """Return the plans that lie in a block of memory."""
        owner, begin, plans = asked.owner, 0, []
        arrays = views(memory, places)
        for of_part in headers:
            parts = arrived(of_part, arrays[begin:], owner.model, asked.form)
            begin += sum(5 + sum(header.feeds) + sum(map(len, header.apart)) for header in of_part)
            if owner.runner.is_bounded:  # a budget of memory cuts a batch by what its kernels need
                parts = owner.runner.plan([trace for part in parts for trace in part.traces])
            plans.append(Planned(parts, owner))
        return plans

    def _examples(self, asked: Asked) -> Sequence[Any]:
        """Return the examples of a batch from the worker that has read it."""
        worker = asked.worker
        self._send(worker, ("examples", asked.number))
        while (reply := self._reply(worker))[0] != "examples":
            worker.replies.append(reply)
        examples: Sequence[Any] | None = reply[1]
        if examples is None:
            expected, actual = "a batch under way", "one of long ago"
            raise TrainingError(self._where, expected, actual, "ask for its examples before")
        return examples

    def _refuse_fork(self) -> None:
        if os.getpid() != self._process:
            expected, actual = "the process that began its workers", "a process forked from it"
            raise TrainingError(self._where, expected, actual, "begin in the process that trains")

    def _ended(self, worker: _Worker) -> ProcessError:
        """Return the error for a worker that has ended by itself."""
        worker.process.join(SECONDS_TO_END)
        status, number = worker.process.exitcode, self._workers.index(worker)
        how = f"with status {status}" if status is None or status >= 0 else f"by {_signal(-status)}"
        fix = f"if memory was short, take fewer workers or smaller batches, {NO_WORKERS}"
        if not worker.opened:
            fix = (
                "its error stands above; put what the script runs under "
                f"if __name__ == '__main__':, {NO_WORKERS}"
            )
        actual = f"worker {number} of {len(self._workers)} ended {how}"
        return ProcessError(self._where, "processes that prepare batches", actual, fix)

    def close(self) -> None:
        """End the processes, and wait until they have ended."""
        if os.getpid() != self._process:
            return
        for worker in self._workers:
            worker.messages.close()
            worker.blocks.close()
        for worker in self._workers:
            worker.process.join(SECONDS_TO_END)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.process.close()
        self._workers = []


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True, slots=True)
class Asked:
    """A batch that a worker was asked for."""

    workers: Workers
    worker: _Worker
    owner: Any  # the model made ready for which it is planned
    form: Form  # of its traces
    number: int

    def result(self) -> Any:
        """Wait for it; return an `Arrival`, or END after the last.

        Raises:
            ExampleError: when an example does not fit the model; the worker's traceback is its cause.
            ProcessError: when the worker has ended.
        """
        return self.workers._result(self)


# -- in a worker


def serve(messages: Connection, blocks: Connection, number: int, count: int, kept: int) -> None:
    """Prepare batches until the connection to the parent ends; arguments are those of `_Served`."""
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is for the parent, which ends this process
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    _Served(messages, blocks, number, count, kept).run()


class _Served:
    """The work of a worker.

    Args:
        messages: the connection to its parent.
        blocks: another one, for blocks of memory.
        number: that of the worker, and
        count: of how many.
        kept: of how many batches it keeps the examples.
    """

    def __init__(self, messages: Connection, blocks: Connection, number: int, count: int, kept: int) -> None:
        self._messages, self._blocks = messages, blocks
        self._number, self._count = number, count
        self._by_number: dict[int, Block] = {}
        self._inbox: SimpleQueue[bytes] = SimpleQueue()
        self._later: deque[tuple[Any, ...]] = deque()  # messages that came before one that was waited for
        self._kept: deque[tuple[int, Sequence[Any]]] = deque(maxlen=kept)
        self._failure: tuple[Exception, str] | None = None  # of what all batches need
        self._reading: Reading
        self._opened: Opened

    def run(self) -> None:
        """Do what messages say, one after the other."""
        threading.Thread(target=self._receive, daemon=True).start()
        while True:
            message = self._later.popleft() if self._later else self._next()
            match message:
                case "begin", place:
                    self._attempt(partial(self._reading.begin, self._number, self._count, place))
                case "model", description:
                    self._attempt(partial(self._open, description))
                case "batch", number, block, task:
                    self._prepare(number, block, task)
                case "examples", number:
                    self._reply("examples", dict(self._kept).get(number))
                case "open", reading, description, sample:
                    self._reading = reading
                    self._attempt(partial(self._open, description))
                    self._reply("opened", self._traced(reading.head() if sample is None else sample))

    def _receive(self) -> None:
        """Take messages as they come, so that the parent never waits, and end the process with its parent."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._inbox.put(self._messages.recv_bytes())
        os._exit(0)

    def _next(self) -> tuple[Any, ...]:
        """Return the next message that is no block; one that cannot be read fails all batches."""
        while True:
            data = self._inbox.get()
            if data[:1] == NEW_BLOCK:
                self._by_number[int(data[1:])] = Block.received(self._blocks)
                continue
            try:
                message: tuple[Any, ...] = pickle.loads(data)  # noqa: S301 - the parent has written it
            except Exception as error:  # noqa: BLE001 - as modules of the user raise what they like
                actual, fix = f"{type(error).__name__}: {error}", f"{AT_TOP}, {NO_WORKERS}"
                wrong = ModelError("workers", "what another process can open", actual, fix)
                self._failure = wrong, traceback.format_exc()
                continue
            return message

    def _reply(self, *reply: object) -> None:
        """Send a reply; without a parent that takes it, end the process."""
        data = pickle.dumps(reply, pickle.HIGHEST_PROTOCOL)
        try:
            self._messages.send_bytes(data)
        except OSError:
            os._exit(0)

    def _attempt(self, work: Callable[[], object]) -> None:
        """Do what all batches need; where it fails, they all do."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - it is raised in the parent
            self._failure = error, traceback.format_exc()

    def _open(self, description: Description) -> None:
        self._opened = Opened(description)

    def _traced(self, examples: Sequence[Any]) -> Digests:
        """Return digests of the traces of the first examples; none where they have none that are known."""
        none = digests(())
        try:
            traces = self._opened.traces(examples[:AGAIN]) if len(examples) and not self._failure else None
        except Exception:  # noqa: BLE001 - it comes again with its batch
            return none
        return none if traces is None else digests([(pack(trace), trace.loose) for trace in traces])

    def _prepare(self, number: int, block: int, task: Any) -> None:
        """Prepare the batch of a task, and reply with it or with what it failed with."""
        facts = None
        try:
            if self._failure is not None:
                self._fail(block, *self._failure)
                return
            read = self._reading.read(task)
            if read is None:
                self._reply("end", block)
                return
            facts, examples = read
            self._kept.append((number, examples))
            carried_parts = self._planned(facts, examples)
        except DecidingError:
            carried_parts = None
        except Exception as error:  # noqa: BLE001 - it is raised in the parent
            self._fail(block, error, traceback.format_exc())
            return
        if carried_parts is None:
            self._reply("unplanned", block, facts)
            return
        headers = [of_part for of_part, _ in carried_parts]
        arrays = [array for _, of_part in carried_parts for array in of_part]
        if (needed := room_for(arrays)) > self._by_number[block].size:
            block = self._with_room(block, needed)
        self._reply("planned", block, put(self._by_number[block].memory, arrays), headers, facts)

    def _planned(self, facts: Any, examples: Sequence[Any]) -> list[tuple[list[Header], list[Any]]] | None:
        """Return the parts of a batch, each as it is carried; None where they bring cells or wires."""
        batch_parts = []
        for number, part in enumerate(self._reading.parts(facts, examples)):
            try:
                parts = self._opened.plan(part)
            except Exception as error:
                self._reading.name(error, facts, number)
                raise
            if parts is None:
                return None
            batch_parts.append(carried(parts))
        return batch_parts

    def _with_room(self, block: int, needed: int) -> int:
        """Return the number of a block of at least so many bytes, in the place of one that is too small."""
        self._reply("short", block, needed)
        del self._by_number[block]
        while (message := self._next())[0] != "room":
            self._later.append(message)
        number: int = message[1]
        return number

    def _fail(self, block: int, error: Exception, text: str) -> None:
        """Reply with an error and its traceback; one that does not pickle is told in words."""
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
        except Exception:  # noqa: BLE001 - as the user's class raises what it likes
            actual = f"{type(error).__name__}: {error}"
            error = TrainingError("workers", "a batch that can be prepared", actual, "see the traceback")
        self._reply("failed", block, error, text)
